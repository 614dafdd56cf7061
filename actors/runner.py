"""The system on Trio: one inbox, effects behind their barriers, one sequencer. It makes no decision.

The sequencer takes facts from the inbox, stamps them, runs the step, writes its records and starts its
orders. The order of admission may be accidental, because it is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, get_args

import trio

from ebbtide.actors.hook import LOST
from ebbtide.actors.interfaces import Clock, Edge, Effect, Ending, error_text
from ebbtide.actors.system import System
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, URGENT, Barrier, Fact, Order, Record, Stamp
from ebbtide.events.decisions import CancelOrder, Leave
from ebbtide.events.facts import ClockStepped, DurabilityLate, EffectPanicked, OrderEnded, Tick

# Logind and people have their own lane, so they never wait behind an inventory. A full lane makes its edges
# wait. Outcomes have no limit: there is at most one for each order.

#: Groups in one lane before its edges wait. A flood of forged signals fills only its lane.
QUEUE_GROUPS_MAX = 1024

FactGroup = tuple[Fact, ...]


class Inbox:
    """A group is admitted as a whole, in its order."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[FactGroup], ...] = (deque(), deque(), deque())
        self._arrived = trio.Event()
        self._room = trio.Event()

    async def put(self, *facts: Fact) -> None:
        """Waits for room in the lane of the first fact."""
        lane = self._lanes[facts[0].lane]
        while len(lane) >= QUEUE_GROUPS_MAX:
            await self._room.wait()
        self.push(*facts)
        await trio.lowlevel.checkpoint()

    def push(self, *facts: Fact) -> None:
        """Never waits: for outcomes, and the sequencer's own facts."""
        self._lanes[facts[0].lane].append(facts)
        self._arrived.set()

    def take(self, *, urgent_only: bool = False) -> FactGroup | None:
        """``urgent_only``: from the first lane."""
        for lane in self._lanes[: URGENT + 1] if urgent_only else self._lanes:
            if lane:
                if len(lane) == QUEUE_GROUPS_MAX:
                    self._room.set()
                    self._room = trio.Event()
                return lane.popleft()
        return None

    def wake(self) -> None:
        self._arrived.set()

    def rearm(self) -> trio.Event:
        """The event that the next arrival sets. Call it before the last look at the lanes."""
        if self._arrived.is_set():
            self._arrived = trio.Event()
        return self._arrived


# An order waits until its step is written (effects that die with the boot) or synced (effects that outlive
# it), at most `barrier_seconds`: a hung disk must hold no pod.
#
# One actor's orders pass the barriers in order: otherwise an older order could undo a `Disarm`. Orders of
# different actors may overtake each other, and a `CancelOrder` overtakes every order. Effects run side by
# side.


class Durable(Protocol):
    """The journal, for the effects."""

    async def wait_written(self, seq: int) -> bool: ...

    async def wait_synced(self, seq: int) -> bool: ...


BARRIERS: tuple[Barrier, ...] = get_args(Barrier)


class HeldOrder(NamedTuple):
    """Its step ends at ``seq``."""

    order: Order
    seq: int
    since_ns: int


def _actor_of(order: Order) -> str:
    return order.key.partition("/")[0]


