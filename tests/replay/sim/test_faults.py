"""Each misfortune by itself: it happens to the node, and the daemon answers it as it should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from ebbtide.events import outage
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, TYPES, Event, Order
from ebbtide.events.decisions import (
    Armed,
    CancelOrder,
    DeadlineMoved,
    FlushTraces,
    GrantAssessed,
    HookEnded,
    PodEnded,
    PodRejected,
    Resumed,
    ShutdownBegan,
    StatusesSettled,
    WriteDropIn,
)
from ebbtide.events.facts import BusLost, DaemonStarted, OrderEnded
from ebbtide.events.model import Container, Hook, HookKind, Period, Pod, Settings
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.record.model import ShutdownRecord
from ebbtide.replay.sim.scenario import ContainerPlan, Faults, HookPlan, PodPlan, SimulationPlan
from ebbtide.replay.sim.simulate import Machine, Simulated, SimulationRequest, check_run, simulate

EventT = TypeVar("EventT", bound=Event)

SETTINGS = Settings(
    by_pod_priority=(Period(priority=0, seconds=10), Period(priority=1000, seconds=5)), reserve_seconds=5
)
CALM = ContainerPlan(stop_ns=300 * MS)


def pod(name: str, manner: ContainerPlan = CALM, hook: HookKind | None = None, priority: int = 0) -> PodPlan:
    spec = Container(name="app", hook=Hook(kind=hook) if hook else None)
    made = Pod(
        uid=f"uid-{name}",
        namespace="shop",
        name=name,
        priority=priority,
        grace_seconds=30,
        containers=(spec,),
    )
    return PodPlan(made, {"app": manner})


PODS = (pod("web"), pod("slow", ContainerPlan(stop_ns=4000 * MS)), pod("db", priority=1000))


class Run:
    """A run of a hand-written plan, in which every invariant held."""

    def __init__(
        self, pods: Sequence[PodPlan] = PODS, settings: Settings = SETTINGS, seed: int = 1, **faults: Any
    ) -> None:
        self.machine = Machine(SimulationPlan(settings, tuple(pods), Faults(**faults), seed=seed)).run()
        assert check_run(self.machine) == []
        self.account: ShutdownRecord = next(iter(Simulated(1, self.machine, []).shutdown_records()))
        self.fates = {each.name: each.outcome for each in self.account.pods}

    def events(self, kind: type[EventT]) -> list[EventT]:
        return [each.event for each in self.machine.journal.records if isinstance(each.event, kind)]


#: One that is a process of its node, and one of which only the runtime can do anything.
NEAR, FAR = pod("near", ContainerPlan(stop_ns=4000 * MS)), pod("far-8", ContainerPlan(stop_ns=4000 * MS))
EARLY = (pod("early")._replace(appears_ns=-5 * NS_PER_SECOND),)
DEAF = (pod("deaf", ContainerPlan(stop_ns=None)),)
UNKILLABLE = (pod("stuck", ContainerPlan(stop_ns=None, reap_ns=None)),)

GRACEFUL = "graceful graceful graceful"


@pytest.mark.parametrize(
    ("pods", "faults", "outcome", "fates"),
    [
        (PODS, {}, "complete", GRACEFUL),
        (PODS, {"late_grant_ns": 12 * NS_PER_SECOND}, "complete", "graceful killed graceful"),
        (PODS, {"cancel_after_ns": 2 * NS_PER_SECOND}, "cancelled", "graceful graceful spared"),
        (PODS, {"second_signal_after_ns": 2 * NS_PER_SECOND}, "complete", GRACEFUL),
        (PODS, {"bus_lost_after_ns": NS_PER_SECOND}, "complete", GRACEFUL),
        (PODS, {"runtime_refuses": "stops"}, "complete", "killed killed killed"),
        (PODS, {"runtime_refuses": "everything"}, "complete", "failed failed failed"),
        (PODS, {"runtime_takes_ns": 2 * NS_PER_SECOND}, "complete", GRACEFUL),
        (
            PODS,
            {"crash_after_ns": 3 * NS_PER_SECOND, "restart_takes_ns": 3 * NS_PER_SECOND},
            "complete",
            GRACEFUL,
        ),
        (PODS, {"power_cut_after_ns": 2 * NS_PER_SECOND}, "truncated", "graceful unknown unknown"),
        ((NEAR, FAR), {"runtime_hangs_after_ns": -5000 * MS}, "complete", "graceful failed"),
        ((NEAR, FAR), {"runtime_hangs_after_ns": 0}, "complete", "graceful failed"),
        ((NEAR, FAR), {"runtime_hangs_after_ns": 100 * MS}, "complete", "graceful graceful"),
        (EARLY, {}, "complete", "graceful"),
        (DEAF, {}, "complete", "killed"),
        (UNKILLABLE, {}, "complete", "failed"),
    ],
)
def test_fates(pods: tuple[PodPlan, ...], faults: dict[str, Any], outcome: str, fates: str) -> None:
    """What each misfortune by itself makes of the shutdown, and of each of its pods in their order."""
    run = Run(pods, **faults)
    assert run.account.outcome == outcome
    assert run.fates == dict(zip((each.pod.name for each in pods), fates.split(), strict=True))


def test_calm() -> None:
    """Without any fault the shutdown takes as long as its slowest pods, and each order has one outcome."""
    run = Run()
    assert 4300 * MS <= (run.account.ended_ns or 0) < 4500 * MS
    assert [each.seconds for each in run.events(WriteDropIn)[:1]] == [20]
    assert [each.action for each in run.events(Resumed)] == ["fresh", "close-complete"]
    keys = [each.key for each in run.events(OrderEnded)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("seconds", [1, 8])
def test_grant(seconds: int) -> None:
    """A limit that no drop-in moves makes the shutdown as short as it is."""
    run = Run(grant_ns=seconds * NS_PER_SECOND)
    assert run.account.grant_ns == seconds * NS_PER_SECOND
    assert any(not each.sufficient and each.overridden_by for each in run.events(GrantAssessed))
    assert (run.account.ended_ns or 0) <= seconds * NS_PER_SECOND


def test_each_happens_to_the_node() -> None:
    """A late grant leaves logind's timer, a cancel arms the node again, a lost bus is made anew."""
    assert Run(late_grant_ns=12 * NS_PER_SECOND).events(ShutdownBegan)[0].grant_ns == 5 * NS_PER_SECOND
    cancelled = Run(cancel_after_ns=2 * NS_PER_SECOND).machine.boots
    assert len(cancelled) == 1
    assert cancelled[0].node.logind.holders
    assert cancelled[0].node.api.shown_ready
    lost = Run(bus_lost_after_ns=NS_PER_SECOND)
    assert (len(lost.events(BusLost)), len(lost.events(Armed))) == (1, 3)
    twice = Run(second_signal_after_ns=2 * NS_PER_SECOND)
    assert (len(twice.events(ShutdownBegan)), len(twice.events(DeadlineMoved))) == (1, 1)
    cut = Run(power_cut_after_ns=2 * NS_PER_SECOND)
    assert cut.events(Resumed)[-1].previous == "cut short at wave 0"
    assert "ignores SIGTERM" in Run(DEAF).events(PodEnded)[0].reason


