"""docs/fleet.md's ten questions, asked of many simulated nodes by DuckDB and by Spark: what happened?

    python -m tests.fleet_bed.questions [--nodes 2000] [--keep]

DuckDB reads Parquet files that `export parquet` has written, Spark the journals themselves, on two workers.
The last answers are kept in benchmarks/results/fleet_questions.json.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

from benchmarks.report import Figure, say
from ebbtide.cli.export.files import write_tables
from tests.fleet_bed import one_machine
from tests.fleet_bed.cluster import cluster, driver
from tests.fleet_bed.measuring import measured
from tests.replay.sim.questions import CHECKS, FILE, Row, made, questions

Ask = Callable[[str], list[Row]]


def duckdb(folder: Path) -> Ask:
    import duckdb

    with contextlib.chdir(folder):
        assert write_tables([folder / "fleet"], Path("tables")) == 0

    def ask(sql: str) -> list[Row]:
        with contextlib.chdir(folder):
            rows: list[Row] = duckdb.sql(sql).to_arrow_table().to_pylist()
        return rows

    return ask


@contextlib.contextmanager
def spark(folder: Path) -> Iterator[Ask]:
    with cluster(folder, workers=2) as found, driver(found, folder) as on:
        for table in sorted({name for _, _, sql in questions() for name in FILE.findall(sql)}):
            on.call("view", url=(folder / "fleet").as_uri(), table=table)

        def ask(sql: str) -> list[Row]:
            on.call("sql", sql=FILE.sub(r"\1", sql), into=str(folder / "answer"))
            rows: list[Row] = one_machine.stored(folder / "answer").to_pylist()
            return rows

        yield ask


def measure(folder: Path, nodes: int) -> list[Figure]:
    machines = made(folder / "fleet", nodes)
    say(f"{nodes} nodes are simulated")
    figures = []
    answers: dict[str, dict[int, list[Row]]] = {}
    with spark(folder) as ask_spark:
        for engine, ask in (("DuckDB", duckdb(folder)), ("Spark", ask_spark)):
            answers[engine] = {number: list(map(_plain, ask(sql))) for number, _, sql in questions()}
            wrong = {}
            for number, check in CHECKS.items():
                try:
                    check(machines, answers[engine][number])
                except AssertionError as problem:
                    wrong[number] = str(problem)
                    say(f"{engine}, question {number}: {problem}")
            said = f"not {', '.join(map(str, wrong))}" if wrong else f"{nodes} nodes"
            right = len(CHECKS) - len(wrong)
            what = f"{engine}: questions answered as it really was"
            figures.append(Figure(what, right, len(CHECKS), "", said, True))
    one, other = answers.values()
    same = sum(one[number] == other[number] for number in CHECKS)
    return [*figures, Figure("questions to which both say the same", same, len(CHECKS), "", "", True)]


def _plain(row: Row) -> Row:
    """Engines divide into types of their own."""
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}


if __name__ == "__main__":
    sys.exit(measured("fleet_questions", "tests.fleet_bed.questions", __doc__, measure))
