"""docs/fleet.md: its ten questions, asked of 200 simulated nodes, answered as it really was on them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ebbtide.cli.exporting.tables import write_tables
from ebbtide.cli.guard import CORRUPT, TORN, Refused, guarded
from ebbtide.cli.simulating.keeping import keep
from events.decisions import PodEnded, WaveEnded, WaveStarted
from replay.tables import KEY, TABLES
from replay.virtual.machine import Machine
from replay.virtual.simulate import Wanted, plan_of
from tests.virtual import columns, truth

NODES, PODS = 200, 20
QUESTION = re.compile(r"### (\d+)\. .*?\n.*?```sql\n(.*?)```", re.DOTALL)

Row = dict[str, Any]
Ask = Callable[[int], list[Row]]


class Fleet(NamedTuple):
    """The machines as the model had them, and the folder with their journals and tables."""

    machines: list[Machine]
    folder: Path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Two hundred nodes with one shutdown each, their journals, and the tables made of these."""
    folder = tmp_path_factory.mktemp("fleet")
    plans = [plan_of(Wanted(synthetic=PODS), seed) for seed in range(1, NODES + 1)]
    once = [plan._replace(faults=plan.faults._replace(again_after_ns=None)) for plan in plans]
    machines = [Machine(plan).run() for plan in once]
    for machine in machines:
        keep(folder / "fleet" / machine.plan.node, machine.book.files())
    assert write_tables([folder / "fleet"], folder / "tables") == 0
    return Fleet(machines, folder)


@pytest.fixture
def ask(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The rows that the page's SQL for a question gives."""
    import duckdb

    monkeypatch.chdir(fleet.folder)
    queries = {int(number): sql for number, sql in QUESTION.findall(columns.PAGE.read_text())}
    assert sorted(queries) == list(range(1, 11))

    def call(number: int) -> list[Row]:
        answer = duckdb.sql(queries[number])
        assert answer is not None
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]

    return call


def of_type(fleet: Fleet, kind: type) -> list[tuple[Machine, Any]]:
    return [
        (machine, record.event)
        for machine in fleet.machines
        for record in machine.book.records
        if isinstance(record.event, kind)
    ]


@pytest.mark.slow
def test_how_shutdowns_end(fleet: Fleet, ask: Ask) -> None:
    """1: cancelled, complete or cut short, as lock and power had it."""
    rows = ask(1)
    assert {(row["kind"], row["outcome"]): row["shutdowns"] for row in rows} == truth.outcomes(fleet.machines)
    assert {row["outcome"] for row in rows} == {"complete", "cancelled", "truncated"}


@pytest.mark.slow
def test_small_grants(fleet: Fleet, ask: Ask) -> None:
    """2: what logind allowed when it signalled."""
    rows = ask(2)
    assert {(row["node"], row["grant_ms"]) for row in rows} == truth.small_grants(fleet.machines)
    assert {row["needed_ms"] for row in rows} == {truth.NEEDED_MS}


@pytest.mark.slow
def test_slow_hooks(fleet: Fleet, ask: Ask) -> None:
    """3: as many runs as there were, and the longest as long as it took, to the millisecond or two."""
    rows = [row for row in ask(3) if row["kind"] != "sleep"]
    known = truth.hook_times(fleet.machines)
    assert {(row["workload"], row["kind"]) for row in rows} == set(known)
    for row in rows:
        times_ms = known[row["workload"], row["kind"]]
        assert row["runs"] == len(times_ms)
        assert abs(row["max_ms"] - max(times_ms)) <= 2
    assert [row["p95_ms"] for row in rows] == sorted((row["p95_ms"] for row in rows), reverse=True)


@pytest.mark.slow
def test_failing_hooks(fleet: Fleet, ask: Ask) -> None:
    """4: hooks that ended badly by themselves."""
    failed = {(row["workload"], row["kind"]): row["failed"] for row in ask(4) if row["failed"]}
    assert failed == truth.failed_hooks(fleet.machines)


@pytest.mark.slow
def test_killed_pods(fleet: Fleet, ask: Ask) -> None:
    """5: pods of which a container died of SIGKILL, or would not even then."""
    assert {row["workload"]: row["killed"] for row in ask(5)} == truth.killed(fleet.machines)


@pytest.mark.slow
def test_deaf_pods(fleet: Fleet, ask: Ask) -> None:
    """6: pods that were made to ignore their stop signal, and lived to be looked at."""
    assert {row["workload"]: row["seen"] for row in ask(6)} == truth.deaf(fleet.machines)


@pytest.mark.slow
def test_waves(fleet: Fleet, ask: Ask) -> None:
    """7: waves that began, and that overran, as they were decided."""
    rows = {row["priority"]: (row["ran"], row["overran"]) for row in ask(7)}
    priorities = (0, 10_000, 2_000_000_000)
    began = Counter(event.priority for _, event in of_type(fleet, WaveStarted))
    overran = Counter(
        priorities[event.wave] for _, event in of_type(fleet, WaveEnded) if event.outcome == "overran"
    )
    assert rows == {priority: (began[priority], overran[priority]) for priority in priorities}


@pytest.mark.slow
def test_crashes(fleet: Fleet, ask: Ask) -> None:
    """8: nodes on which another daemon had to take over."""
    assert {row["node"] for row in ask(8)} == truth.crashed(fleet.machines)