def test_again() -> None:
    """Another shutdown after a cancel: it adopts who is on the way down, and begins with the rest."""
    run = Run(cancel_after_ns=NS_PER_SECOND, again_after_ns=3 * NS_PER_SECOND)
    listed = [each.outcome for each in episodes(History([run.machine.journal.source()]))]
    first, second = Simulated(1, run.machine, []).shutdown_records()
    assert listed == [first.outcome, second.outcome] == ["cancelled", "complete"]
    assert {each.name: each.outcome for each in second.pods} == {"slow": "graceful", "db": "graceful"}
    signals = [seen.uid for seen in run.machine.log.of("signal")]
    assert sorted(signals) == ["uid-db", "uid-slow", "uid-web"]


@pytest.mark.parametrize("api", ["fails", "hangs"])
def test_api(api: str) -> None:
    """Statuses that cannot be delivered are waited for only so long, and counted."""
    run = Run(api=api)
    assert run.events(StatusesSettled)[0].undelivered > 0
    assert (run.account.ended_ns or 0) < 8 * NS_PER_SECOND


def test_a_runtime_that_wakes_up_tells_nobody_twice() -> None:
    """What it was given it reads then, and it was given that once."""
    run = Run((NEAR, FAR), runtime_hangs_after_ns=0, runtime_wakes_after_ns=4 * NS_PER_SECOND)
    assert run.fates == {"near": "graceful", "far-8": "graceful"}
    assert len([seen for seen in run.machine.log.of("signal") if seen.uid == "uid-far-8"]) == 1


