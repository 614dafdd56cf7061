"""Effects start behind their barrier, have exactly one outcome, and are cancelled only by an order."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events import decisions as d
from ebbtide.events.base import BARRIER_NS_MAX, NS_PER_SECOND, Order
from ebbtide.events.facts import ContainerExited, DurabilityLate, EffectPanicked, OrderEnded
from ebbtide.events.outage_events import SetTaint
from tests.actors.runner_parts import FakeEdge, FakeJournal, deliver, done, hook, rig, settle, signal


class Witness:
    """An effect that takes ``seconds``, and remembers how it went."""

    def __init__(self, seconds: float = 1, ending: Ending | None = None) -> None:
        self.seconds = seconds
        self.ending = ending or Ending()
        self.started: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, order: Order, outlet: Outlet) -> Ending:
        self.started.append(order.key)
        try:
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            self.cancelled.append(order.key)
            raise
        return self.ending


def cancel(target: str, *, timed_out: bool = False) -> d.CancelOrder:
    return d.CancelOrder(key=f"cancel {target}", target=target, timed_out=timed_out)


# --- barriers


@pytest.mark.parametrize(
    ("order", "starts_at"),
    [(d.TakeInventory(key="i"), ""), (hook(), "written"), (deliver(), "synced")],
    ids=["the listing waits for no disk", "its whole step is written", "it outlives the boot"],
)
async def test_an_effect_waits_for_its_barrier(
    autojump_clock: MockClock, order: Order, starts_at: str
) -> None:
    """Written is not enough for an effect that survives a power loss."""
    witness, journal = Witness(), FakeJournal(at_once=False)
    async with rig(FakeEdge({type(order): witness}), journal=journal) as it:
        it.effects.hold(order, 7)
        for what, seq in (("", 0), ("written", 6), ("written", 7), ("synced", 6), ("synced", 7)):
            journal.reach(what, seq)
            await settle()
            if (what, seq) == (starts_at, 7 if starts_at else 0):
                break
            assert witness.started == []
        assert witness.started == [order.key]


@pytest.mark.parametrize(("kind", "order"), [(d.RunHook, hook()), (d.DeliverStatuses, deliver())])
async def test_a_disk_that_hangs_holds_nobody(
    autojump_clock: MockClock, kind: type[Order], order: Order
) -> None:
    """After 20 ms the effect starts all the same, and that it was so is a fact."""
    witness = Witness()
    async with rig(FakeEdge({kind: witness}), journal=FakeJournal(at_once=False)) as it:
        it.effects.hold(order, 1)
        await trio.sleep(0.0199)
        assert witness.started == []
        await trio.sleep(0.001)
        assert witness.started == [order.key]
        (late,) = (fact for fact in it.facts() if isinstance(fact, DurabilityLate))
        assert (late.key, late.barrier) == (order.key, order.barrier)
        assert BARRIER_NS_MAX <= late.waited_ns < BARRIER_NS_MAX + 1_000_000


def taint(key: str = "OutageActor/taint//0") -> SetTaint:
    return SetTaint(
        key=key,
        node="n",
        node_uid="n1",
        boot_id="b",
        resource_version="1",
        effect="NoExecute",
        ready="Unknown",
    )


async def test_what_changes_the_cluster_waits_without_a_bound(autojump_clock: MockClock) -> None:
    """Another leader continues from the stored part: even an hour without storage releases no order."""
    witness, journal = Witness(), FakeJournal(at_once=False)
    async with rig(FakeEdge({SetTaint: witness}), journal=journal) as it:
        it.effects.hold(taint(), 1)
        await trio.sleep(3600)
        assert (witness.started, it.facts()) == ([], [])
        journal.reach("synced", 1)
        await settle()
        assert witness.started == [taint().key]


class LostJournal(FakeJournal):
    """Another leader wrote the next number: no more writes succeed."""

    async def wait_synced(self, seq: int) -> bool:
        return False


async def test_what_could_not_be_stored_does_not_begin(autojump_clock: MockClock) -> None:
    """Neither the waiting order nor a later one of the step starts."""
    witness = Witness()
    async with rig(FakeEdge({SetTaint: witness}), journal=LostJournal()) as it:
        it.effects.hold(taint("OutageActor/taint//0"), 1)
        it.effects.hold(taint("OutageActor/taint//1"), 1)
        await settle()
        assert witness.started == []
        assert [fact.result for fact in it.facts() if isinstance(fact, OrderEnded)] == ["cancelled"] * 2


async def test_orders_behind_a_hung_disk_wait_side_by_side(autojump_clock: MockClock) -> None:
    """The bound counts from the order, not from the end of the wait before it."""
    witness = Witness()
    async with rig(FakeEdge({d.RunHook: witness}), journal=FakeJournal(at_once=False)) as it:
        for seq in range(1, 6):
            it.effects.hold(hook(str(seq)), seq)
        await trio.sleep(0.021)
        assert witness.started == ["1", "2", "3", "4", "5"]


async def test_a_hung_sync_does_not_hold_what_is_only_written(autojump_clock: MockClock) -> None:
    """Each barrier has a queue of its own."""
    quick, slow, journal = Witness(), Witness(), FakeJournal(at_once=False)
    async with rig(FakeEdge({d.RunHook: quick, d.DeliverStatuses: slow}), journal=journal) as it:
        it.effects.hold(deliver(), 1)
        it.effects.hold(hook(), 1)
        journal.reach("written", 1)
        await settle()
        assert quick.started == ["h"]
        assert slow.started == []


class Started:
    """An effect that is done as soon as it starts: so the order of starting is seen."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def __call__(self, order: Order, outlet: Outlet) -> Ending:
        self.keys.append(order.key)
        return Ending()


