"""``ebbtide export jsonl`` and ``parquet``: shutdowns as files for other tools.

``parquet`` writes the tables of ``ebbtide fleet tables``. Only it needs pyarrow, the extra ``tables``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ebbtide.cli.common.guard import worst
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import JournalLocations, JournalPool, open_journal, usable_records
from ebbtide.cli.common.saving import file_option, new_folder, refuse_existing, save
from ebbtide.cli.common.selection import choose_record
from ebbtide.cli.common.shared_options import episode_verb, pooled_journals_option
from ebbtide.cli.fleet.fleet_common import Engine, answers, jobs_option
from ebbtide.cli.journal_show import record_json_line
from ebbtide.events.messages import plural
from ebbtide.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

JSONL_EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@episode_verb("jsonl", JSONL_EPILOG)
@file_option("shutdown.jsonl")
def jsonl_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write the records of a shutdown or an outage as in 'ebbtide journal show -o json'.

    One JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    shutdown, code = choose_record(journals, episode)
    # Step by step: the memory does not grow with the journal. The first record may still belong to the
    # shutdown that it closed (`events.record.episodes`).
    lines = (
        record_json_line(header, raw)
        for header, records in open_journal(journals).batches()
        for raw in records
        if shutdown.first_seq in (raw.episode, raw.seq)
    )
    save(output, lines, readable=True, example="shutdown.jsonl")
    return code


PARQUET_EPILOG = """\b
Examples:
  ebbtide export parquet -o tables
  ebbtide export parquet --journal fleet/ -o tables --jobs 4
  ebbtide export parquet --journal node-a/journal --journal node-b/journal -o tables
  duckdb -c "select node, outcome, took_ms from 'tables/shutdowns.parquet'"

What the tables hold, and ten questions for them: docs/fleet.md.
"""


@click.command(epilog=PARQUET_EPILOG)
@pooled_journals_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A new directory for the tables, one file each.",
)
@jobs_option
def parquet(journals: tuple[Path, ...], output: Path, jobs: int | None) -> int:
    """Write the shutdowns of one or many nodes as tables in Parquet files, for DuckDB, Spark or pandas.

    shutdowns, waves, pods, hooks, containers and notices; for journals of outages outages, outage_pods,
    outage_volumes and outage_statements. Any number of processes gives the same bytes.
    """
    return write_tables(journals, output, jobs)


def write_tables(journals: Sequence[Path], output: Path, jobs: int | None = 1) -> int:
    """Returns the journals' worst exit code. ``jobs`` None: a process for each processor. Raises Refused,
    OSError.
    """
    from ebbtide.replay.tables import TABLES_OF

    refuse_existing(output, "-o")
    # Before reading journals, which may take a minute.
    require("tables", "export parquet")
    from ebbtide.fleet.fleet_rows import write_files

    pool = JournalPool(journals)
    tables = [table.name for kind in pool.kinds for table in TABLES_OF[kind]]
    codes: list[int] = []

    def batches() -> Iterator[tuple[str, pa.RecordBatch]]:
        for answer in answers(tables_of, pool.locations(), Engine(jobs=jobs)):
            for line in answer.said:
                remark(line)
            codes.append(answer.code)
            yield from answer.batches

    with new_folder(output) as made:
        counts = write_files(batches(), tables, made)
    rows = ", ".join(f"{count} {name}" for name, count in counts.items())
    remark(f"wrote {output}: {rows} of {plural(len(pool), 'journal')}")
    return worst(codes)


class TablesOf(NamedTuple):
    batches: list[tuple[str, pa.RecordBatch]]
    said: list[str]
    code: int


def tables_of(journals: Sequence[JournalLocations]) -> TablesOf:
    from ebbtide.fleet.fleet_rows import batched
    from ebbtide.replay.tables import TABLES_OF

    said, codes = list[str](), list[int]()

    def rows() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
        for each in journals:
            # Close each journal's files, also in a process of the pool.
            with click.Context(parquet, parent=click.get_current_context(silent=True)):
                history = each.history()
                for told in usable_records(history, said.append):
                    for table in TABLES_OF[type(told)]:
                        yield table.name, list(table.rows(told))
                codes.append(history.verdict.exit_code)

    return TablesOf(list(batched(rows())), said, worst(codes))