class Effects:
    def __init__(self, edges: Iterable[Edge], inbox: Inbox, journal: Durable, clock: Clock) -> None:
        self.edges = tuple(edges)
        self._table: Mapping[type[Order], Effect] = {
            order: effect for edge in self.edges for order, effect in edge.effects.items()
        }
        self._owners = {order: edge for edge in self.edges for order in edge.effects}
        self._inbox = inbox
        self._journal = journal
        self._clock = clock
        self._queues: dict[Barrier, deque[HeldOrder]] = {barrier: deque() for barrier in BARRIERS}
        self._arrived: dict[Barrier, trio.Event] = {barrier: trio.Event() for barrier in BARRIERS}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._verdicts: dict[str, Ending] = {}
        self._nursery: trio.Nursery | None = None
        self._running = trio.Event()

    # --- from order to effect

    def hold(self, order: Order, seq: int) -> None:
        """``seq`` is the end of its step."""
        barrier, actor = order.barrier, _actor_of(order)
        # At a later barrier if an earlier order of the same actor still waits there.
        for later in () if isinstance(order, CancelOrder) else BARRIERS[BARRIERS.index(barrier) + 1 :]:
            if any(_actor_of(held.order) == actor for held in self._queues[later]):
                barrier = later
        self._queues[barrier].append(HeldOrder(order, seq, self._clock.mono_ns()))
        self._arrived[barrier].set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._running.set()
            for barrier in BARRIERS:
                nursery.start_soon(self._pump, barrier)

    async def _pump(self, barrier: Barrier) -> None:
        queue = self._queues[barrier]
        while True:
            while not queue:
                self._arrived[barrier] = trio.Event()
                await self._arrived[barrier].wait()
            held = queue[0]
            stored = await self._pass(barrier, held)
            # Orders at the earlier barriers are older: start them first.
            for passed in BARRIERS[: BARRIERS.index(barrier) + 1]:
                while self._queues[passed] and self._queues[passed][0].seq <= held.seq:
                    order = self._queues[passed].popleft().order
                    if not stored and order.barrier == "confirmed":
                        self._verdicts[order.key] = Ending("cancelled", "its record could not be stored")
                    self._start(order)

    async def _pass(self, barrier: Barrier, held: HeldOrder) -> bool:
        """False: no confirmation, the journal is lost."""
        if barrier == "none":
            return True
        if barrier == "confirmed":
            # No bound: another leader must be able to read the order first.
            return await self._journal.wait_synced(held.seq)
        wait = self._journal.wait_written if barrier == "written" else self._journal.wait_synced
        # From the order on: two hangs in a row must not cost twice the bound.
        waited_seconds = (self._clock.mono_ns() - held.since_ns) / NS_PER_SECOND
        with trio.move_on_after(max(0, bounds.now.barrier_seconds - waited_seconds)) as scope:
            await wait(held.seq)
        if scope.cancelled_caught:
            late_ns = self._clock.mono_ns() - held.since_ns
            self._inbox.push(DurabilityLate(key=held.order.key, barrier=barrier, waited_ns=late_ns))
        return True

    # --- from effect to outcome

    def _start(self, order: Order) -> None:
        # Cancelled at its barrier, or begun by an earlier process.
        if order.key in self._verdicts:
            self._end(order, self._verdicts.pop(order.key), self._clock.mono_ns())
            return
        if isinstance(order, CancelOrder):
            self._cancel(order)
            return
        since_ns = self._clock.mono_ns()
        effect = self._table.get(type(order))
        if effect is None:
            self._end(order, Ending("failed", f"no edge carries out {type(order).__name__}"), since_ns)
            return
        try:
            ending = effect(order, self._inbox)
        except Exception as error:
            self._panic(order, error, since_ns)
            return
        if isinstance(ending, Ending):
            self._end(order, ending, since_ns)
        else:
            self._spawn(order, ending, since_ns)

    def _spawn(self, order: Order, work: Awaitable[Ending | None], since_ns: int) -> None:
        assert self._nursery is not None, "effects start only while run() is running"
        self._scopes[order.key] = trio.CancelScope()
        self._nursery.start_soon(self._follow, order, work, since_ns, name=order.key)

    async def _follow(self, order: Order, work: Awaitable[Ending | None], since_ns: int) -> None:
        """One outcome, unless the daemon ends. ``work`` returns None for an adopted effect that is gone."""
        ending: Ending | None = None
        try:
            # The scope removes its own cancellation; another error is a defect.
            with self._scopes[order.key]:
                ending = await work or Ending("unknown", LOST)
        except Exception as error:
            self._panic(order, error, since_ns)
            return
        finally:
            self._scopes.pop(order.key, None)
        self._end(order, ending or self._verdicts.pop(order.key, Ending("cancelled")), since_ns)

    def _cancel(self, order: CancelOrder) -> None:
        """A waiting order never begins; an order that has ended keeps its outcome."""
        verdict = Ending("timed-out" if order.timed_out else "cancelled")
        # It keeps its place in the queue, and ends in its turn.
        waiting = any(held.order.key == order.target for queue in self._queues.values() for held in queue)
        scope = None if order.waiting_only else self._scopes.get(order.target)
        if scope is not None or waiting:
            self._verdicts[order.target] = verdict
        if scope is not None:
            scope.cancel()
        self._end(order, Ending(), self._clock.mono_ns())

    def _panic(self, order: Order, error: Exception, since_ns: int) -> None:
        # Before the order's outcome.
        self._inbox.push(EffectPanicked(key=order.key, error=error_text(error)))
        self._end(order, Ending("failed", type(error).__name__), since_ns)

    def _end(self, order: Order, ending: Ending, since_ns: int) -> None:
        self._verdicts.pop(order.key, None)
        self._inbox.push(
            OrderEnded(
                key=order.key,
                result=ending.result,
                reason=ending.reason,
                elapsed_ns=self._clock.mono_ns() - since_ns,
                exit_code=ending.exit_code,
            )
        )

    # --- after a restart

    def refuse(self, keys: Iterable[str]) -> None:
        """For orders that the state does not have: an earlier process began them."""
        self._verdicts |= {key: Ending("unknown", "begun by an earlier process") for key in keys}

    async def adopt(self, orders: Iterable[Order], *, same_userspace: bool) -> None:
        """Follows an open order whose effect lives; the others end unknown. In another boot only effects that
        outlive a boot go on: a static pod keeps its UID, and must not be stopped.
        """
        await self._running.wait()
        for order in orders:
            edge = self._owners.get(type(order))
            # Statuses and Node marks are still valid in another boot.
            meant = same_userspace or (order.barrier == "synced" and not order.this_boot)
            if edge is None or not meant:
                self._end(order, Ending("unknown"), self._clock.mono_ns())
            else:
                self._spawn(order, edge.adopt(order, self._inbox), self._clock.mono_ns())
        await trio.lowlevel.checkpoint()