@pytest.mark.slow
def test_unknown_pods(fleet: Fleet, ask: Ask) -> None:
    """9: pods whose end nobody saw."""
    unknown = Counter(
        machine.plan.node for machine, event in of_type(fleet, PodEnded) if event.outcome == "unknown"
    )
    assert {row["node"]: row["pods"] for row in ask(9)} == unknown


@pytest.mark.slow
def test_warnings(fleet: Fleet, ask: Ask) -> None:
    """10: one warning for each pod that was killed, each crash, each small grant."""
    times = {row["code"]: row["times"] for row in ask(10)}
    fates = Counter(event.outcome for _, event in of_type(fleet, PodEnded))
    assert times["pod-killed"] == fates["killed"]
    assert times["pod-failed"] == fates["failed"]
    assert times["restarted"] >= len(truth.crashed(fleet.machines))
    assert list(times.values()) == sorted(times.values(), reverse=True)


# --- the tables themselves ---------------------------------------------------------------------


def a_node(folder: Path, seed: int, pods: int = 4) -> Path:
    machine = Machine(plan_of(Wanted(synthetic=pods, calm=True), seed)).run()
    keep(folder / machine.plan.node, machine.book.files())
    return folder / machine.plan.node


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_page_has_every_column() -> None:
    """The reference is made from the tables' own list."""
    text = columns.PAGE.read_text()
    assert columns.page(text) == text


def test_every_table_stands_by_itself() -> None:
    """Each begins with node, shutdown and start, and no column is there twice."""
    for table in TABLES:
        assert table.columns[: len(KEY)] == KEY
        names = [column.name for column in table.columns]
        assert len(names) == len(set(names))


def test_same_bytes(tmp_path: Path) -> None:
    """The same journals give the same files, and repeating --journal is as good as a folder of them."""
    nodes = [a_node(tmp_path / "fleet", seed) for seed in (1, 2)]
    assert write_tables([tmp_path / "fleet"], tmp_path / "one") == 0
    assert write_tables(nodes, tmp_path / "two") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert sorted(contents(tmp_path / "one")) == sorted(f"{table.name}.parquet" for table in TABLES)


def test_no_shutdown_is_an_empty_table(tmp_path: Path) -> None:
    """A journal without shutdowns gives tables with their columns and no row."""
    parquet = import_module("pyarrow.parquet")

    machine = Machine(plan_of(Wanted(pods=(), calm=True), 1))
    machine.plan = machine.plan._replace(settings=machine.plan.settings.__class__())
    machine.run()
    keep(tmp_path / "node", machine.book.files())
    assert write_tables([tmp_path / "node"], tmp_path / "tables") == 0
    read = parquet.read_table(tmp_path / "tables" / "pods.parquet")
    assert read.num_rows == 0
    assert read.column_names == [
        column.name for table in TABLES if table.name == "pods" for column in table.columns
    ]


def test_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written in groups, however many there are in all."""
    parquet = import_module("pyarrow.parquet")

    monkeypatch.setattr("ebbtide.cli.exporting.tables.ROWS_MAX", 10)
    for seed in range(5):
        a_node(tmp_path / "fleet", seed, 8)
    assert write_tables([tmp_path / "fleet"], tmp_path / "tables") == 0
    file = parquet.ParquetFile(tmp_path / "tables" / "pods.parquet")
    assert file.num_row_groups > 2
    assert file.metadata.num_rows >= 35


@pytest.mark.parametrize(("damage", "code"), [("torn", TORN), ("corrupt", CORRUPT)])
def test_damage(tmp_path: Path, damage: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged journal is used as far as it goes, beside the others; the worst verdict is the exit code."""
    hurt = a_node(tmp_path / "fleet", 1)
    a_node(tmp_path / "fleet", 2)
    first, *_, last = sorted(hurt.iterdir())
    victim = last if damage == "torn" else first
    data = victim.read_bytes()
    cut = data[:-10] if damage == "torn" else data[:5000] + b"!" + data[5001:]
    os.chmod(victim, 0o600)
    victim.write_bytes(cut)
    assert write_tables([tmp_path / "fleet"], tmp_path / "tables") == code
    assert (tmp_path / "tables" / "shutdowns.parquet").exists()
    assert damage in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["no journal", "no directory", "taken"])
def test_refused(tmp_path: Path, wrong: str) -> None:
    """What cannot be done is refused in one line, and nothing is written."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    node = a_node(tmp_path / "fleet", 1)
    where, output, message = {
        "no journal": (tmp_path / "empty", tmp_path / "t", "and none in its folders"),
        "no directory": (tmp_path / "gone", tmp_path / "t", "is no directory"),
        "taken": (node, tmp_path / "taken", "is there already: name a new directory with -o"),
    }[wrong]
    with pytest.raises(Refused, match=message):
        write_tables([where], output)
    assert not (tmp_path / "t").exists()
    assert (tmp_path / "taken" / "mine").read_text() == "mine"


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the command says how to get it."""
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Refused, match=r"pip install 'ebbtide\[tables\]'"):
        write_tables([a_node(tmp_path / "fleet", 1)], tmp_path / "t")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``ebbtide export parquet`` says what it wrote, and where."""
    node = a_node(tmp_path / "fleet", 3)
    assert guarded(["export", "parquet", "--journal", str(node), "-o", str(tmp_path / "t")]) == 0
    err = capsys.readouterr().err
    assert f"wrote {tmp_path / 't'}: 1 shutdowns, 3 waves" in err
    assert "of 1 journal" in err
