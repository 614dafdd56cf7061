"""Each fault alone: its effect on the node, and the daemon's reaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions
from ebbtide.events import outage_events as outage
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, TYPES, Event, Order
from ebbtide.events.facts import BusLost, OrderEnded
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import Container, Hook, HookKind, Period, Pod, Settings
from ebbtide.replay.sim.scenario import ContainerPlan, Faults, PodPlan, SimulationPlan
from ebbtide.replay.sim.simulate import Machine, Simulated, SimulationRequest, check_run, simulate
from ebbtide.replay.time_spent import critical_chain

EventT = TypeVar("EventT", bound=Event)

SETTINGS = Settings(
    by_pod_priority=(Period(priority=0, seconds=10), Period(priority=1000, seconds=5)), reserve_seconds=5
)
CALM = ContainerPlan(stop_ns=300 * MS)


def pod(name: str, manner: ContainerPlan = CALM, hook: HookKind | None = None, priority: int = 0) -> PodPlan:
    spec = Container(name="app", hook=Hook(kind=hook, sleep_seconds=5) if hook else None)
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
    """A hand-written plan whose run held every invariant."""

    def __init__(
        self, pods: Sequence[PodPlan] = PODS, settings: Settings = SETTINGS, seed: int = 1, **faults: Any
    ) -> None:
        self.machine = Machine(SimulationPlan(settings, tuple(pods), Faults(**faults), seed=seed)).run()
        assert check_run(self.machine) == []
        self.account: ShutdownRecord = next(iter(Simulated(1, self.machine, []).shutdown_records()))
        self.fates = {each.name: each.outcome for each in self.account.pods}

    def events(self, kind: type[EventT]) -> list[EventT]:
        return [each.event for each in self.machine.journal.records if isinstance(each.event, kind)]


#: A process of the node, and a container that only the runtime can signal.
NEAR, FAR = pod("near", ContainerPlan(stop_ns=4000 * MS)), pod("far-8", ContainerPlan(stop_ns=4000 * MS))
EARLY = (pod("early")._replace(appears_ns=-5 * NS_PER_SECOND),)
DEAF = (pod("deaf", ContainerPlan(stop_ns=None)),)
HOOKED = (pod("hooked", hook="sleep"),)
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
        # The grace is over before the runtime sends the stop signal.
        (HOOKED, {"runtime_takes_ns": 6 * NS_PER_SECOND}, "complete", "killed"),
        (HOOKED, {"runtime_takes_ns": 12 * NS_PER_SECOND}, "complete", "killed"),
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
    """Each fault's effect on the shutdown and on each pod, in order."""
    run = Run(pods, **faults)
    assert run.account.outcome == outcome
    assert run.fates == dict(zip((each.pod.name for each in pods), fates.split(), strict=True))


def test_each_happens_to_the_node() -> None:
    """A late grant keeps logind's timer, a cancel rearms, a lost bus reconnects."""
    assert (
        Run(late_grant_ns=12 * NS_PER_SECOND).events(decisions.ShutdownBegan)[0].grant_ns == 5 * NS_PER_SECOND
    )
    cancelled = Run(cancel_after_ns=2 * NS_PER_SECOND).machine.boots
    assert len(cancelled) == 1
    assert cancelled[0].node.logind.holders
    assert cancelled[0].node.api.shown_ready
    lost = Run(bus_lost_after_ns=NS_PER_SECOND)
    assert (len(lost.events(BusLost)), len(lost.events(decisions.Armed))) == (1, 3)
    twice = Run(second_signal_after_ns=2 * NS_PER_SECOND)
    assert (len(twice.events(decisions.ShutdownBegan)), len(twice.events(decisions.DeadlineMoved))) == (1, 1)
    cut = Run(power_cut_after_ns=2 * NS_PER_SECOND)
    assert cut.events(decisions.Resumed)[-1].previous == "cut short at wave 0"
    assert "ignores SIGTERM" in Run(DEAF).events(decisions.PodEnded)[0].reason


@pytest.mark.parametrize(("api", "result"), [("works", "done"), ("hangs", "timed-out")])
def test_the_trace_goes_out(api: str, result: str) -> None:
    """Beside the statuses, within its time; its share of the total is a stage."""
    run = Run(settings=replace(SETTINGS, trace_flush_ns=NS_PER_SECOND), mode="cri", kind="reboot", api=api)
    (order,) = run.events(decisions.FlushTraces)
    assert [each.result for each in run.events(OrderEnded) if each.key == order.key] == [result]
    assert "traces" in [each.what for each in critical_chain(run.account).segments]


@pytest.mark.parametrize("kind", ["poweroff", "soft-reboot"])
def test_kind(kind: str) -> None:
    """The record has the kind; a soft reboot keeps boot ID and clock."""
    run = Run(kind=kind)
    assert run.account.kind == kind
    first, second = (boot.node for boot in run.machine.boots)
    assert (first.boot_id == second.boot_id) == (kind == "soft-reboot")
    assert first.userspace_id != second.userspace_id


def test_every_order_has_somebody() -> None:
    """The model executes every order of a daemon on a node."""
    machine = simulate(SimulationRequest(synthetic=1, calm=True, mode="api"), 1).machine
    known = {decisions.CancelOrder, *machine.lives[0].effects._table}
    orders = {kind for kind in TYPES.values() if issubclass(kind, Order)}
    assert {kind for kind in orders if kind.__module__ != outage.__name__} == known