#: A wall clock that moves by more than this against the monotonic one was stepped.
CLOCK_STEP_NS = NS_PER_SECOND

#: Steps between two checkpoints of Trio: a full inbox must not starve the effects.
STEPS_PER_TURN = 16


class JournalSink(Durable, Protocol):
    """The journal, for the sequencer."""

    def append(self, records: Sequence[Record]) -> object:
        """Never waits."""


Observer = Callable[[Sequence[Record]], None]


class Sequencer:
    """One per process. ``run`` returns the reason once an actor has decided to `Leave`."""

    def __init__(
        self, system: System, inbox: Inbox, journal: JournalSink, effects: Effects, clock: Clock
    ) -> None:
        self.system = system
        self._inbox = inbox
        self._journal = journal
        self._effects = effects
        self._clock = clock
        self._last_mono_ns = 0
        self._offset_ns: int | None = None
        self._leave = ""
        self._turned = trio.Event()
        self.observers: list[Observer] = []

    async def turned(self) -> None:
        """Waits for a turn of `run`: a sign of life of the sequencer, not only of the event loop."""
        self._turned = trio.Event()
        self._inbox.wake()
        await self._turned.wait()

    async def run(self) -> str:
        while not self._leave:
            self._turned.set()
            # Several at once: after each checkpoint of Trio effects would delay the next exit.
            for _ in range(STEPS_PER_TURN):
                if not self._turn():
                    break
            else:
                await trio.lowlevel.checkpoint()
                continue
            await self._idle()
        return self._leave

    def _turn(self) -> bool:
        """Urgent facts come first, then ticks, then the rest."""
        group = self._inbox.take(urgent_only=True)
        if group is None:
            deadline_ns = self.system.next_deadline_ns()
            # Before other arrivals: a flood of exits must not delay a SIGKILL.
            due = deadline_ns is not None and deadline_ns <= self._mono_ns()
            group = (Tick(),) if due else self._inbox.take()
        for fact in group or ():
            self.admit(fact)
        return group is not None and not self._leave

    async def _idle(self) -> None:
        # Rearm first: an arrival between the last turn and the wait must end the wait.
        arrived = self._inbox.rearm()
        if self._leave or self._turn():
            return
        deadline_ns = self.system.next_deadline_ns()
        if deadline_ns is None:
            await arrived.wait()
            return
        with trio.move_on_after(max(0, deadline_ns - self._clock.mono_ns()) / NS_PER_SECOND):
            await arrived.wait()

    def admit(self, fact: Fact) -> None:
        stamp = Stamp(self._mono_ns(), self._clock.wall_ns())
        offset_ns = stamp.wall_ns - stamp.mono_ns
        before_ns, self._offset_ns = self._offset_ns, offset_ns
        # With the same stamp, so that a reader shows the fact at its new wall time.
        if before_ns is not None and abs(offset_ns - before_ns) > CLOCK_STEP_NS:
            self._step(ClockStepped(delta_ns=offset_ns - before_ns), stamp)
        self._step(fact, stamp)

    def _step(self, fact: Fact, stamp: Stamp) -> None:
        records = self.system.step(fact, stamp)
        # First: the next process would repeat an effect without a record, or end it unknown.
        self._journal.append(records)
        for record in records:
            if isinstance(record.event, Order):
                self._effects.hold(record.event, records[-1].seq)
            elif isinstance(record.event, Leave):
                self._leave = record.event.reason
        for observe in self.observers:
            observe(records)

    def _mono_ns(self) -> int:
        self._last_mono_ns = max(self._last_mono_ns, self._clock.mono_ns())
        return self._last_mono_ns