def test_a_hook_that_a_runtime_does_not_begin() -> None:
    """It is waited for until the runtime counts as away, and no longer."""
    hooked = pod("hooked", ContainerPlan(hook=HookPlan(takes_ns=500 * MS)), "exec")
    (ended,) = Run((hooked,), runtime_hangs_after_ns=0).events(HookEnded)
    assert (ended.result, ended.reason) == ("failed", "it was not begun: the runtime does not answer")
    assert ended.elapsed_ns < 3100 * MS


@pytest.mark.parametrize(("kind", "result"), [("exec", "done"), ("httpGet", "unknown")])
def test_crash(kind: HookKind, result: str) -> None:
    """The next daemon goes on: it follows an exec hook that runs; a request counts as spent."""
    hooked = pod("hooked", ContainerPlan(stop_ns=100 * MS, hook=HookPlan(takes_ns=3000 * MS)), kind)
    run = Run((hooked, pod("web")), crash_after_ns=NS_PER_SECOND)
    assert len(run.events(DaemonStarted)) == 3
    assert "resume" in [each.action for each in run.events(Resumed)]
    assert [each.result for each in run.events(HookEnded)] == [result]
    assert len([seen for seen in run.machine.log.seen if seen.what == "hook"]) == 1


@pytest.mark.parametrize("kind", ["poweroff", "soft-reboot"])
def test_kind(kind: str) -> None:
    """The kind is on record; a soft reboot keeps the boot id and the clock."""
    run = Run(kind=kind)
    assert run.account.kind == kind
    first, second = (boot.node for boot in run.machine.boots)
    assert (first.boot_id == second.boot_id) == (kind == "soft-reboot")
    assert first.userspace_id != second.userspace_id


@pytest.mark.parametrize(
    ("hook", "plan", "result"),
    [
        ("exec", HookPlan(takes_ns=500 * MS), "done"),
        ("exec", HookPlan(takes_ns=500 * MS, succeeds=False), "failed"),
        ("httpGet", HookPlan(takes_ns=500 * MS, succeeds=False), "failed"),
        ("exec", HookPlan(takes_ns=None), "timed-out"),
        ("httpGet", HookPlan(takes_ns=None), "timed-out"),
    ],
)
def test_hooks(hook: HookKind, plan: HookPlan, result: str) -> None:
    """A hook succeeds, fails, or hangs until the grace is over."""
    run = Run((pod("web", ContainerPlan(stop_ns=100 * MS, hook=plan), hook),))
    assert [each.result for each in run.events(HookEnded)] == [result]


def test_exited_before() -> None:
    """A container that has ended before the signal gets neither hook nor stop."""
    containers = (Container(name="job", running=False), Container(name="app"))
    two = replace(pod("two").pod, containers=containers)
    run = Run((PodPlan(two, {"job": CALM, "app": CALM}),))
    assert {seen.container for seen in run.machine.log.of("signal")} == {"app"}
    assert run.fates == {"two": "graceful"}


def test_late_pod() -> None:
    """A pod that appears while the node goes down is rejected, and never started."""
    run = Run((pod("web", ContainerPlan(stop_ns=2000 * MS)), pod("late")._replace(appears_ns=NS_PER_SECOND)))
    assert [each.label for each in run.events(PodRejected)] == ["shop/late"]
    assert not [seen for seen in run.machine.log.of("start") if seen.uid == "uid-late"]


@pytest.mark.parametrize(("api", "result"), [("works", "done"), ("hangs", "timed-out")])
def test_traces(api: str, result: str) -> None:
    """Where traces are exported their flush is ordered, and bounded, at the end."""
    run = Run(settings=replace(SETTINGS, trace_flush_ns=NS_PER_SECOND), api=api)
    (order,) = run.events(FlushTraces)
    assert [each.result for each in run.events(OrderEnded) if each.key == order.key] == [result]


def test_every_order_has_somebody() -> None:
    """The model carries out every order that there is for a daemon on a node."""
    machine = simulate(SimulationRequest(synthetic=1, calm=True, mode="api"), 1).machine
    known = {CancelOrder, *machine.lives[0].effects._table}
    orders = {kind for kind in TYPES.values() if issubclass(kind, Order)}
    assert {kind for kind in orders if kind.__module__ != outage.__name__} == known


def test_switched_off() -> None:
    """With graceful shutdown off nobody is touched, and no episode is on record."""
    machine = Machine(SimulationPlan(Settings(), PODS, seed=1)).run()
    assert check_run(machine) == []
    assert not [seen for seen in machine.log.seen if seen.what in ("signal", "lock")]
    assert list(Simulated(1, machine, []).shutdown_records()) == []
