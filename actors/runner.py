"""The system on Trio: one inbox, effects behind their barriers, one sequencer. Nothing is decided here.

The sequencer takes facts from the inbox, stamps them, runs the step, writes it down and hands its orders
on. The order of admission may be as accidental as it likes, because it is recorded; everything after it is
a function. This is the only place that reads the clock for the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, get_args

import trio

from ebbtide.actors.container import LOST
from ebbtide.actors.interfaces import Clock, Edge, Effect, Ending, error_text
from ebbtide.actors.system import FACT_PRIORITIES, REST, URGENT, System
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Barrier, Fact, Order, Record, Stamp
from ebbtide.events.decisions import CancelOrder, Leave
from ebbtide.events.facts import ClockStepped, DurabilityLate, EffectPanicked, OrderEnded, Tick

# The one inbox: bounded, with lanes, emptied by one sequencer.
#
# A lane that is full makes its edge wait, which is the back-pressure: logind and people never wait behind an
# inventory. Outcomes are not counted against a limit, because there is at most one for each order.

#: Waiting groups in one lane before its edges wait. A flood of forged signals fills its lane and no more.
QUEUE_GROUPS_MAX = 1024

FactGroup = tuple[Fact, ...]


class Inbox:
    """Groups of facts; a group is admitted as a whole, in its own order."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[FactGroup], ...] = (deque(), deque(), deque())
        self._arrived = trio.Event()
        self._room = trio.Event()

    async def put(self, *facts: Fact) -> None:
        """Wait for room in the lane of the first fact, then leave the group there."""
        # A group has one lane, that of its first fact: what was read together (the state, then the files)
        # must not be taken apart.
        lane = self._lanes[FACT_PRIORITIES.get(type(facts[0]), REST)]
        while len(lane) >= QUEUE_GROUPS_MAX:
            await self._room.wait()
        self.push(*facts)
        await trio.lowlevel.checkpoint()

    def push(self, *facts: Fact) -> None:
        """Leave a group without waiting: outcomes, and what the sequencer itself observed."""
        self._lanes[FACT_PRIORITIES.get(type(facts[0]), REST)].append(facts)
        self._arrived.set()

    def take(self, *, urgent_only: bool = False) -> FactGroup | None:
        """The next group, or None. ``urgent_only``: something else comes before the other lanes."""
        for lane in self._lanes[: URGENT + 1] if urgent_only else self._lanes:
            if lane:
                if len(lane) == QUEUE_GROUPS_MAX:
                    self._room.set()
                    self._room = trio.Event()
                return lane.popleft()
        return None

    def wake(self) -> None:
        """Whoever empties the lanes looks at them once more, though nothing has arrived."""
        self._arrived.set()

    def rearm(self) -> trio.Event:
        """The event that the next arrival sets; take it before finding the lanes empty."""
        if self._arrived.is_set():
            self._arrived = trio.Event()
        return self._arrived


# Effects: started behind their barrier, followed to their one outcome, cancelled only by an order.
#
# An order waits until its whole step is written (effects that die with the boot) or synced (effects that
# outlive it), but never longer than `barrier_seconds`: a disk that hangs holds nobody, and that it was so
# is a fact.
#
# What may overtake what: one actor's orders pass in the order in which it gave them, so one that only has to
# be written waits with an earlier one that has to be synced (else a `Disarm` would be undone by an older
# order). Orders of different actors overtake each other from barrier to barrier. A `CancelOrder` waits for no
# other order: it is there to overtake. Passing is all that is ordered; effects that take time run side by
# side, and an actor that needs the end of one waits for its outcome.


class Durable(Protocol):
    """What the effects need of the journal."""

    async def wait_written(self, seq: int) -> bool: ...

    async def wait_synced(self, seq: int) -> bool: ...


BARRIERS: tuple[Barrier, ...] = get_args(Barrier)


class HeldOrder(NamedTuple):
    """An order behind its barrier: ``seq`` is the end of its step."""

    order: Order
    seq: int
    since_ns: int


def _actor_of(order: Order) -> str:
    return order.key.partition("/")[0]


