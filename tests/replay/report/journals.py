"""Simulated shutdowns in memory for report and exports: plain, hostile and large."""

from __future__ import annotations

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import Period, Settings
from ebbtide.replay.report.page import report
from ebbtide.replay.sim.scenario import Behaviour, BehaviourRule, DurationQuantiles, Faults
from ebbtide.replay.sim.simulate import MemorySource, SimulationRequest, simulate
from ebbtide.replay.timeline import Line, timeline
from tests.journals import pod

Files = dict[str, bytes]

#: When the model's machines begin.
STARTED = "2026-01-01T00:00:10.000000000Z"

SETTINGS = Settings(
    by_pod_priority=(
        Period(priority=0, seconds=10),
        Period(priority=1000, seconds=20),
        Period(priority=2000, seconds=5),
    )
)

#: Injection attempts, and strange but valid names.
HOSTILE = (
    "</script><script>window.hit=1</script>",
    "</style><style>*{display:none}",
    '"><img src="http://127.0.0.1:9/x.png" onerror="window.hit=1">',
    "<!--<script>",
    "{{data}}",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "\u2028line\u2029\x00\x1b[31m",
    "🌊-ebb-👩‍🚒",
    "שלום",
    "x" * 253,
    "' onmouseover='window.hit=1",
)


STORY = (
    pod("web-0", hook="drain"),
    pod("web-1"),
    pod("stuck-0"),
    pod("api-0", 1000, hook="hand-over"),
    pod("api-1", 1000),
    pod("db-0", 2000),
)

#: A pod that ignores its signal, and a hook that delays its wave.
STORY_BEHAVIOUR = Behaviour(
    rules=(
        BehaviourRule(pod="stuck-*", ignores=True),
        BehaviourRule(pod="api-0", hook=DurationQuantiles((12 * NS_PER_SECOND,))),
        BehaviourRule(pod="web-0", hook_fails=True),
    )
)


def run(wanted: SimulationRequest, seed: int = 1) -> Files:
    made = simulate(wanted._replace(settings=SETTINGS), seed)
    assert not made.breaches, made.breaches
    return made.files()


def story() -> Files:
    return run(SimulationRequest(pods=STORY, behaviour=STORY_BEHAVIOUR, calm=True))


def hostile() -> Files:
    """Hostile names, hooks and containers; some are killed, so that reasons name them."""
    pods = tuple(pod(name, at % 2 * 1000, hook=name) for at, name in enumerate(HOSTILE))
    behaviour = Behaviour(
        rules=(BehaviourRule(pod="*i*", ignores=True), BehaviourRule(pod="*s*", hook_fails=True)),
        faults=Faults(),
    )
    return run(SimulationRequest(pods=pods, behaviour=behaviour, calm=True))


def many(count: int = 1020) -> Files:
    """Any draw: hanging hooks, killed pods, early ends."""
    return run(SimulationRequest(synthetic=count), seed=7)


def hundred() -> Files:
    """About 110 pods, mostly clean; some killed, some late."""
    return run(SimulationRequest(synthetic=115, calm=True), seed=21)


def told(files: Files) -> tuple[ShutdownRecord, list[Line]]:
    """The last shutdown's account with all lines."""
    account = list(shutdown_records(History([MemorySource(files)])))[-1]
    return account, list(timeline(History([MemorySource(files)]).batches(), account.first_seq))


def page(files: Files) -> str:
    return report(*told(files), STARTED)