async def test_an_actors_orders_keep_their_order(autojump_clock: MockClock) -> None:
    """A written-only order waits for its actor's earlier unsynced order."""
    started, journal = Started(), FakeJournal(at_once=False)
    release = d.ReleaseLock(key="LogindActor/release//0")
    arm, other = d.Arm(key="LogindActor/arm//1"), d.RunHook(key="h", uid="u", container="c", timeout_ns=1)
    async with rig(
        FakeEdge({d.ReleaseLock: started, d.Arm: started, d.RunHook: started}), journal=journal
    ) as it:
        it.effects.hold(release, 1)
        it.effects.hold(arm, 2)
        it.effects.hold(other, 2)
        journal.reach("written", 2)
        await settle()
        assert started.keys == ["h"]
        journal.reach("synced", 2)
        await settle()
        assert started.keys == ["h", release.key, arm.key]


async def test_an_order_passes_no_earlier_one_at_a_weaker_barrier(autojump_clock: MockClock) -> None:
    """Behind a hung disk both bounds end at once; the earlier order still starts first."""
    started = Started()
    arm, release = d.Arm(key="LogindActor/arm//0"), d.ReleaseLock(key="LogindActor/release//1")
    edge = FakeEdge({d.ReleaseLock: started, d.Arm: started})
    async with rig(edge, journal=FakeJournal(at_once=False)) as it:
        it.effects.hold(arm, 1)
        it.effects.hold(release, 1)
        await trio.sleep(0.021)
        assert started.keys == [arm.key, release.key]


async def test_a_cancel_overtakes_what_it_cancels(autojump_clock: MockClock) -> None:
    """An order of the same actor that waits to be synced ends without having begun."""
    witness, journal = Witness(), FakeJournal(at_once=False)
    release = d.ReleaseLock(key="LogindActor/release//0")
    stop = d.CancelOrder(key="LogindActor/cancel-release//1", target=release.key, waiting_only=True)
    async with rig(FakeEdge({d.ReleaseLock: witness}), journal=journal) as it:
        it.effects.hold(release, 1)
        it.effects.hold(stop, 2)
        journal.reach("written", 2)
        await settle()
        journal.reach("synced", 2)
        await settle()
        assert witness.started == []
        ended = [(fact.key, fact.result) for fact in it.facts() if isinstance(fact, OrderEnded)]
        assert ended == [(stop.key, "done"), (release.key, "cancelled")]


async def test_a_cancel_may_leave_alone_what_has_begun(autojump_clock: MockClock) -> None:
    """``waiting_only``: half a release is worse than a whole one."""
    witness = Witness()
    async with rig(FakeEdge({d.RunHook: witness})) as it:
        it.effects.hold(hook(), 1)
        await settle()
        it.effects.hold(d.CancelOrder(key="cancel", target="h", waiting_only=True), 2)
        await trio.sleep(2)
        assert witness.cancelled == []
        ended = [(fact.key, fact.result) for fact in it.facts() if isinstance(fact, OrderEnded)]
        assert ended == [("cancel", "done"), ("h", "done")]