class Effects:
    """All effects under way. ``scopes`` has a cancel scope for each that takes time."""

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

    # --- from order to effect -----------------------------------------------------------------

    def hold(self, order: Order, seq: int) -> None:
        """Keep an order until its step, which ends at ``seq``, is written or synced."""
        barrier, actor = order.barrier, _actor_of(order)
        # At its own barrier, or at a later one where an earlier order of the same actor still waits.
        for later in () if isinstance(order, CancelOrder) else BARRIERS[BARRIERS.index(barrier) + 1 :]:
            if any(_actor_of(held.order) == actor for held in self._queues[later]):
                barrier = later
        self._queues[barrier].append(HeldOrder(order, seq, self._clock.mono_ns()))
        self._arrived[barrier].set()

    async def run(self) -> None:
        """Let orders through their barriers until cancelled."""
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
            # What has passed this barrier has passed those before it, and what waits at them for the same
            # step or an earlier one was ordered no later: started first, so that one actor's orders keep
            # their order.
            for passed in BARRIERS[: BARRIERS.index(barrier) + 1]:
                while self._queues[passed] and self._queues[passed][0].seq <= held.seq:
                    order = self._queues[passed].popleft().order
                    if not stored and order.barrier == "confirmed":
                        self._verdicts[order.key] = Ending("cancelled", "its record could not be stored")
                    self._start(order)

    async def _pass(self, barrier: Barrier, held: HeldOrder) -> bool:
        """Wait for the barrier, at most its bound; a late one is on record once for what it let through.

        False: it was to be confirmed, and the journal is lost.
        """
        if barrier == "none":
            return True
        if barrier == "confirmed":
            # No bound: what another leader cannot read must not take place.
            return await self._journal.wait_synced(held.seq)
        wait = self._journal.wait_written if barrier == "written" else self._journal.wait_synced
        # Counted from the order and not from here: what waited behind another's hang has waited already, and
        # two hangs in a row must not cost twice the bound.
        waited_seconds = (self._clock.mono_ns() - held.since_ns) / NS_PER_SECOND
        with trio.move_on_after(max(0, bounds.now.barrier_seconds - waited_seconds)) as scope:
            await wait(held.seq)
        if scope.cancelled_caught:
            late_ns = self._clock.mono_ns() - held.since_ns
            self._inbox.push(DurabilityLate(key=held.order.key, barrier=barrier, waited_ns=late_ns))
        return True

    # --- from effect to outcome ---------------------------------------------------------------

    def _start(self, order: Order) -> None:
        # Cancelled while it waited at its barrier, or begun by an earlier process: it never begins, and its
        # one outcome is that.
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
        """Exactly one outcome, whatever happens; only the daemon's own end leaves none.

        ``work`` gives None where an adopted effect has left nothing to follow.
        """
        ending: Ending | None = None
        try:
            # The scope takes its own cancellation out of a group of errors; what is left is the effect's bug.
            with self._scopes[order.key]:
                ending = await work or Ending("unknown", LOST)
        except Exception as error:
            self._panic(order, error, since_ns)
            return
        finally:
            self._scopes.pop(order.key, None)
        self._end(order, ending or self._verdicts.pop(order.key, Ending("cancelled")), since_ns)

    def _cancel(self, order: CancelOrder) -> None:
        """An order that has not begun ends without having begun; one that has ended is left alone."""
        verdict = Ending("timed-out" if order.timed_out else "cancelled")
        # One that waits stays in its queue, because those behind it must not overtake; it ends when its turn
        # comes.
        waiting = any(held.order.key == order.target for queue in self._queues.values() for held in queue)
        scope = None if order.waiting_only else self._scopes.get(order.target)
        if scope is not None or waiting:
            self._verdicts[order.target] = verdict
        if scope is not None:
            scope.cancel()
        self._end(order, Ending(), self._clock.mono_ns())

    def _panic(self, order: Order, error: Exception, since_ns: int) -> None:
        # First the bug, then the outcome: whoever reads the record of a failed order finds above it why.
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

    # --- after a restart ----------------------------------------------------------------------

    def refuse(self, keys: Iterable[str]) -> None:
        """Orders that an earlier process gave already, though the state knows nothing of it: never again."""
        self._verdicts |= {key: Ending("unknown", "begun by an earlier process") for key in keys}

    async def adopt(self, orders: Iterable[Order], *, same_userspace: bool) -> None:
        """Every order that was open gets its outcome: followed if its effect lives, else unknown.

        In another boot only effects that outlive a boot are still meant: a pod of this one may have the UID
        of the pod that was to be stopped.
        """
        await self._running.wait()
        for order in orders:
            edge = self._owners.get(type(order))
            # A status or a Node that is to be put right is still meant in another boot; a signal never is.
            meant = same_userspace or (order.barrier == "synced" and not order.this_boot)
            if edge is None or not meant:
                self._end(order, Ending("unknown"), self._clock.mono_ns())
            else:
                self._spawn(order, edge.adopt(order, self._inbox), self._clock.mono_ns())
        await trio.lowlevel.checkpoint()


