"""The ten questions of docs/questions.sql, and their true answers on simulated nodes.

CHECKS[5](machines, rows)

Each check compares the model's machines with the rows of the SQL, from any engine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ebbtide.cli.common.saving import write_journal
from ebbtide.events.decisions import PodEnded, WaveEnded, WaveStarted
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of
from tests.replay.sim import truth

PODS = 20
PRIORITIES = (0, 10_000, 2_000_000_000)
PAGE = Path(__file__).parents[3] / "docs" / "questions.sql"
QUESTION = re.compile(r"-- (\d+)\. (.*?)\n(?:-- .*?\n)?(.*?);\n", re.DOTALL)
#: Where a question names a table.
FILE = re.compile(r"'tables/(\w+)\.parquet'")

Row = dict[str, Any]
Check = Callable[[list[Machine], list[Row]], None]


def questions() -> list[tuple[int, str, str]]:
    """Number, title and SQL of each question."""
    return [(int(number), title, sql) for number, title, sql in QUESTION.findall(PAGE.read_text())]


def made(folder: Path, nodes: int) -> list[Machine]:
    """Nodes with one shutdown each; their journals go below ``folder``."""
    plans = [plan_of(SimulationRequest(synthetic=PODS), seed) for seed in range(1, nodes + 1)]
    once = [plan._replace(faults=plan.faults._replace(again_after_ns=None)) for plan in plans]
    machines = [Machine(plan).run() for plan in once]
    for machine in machines:
        write_journal(folder / machine.plan.node, machine.journal.files())
    return machines


def of_type(machines: list[Machine], kind: type) -> list[tuple[Machine, Any]]:
    return [
        (machine, record.event)
        for machine in machines
        for record in machine.journal.records
        if isinstance(record.event, kind)
    ]


def _same(found: Mapping[Any, Any], known: Mapping[Any, Any]) -> None:
    differ = {key for key in {*found, *known} if found.get(key) != known.get(key)}
    assert not differ, "; ".join(
        f"{key}: {found.get(key)} answered, {known.get(key)} true" for key in sorted(differ, key=repr)
    )


def how_shutdowns_end(machines: list[Machine], rows: list[Row]) -> None:
    """1: cancelled, complete or cut short, by lock and power."""
    _same({(row["kind"], row["outcome"]): row["shutdowns"] for row in rows}, truth.outcomes(machines))
    assert {row["outcome"] for row in rows} >= {"complete", "cancelled", "truncated"}


def small_grants(machines: list[Machine], rows: list[Row]) -> None:
    """2: logind's grant at the signal."""
    _same({row["node"]: row["grant_ms"] for row in rows}, dict(truth.small_grants(machines)))
    assert {row["needed_ms"] for row in rows} == {truth.NEEDED_MS}


def slow_hooks(machines: list[Machine], rows: list[Row]) -> None:
    """3: the true number of runs, and the longest to a millisecond or two."""
    rows = [row for row in rows if row["kind"] != "sleep"]
    known = truth.hook_times(machines)
    assert {(row["workload"], row["kind"]) for row in rows} == set(known)
    for row in rows:
        times_ms = known[row["workload"], row["kind"]]
        assert row["runs"] == len(times_ms)
        assert abs(row["max_ms"] - max(times_ms)) <= 2
    assert [row["p95_ms"] for row in rows] == sorted((row["p95_ms"] for row in rows), reverse=True)


def failing_hooks(machines: list[Machine], rows: list[Row]) -> None:
    """4: hooks that ended badly by themselves."""
    failed = {(row["workload"], row["kind"]): row["failed"] for row in rows if row["failed"]}
    _same(failed, truth.failed_hooks(machines))


def killed_pods(machines: list[Machine], rows: list[Row]) -> None:
    """5: pods with a container that died of SIGKILL, or survived it."""
    _same({row["workload"]: row["killed"] for row in rows}, truth.killed(machines, _unseen(machines)))


def _unseen(machines: list[Machine]) -> set[truth.PodOf]:
    return {
        (at, record.event.uid)
        for at, machine in enumerate(machines)
        for record in machine.journal.records
        if isinstance(record.event, PodEnded) and record.event.outcome == "unknown"
    }


def deaf_pods(machines: list[Machine], rows: list[Row]) -> None:
    """6: pods that ignore their stop signal and lived until the look."""
    _same({row["workload"]: row["seen"] for row in rows}, truth.deaf(machines))


def waves(machines: list[Machine], rows: list[Row]) -> None:
    """7: waves started and overrun, as decided."""
    found = {row["priority"]: (row["ran"], row["overran"]) for row in rows}
    began = Counter(event.priority for _, event in of_type(machines, WaveStarted))
    overran = Counter(
        PRIORITIES[event.wave] for _, event in of_type(machines, WaveEnded) if event.outcome == "overran"
    )
    _same(found, {priority: (began[priority], overran[priority]) for priority in PRIORITIES})


def crashes(machines: list[Machine], rows: list[Row]) -> None:
    """8: nodes where another daemon took over."""
    _same({row["node"]: True for row in rows}, dict.fromkeys(truth.crashed(machines), True))


def unknown_pods(machines: list[Machine], rows: list[Row]) -> None:
    """9: pods without an observed end."""
    unknown = Counter(
        machine.plan.node for machine, event in of_type(machines, PodEnded) if event.outcome == "unknown"
    )
    _same({row["node"]: row["pods"] for row in rows}, unknown)


def warnings(machines: list[Machine], rows: list[Row]) -> None:
    """10: one warning per killed pod, crash and small grant."""
    times = {row["code"]: row["times"] for row in rows}
    fates = Counter(event.outcome for _, event in of_type(machines, PodEnded))
    known = {"pod-killed": fates["killed"], "pod-failed": fates["failed"]}
    _same({code: times[code] for code in known}, known)
    assert times["restarted"] >= len(truth.crashed(machines)), times["restarted"]
    assert list(times.values()) == sorted(times.values(), reverse=True)


CHECKS: dict[int, Check] = {
    1: how_shutdowns_end,
    2: small_grants,
    3: slow_hooks,
    4: failing_hooks,
    5: killed_pods,
    6: deaf_pods,
    7: waves,
    8: crashes,
    9: unknown_pods,
    10: warnings,
}