async def test_effects_start_in_the_order_of_their_orders(autojump_clock: MockClock) -> None:
    """First ordered, first started; a step's orders start together."""
    started = Started()
    async with rig(FakeEdge({d.SendSignal: started})) as it:
        for at in range(20):
            it.effects.hold(signal(str(at)), at // 4)
        await settle()
        assert started.keys == [str(at) for at in range(20)]


async def test_effects_run_side_by_side(autojump_clock: MockClock) -> None:
    """An effect that never ends holds no other."""
    endless, quick = Witness(seconds=10**9), Witness(seconds=1)
    async with rig(FakeEdge({d.RunHook: endless, d.SendSignal: quick})) as it:
        it.effects.hold(hook(), 1)
        it.effects.hold(signal(), 1)
        await trio.sleep(2)
        assert it.outcomes() == [("s", "done")]


# --- outcomes


async def test_an_order_ends_with_what_its_effect_returns(autojump_clock: MockClock) -> None:
    """A plain function is done at once; of a coroutine come result, reason, exit code and time."""
    witness = Witness(3, Ending("failed", "exit code 4", 4))
    async with rig(FakeEdge({d.SendSignal: done, d.RunHook: witness})) as it:
        it.effects.hold(signal(), 1)
        it.effects.hold(hook(), 1)
        await trio.sleep(5)
        ended = OrderEnded(
            key="h", result="failed", reason="exit code 4", exit_code=4, elapsed_ns=3 * NS_PER_SECOND
        )
        assert it.facts() == [OrderEnded(key="s", result="done"), ended]


async def test_facts_of_an_effect_come_before_its_outcome(autojump_clock: MockClock) -> None:
    """An effect's facts precede its result."""

    async def effect(order: Order, outlet: Outlet) -> Ending:
        await outlet.put(ContainerExited(uid="u", container="c"))
        return Ending()

    async with rig(FakeEdge({d.RunHook: effect})) as it:
        it.effects.hold(hook(), 1)
        await settle()
        assert [type(fact) for fact in it.facts()] == [ContainerExited, OrderEnded]


def raises(order: Order, outlet: Outlet) -> Ending:
    raise ValueError("a bug")


async def raises_later(order: Order, outlet: Outlet) -> Ending:
    await trio.sleep(1)
    raise ValueError("a bug")


@pytest.mark.parametrize("effect", [raises, raises_later])
async def test_an_effect_that_raises_ends_failed(autojump_clock: MockClock, effect: Any) -> None:
    """Its bug is named in a fact of its own; the order has its one outcome; other effects go on."""
    witness = Witness(2)
    async with rig(FakeEdge({d.SendSignal: effect, d.RunHook: witness})) as it:
        it.effects.hold(signal(), 1)
        it.effects.hold(hook(), 1)
        await trio.sleep(3)
        panicked, ended, other = it.facts()
        assert isinstance(panicked, EffectPanicked)
        assert panicked.key == "s"
        # Without the error's text: it may quote an edge's input.
        assert re.fullmatch(rf"ValueError at {effect.__name__}, line \d+", panicked.error)
        assert isinstance(ended, OrderEnded)
        assert (ended.key, ended.result, ended.reason) == ("s", "failed", "ValueError")
        assert isinstance(other, OrderEnded)
        assert other.key == "h"


async def test_an_order_that_no_edge_carries_out_fails(autojump_clock: MockClock) -> None:
    """A missing edge is an outcome with its name, not silence."""
    async with rig(FakeEdge({})) as it:
        it.effects.hold(d.Arm(key="a"), 1)
        await settle()
        assert it.facts() == [OrderEnded(key="a", result="failed", reason="no edge carries out Arm")]


# --- cancelling


@pytest.mark.parametrize(("timed_out", "result"), [(False, "cancelled"), (True, "timed-out")])
async def test_cancelling_what_runs(autojump_clock: MockClock, timed_out: bool, result: str) -> None:
    """The effect is cancelled where it waits; the order ends once, as its canceller called it."""
    witness = Witness(60)
    async with rig(FakeEdge({d.RunHook: witness})) as it:
        it.effects.hold(hook(), 1)
        await trio.sleep(1)
        it.effects.hold(cancel("h", timed_out=timed_out), 2)
        await trio.sleep(100)
        assert witness.cancelled == ["h"]
        assert it.outcomes() == [("cancel h", "done"), ("h", result)]


async def test_cancelling_what_has_ended(autojump_clock: MockClock) -> None:
    """It keeps the outcome that it has."""
    async with rig(FakeEdge({d.RunHook: Witness(1)})) as it:
        it.effects.hold(hook(), 1)
        await trio.sleep(2)
        it.effects.hold(cancel("h"), 2)
        it.effects.hold(cancel("nobody"), 2)
        await settle()
        assert it.outcomes() == [("h", "done"), ("cancel h", "done"), ("cancel nobody", "done")]


async def test_an_effect_may_finish_what_cancelling_interrupts(autojump_clock: MockClock) -> None:
    """An effect that ends by itself when cancelled has the outcome that it returned, once."""

    async def effect(order: Order, outlet: Outlet) -> Ending:
        try:
            await trio.sleep(60)
        except trio.Cancelled:
            return Ending("failed", "half done")
        raise AssertionError

    async with rig(FakeEdge({d.RunHook: effect})) as it:
        it.effects.hold(hook(), 1)
        await settle()
        it.effects.hold(cancel("h"), 2)
        await settle()
        assert it.outcomes() == [("cancel h", "done"), ("h", "failed")]


async def test_an_effect_may_fail_while_it_is_cancelled(autojump_clock: MockClock) -> None:
    """Even during the cancel the bug goes only to the record; the runner survives."""

    async def effect(order: Order, outlet: Outlet) -> Ending:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(_fails_when_cancelled)
        raise AssertionError

    async with rig(FakeEdge({d.RunHook: effect, d.SendSignal: done})) as it:
        it.effects.hold(hook(), 1)
        await settle()
        it.effects.hold(cancel("h"), 2)
        await settle()
        it.effects.hold(signal(), 3)
        await settle()
        assert it.outcomes() == [("cancel h", "done"), ("h", "failed"), ("s", "done")]


async def _fails_when_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("a bug in the clean-up")


# --- detaching


async def test_the_daemons_end_gives_no_outcome(autojump_clock: MockClock) -> None:
    """Detaching is not cancelling: no outcome is made up for an effect that the daemon leaves behind."""
    witness = Witness(60)
    async with rig(FakeEdge({d.RunHook: witness})) as it:
        it.effects.hold(hook(), 1)
        await trio.sleep(1)
    assert witness.cancelled == ["h"]
    assert it.outcomes() == []


# --- after a restart


async def test_an_effect_that_lives_is_followed_to_its_end(autojump_clock: MockClock) -> None:
    """An adopted order ends as its effect ends, and can be cancelled like any other."""
    witness = Witness(5, Ending("done"))
    async with rig(FakeEdge({d.RunHook: done}, lives=witness)) as it:
        await it.effects.adopt([hook("a"), hook("b")], same_userspace=True)
        await trio.sleep(1)
        assert it.outcomes() == []
        it.effects.hold(cancel("b"), 1)
        await trio.sleep(10)
        assert it.outcomes() == [("cancel b", "done"), ("b", "cancelled"), ("a", "done")]


@pytest.mark.parametrize(("lives", "result"), [(None, "unknown"), (raises, "failed")])
async def test_an_effect_that_is_not_found(autojump_clock: MockClock, lives: Any, result: str) -> None:
    """Unknown, so that an actor decides, also if no edge knows the order; a search that raises is an
    ordinary bug.
    """
    async with rig(FakeEdge({d.RunHook: done}, lives=lives)) as it:
        await it.effects.adopt([hook(), d.Arm(key="a")], same_userspace=True)
        await settle()
        assert sorted(it.outcomes()) == [("a", "unknown"), ("h", result)]


async def test_another_boot_has_no_effects_of_the_last_one(autojump_clock: MockClock) -> None:
    """Effects that end with the boot are neither searched nor repeated; longer ones are searched."""
    witness = Witness(1)
    drop_in = d.WriteDropIn(key="w", seconds=30)
    async with rig(
        FakeEdge(dict.fromkeys((d.RunHook, d.DeliverStatuses, d.WriteDropIn), done), lives=witness)
    ) as it:
        await it.effects.adopt([hook(), deliver(), drop_in], same_userspace=False)
        await trio.sleep(2)
        assert witness.started == ["w"]
        assert it.outcomes() == [("h", "unknown"), ("d", "unknown"), ("w", "done")]


async def test_a_refused_order_ends_unknown_without_having_begun() -> None:
    """An earlier process gave it: it is not given again, and its actor gets its one outcome."""
    witness = Witness()
    async with rig(FakeEdge({d.RunHook: witness})) as it:
        it.effects.refuse(["h"])
        it.effects.hold(hook(), 1)
        it.effects.hold(hook("other"), 1)
        await settle()
        assert witness.started == ["other"]
        assert ("h", "unknown") in it.outcomes()