#: A wall clock that moved by more than this against the monotonic one was stepped, not slewed.
CLOCK_STEP_NS = NS_PER_SECOND

#: Steps between two chances for other tasks, so that a full inbox starves no effect.
STEPS_PER_TURN = 16


class JournalSink(Durable, Protocol):
    """What the sequencer needs of the journal."""

    def append(self, records: Sequence[Record]) -> object:
        """Queue whole steps; never waits."""


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
        """Until `run` has come round: not only the event loop lives, but what admits facts in it."""
        self._turned = trio.Event()
        self._inbox.wake()
        await self._turned.wait()

    async def run(self) -> str:
        while not self._leave:
            self._turned.set()
            # Not one by one: with a turn of the loop after each, a hundred exits would take as long as their
            # effects let them.
            for _ in range(STEPS_PER_TURN):
                if not self._turn():
                    break
            else:
                await trio.lowlevel.checkpoint()
                continue
            await self._idle()
        return self._leave

    def _turn(self) -> bool:
        """Admit one group, or one `Tick`. Urgent facts come first, then ticks, then the rest."""
        group = self._inbox.take(urgent_only=True)
        if group is None:
            deadline_ns = self.system.next_deadline_ns()
            # A deadline goes before what merely arrived, or a flood of exits would put off a SIGKILL.
            due = deadline_ns is not None and deadline_ns <= self._mono_ns()
            group = (Tick(),) if due else self._inbox.take()
        for fact in group or ():
            self.admit(fact)
        return group is not None and not self._leave

    async def _idle(self) -> None:
        """Sleep until something arrives or the earliest deadline comes."""
        # In this order: what arrives between the last turn and the wait would otherwise wake nobody.
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
        """One step: stamped, run to quiescence, written, its orders held behind their barriers."""
        stamp = Stamp(self._mono_ns(), self._clock.wall_ns())
        offset_ns = stamp.wall_ns - stamp.mono_ns
        before_ns, self._offset_ns = self._offset_ns, offset_ns
        # First, and with the same stamp: whoever reads on from there shows the fact at its new wall time.
        if before_ns is not None and abs(offset_ns - before_ns) > CLOCK_STEP_NS:
            self._step(ClockStepped(delta_ns=offset_ns - before_ns), stamp)
        self._step(fact, stamp)

    def _step(self, fact: Fact, stamp: Stamp) -> None:
        records = self.system.step(fact, stamp)
        # Queued before anything else sees the step: an effect that ran ahead of its record would be repeated
        # by the next process, or never be known.
        self._journal.append(records)
        for record in records:
            if isinstance(record.event, Order):
                self._effects.hold(record.event, records[-1].seq)
            elif isinstance(record.event, Leave):
                self._leave = record.event.reason
        for observe in self.observers:
            observe(records)

    def _mono_ns(self) -> int:
        """Never decreasing, whatever the clock does."""
        self._last_mono_ns = max(self._last_mono_ns, self._clock.mono_ns())
        return self._last_mono_ns
