"""docs/fleet.md: its ten questions, asked of 200 simulated nodes, answered as it really was on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ebbtide.cli.export.files import write_tables
from ebbtide.cli.simulate import write_journal
from ebbtide.events.decisions import PodEnded, WaveEnded, WaveStarted
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of
from tests.replay.sim import columns, truth

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
    plans = [plan_of(SimulationRequest(synthetic=PODS), seed) for seed in range(1, NODES + 1)]
    once = [plan._replace(faults=plan.faults._replace(again_after_ns=None)) for plan in plans]
    machines = [Machine(plan).run() for plan in once]
    for machine in machines:
        write_journal(folder / "fleet" / machine.plan.node, machine.journal.files())
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
        for record in machine.journal.records
        if isinstance(record.event, kind)
    ]


def test_no_rule_of_its_own() -> None:
    """What belongs together is told by the tables' columns: no question takes a name to pieces."""
    queries = QUESTION.findall(columns.PAGE.read_text())
    assert len(queries) == 10
    assert [number for number, sql in queries if "regexp" in sql] == []


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
    unseen = {
        (at, record.event.uid)
        for at, machine in enumerate(fleet.machines)
        for record in machine.journal.records
        if isinstance(record.event, PodEnded) and record.event.outcome == "unknown"
    }
    assert {row["workload"]: row["killed"] for row in ask(5)} == truth.killed(fleet.machines, unseen)


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
