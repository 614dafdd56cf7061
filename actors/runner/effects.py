"""Effects: started behind their barrier, followed to their one outcome, cancelled only by an order.

An order waits until its whole step is written (effects that die with the boot) or synced (effects that
outlive it), but never longer than `BARRIER_NS_MAX`: a disk that hangs holds nobody, and that it was so
is a fact (design, rule 5).

What may overtake what: one actor's orders pass in the order in which it gave them, so one that only has to
be written waits with an earlier one that has to be synced (else a `Disarm` would be undone by an older
order). Orders of different actors overtake each other from barrier to barrier. A `CancelOrder` waits for no
other order: it is there to overtake. Passing is all that is ordered; effects that take time run side by
side, and an actor that needs the end of one waits for its outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple, Protocol, get_args

import trio

from actors.interfaces import Clock, Edge, Effect, Ending
from actors.runner.inbox import Inbox
from events.base import BARRIER_NS_MAX, NS_PER_SECOND, Barrier, Order
from events.decisions import CancelOrder
from events.facts import DurabilityLate, EffectPanicked, OrderEnded


class Durable(Protocol):
    """What the effects need of the journal."""

    async def wait_written(self, seq: int) -> bool: ...

    async def wait_synced(self, seq: int) -> bool: ...


BARRIERS: tuple[Barrier, ...] = get_args(Barrier)


class Held(NamedTuple):
    """An order behind its barrier: ``seq`` is the end of its step."""

    order: Order
    seq: int
    since_ns: int


def _actor(order: Order) -> str:
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
        self._queues: dict[Barrier, deque[Held]] = {barrier: deque() for barrier in BARRIERS}
        self._arrived: dict[Barrier, trio.Event] = {barrier: trio.Event() for barrier in BARRIERS}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._verdicts: dict[str, Ending] = {}
        self._nursery: trio.Nursery | None = None
        self._running = trio.Event()

    # --- from order to effect -----------------------------------------------------------------

    def hold(self, order: Order, seq: int) -> None:
        """Keep an order until its step, which ends at ``seq``, is written or synced."""
        barrier = self._barrier(order)
        self._queues[barrier].append(Held(order, seq, self._clock.mono_ns()))
        self._arrived[barrier].set()

    def _barrier(self, order: Order) -> Barrier:
        """Its own, or the later one at which an earlier order of the same actor still waits."""
        own = BARRIERS.index(order.barrier)
        if isinstance(order, CancelOrder):
            return order.barrier
        later = (each for each in reversed(BARRIERS[own + 1 :]) if self._waits_at(each, _actor(order)))
        return next(later, order.barrier)

    def _waits_at(self, barrier: Barrier, actor: str) -> bool:
        return any(_actor(held.order) == actor for held in self._queues[barrier])

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
            await self._pass(barrier, held)
            self._start_through(barrier, held.seq)

    async def _pass(self, barrier: Barrier, held: Held) -> None:
        """Wait for the barrier, at most its bound; a late one is on record once for what it let through."""
        if barrier == "none":
            return
        wait = self._journal.wait_written if barrier == "written" else self._journal.wait_synced
        waited_ns = self._clock.mono_ns() - held.since_ns
        with trio.move_on_after(max(0, BARRIER_NS_MAX - waited_ns) / NS_PER_SECOND) as scope:
            await wait(held.seq)
        if scope.cancelled_caught:
            late_ns = self._clock.mono_ns() - held.since_ns
            self._inbox.push(DurabilityLate(key=held.order.key, barrier=barrier, waited_ns=late_ns))

    def _start_through(self, barrier: Barrier, seq: int) -> None:
        """What passes a barrier has passed those before it, and what waits there was ordered no later."""
        for each in BARRIERS[: BARRIERS.index(barrier) + 1]:
            queue = self._queues[each]
            while queue and queue[0].seq <= seq:
                self._start(queue.popleft().order)

    # --- from effect to outcome ---------------------------------------------------------------

    def _start(self, order: Order) -> None:
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

    def _spawn(self, order: Order, work: Awaitable[Ending], since_ns: int) -> None:
        assert self._nursery is not None, "effects start only while run() is running"
        self._scopes[order.key] = trio.CancelScope()
        self._nursery.start_soon(self._follow, order, work, since_ns, name=order.key)

    async def _follow(self, order: Order, work: Awaitable[Ending], since_ns: int) -> None:
        """Exactly one outcome, whatever happens; only the daemon's own end leaves none."""
        ending: Ending | None = None
        try:
            # The scope takes its own cancellation out of a group of errors; what is left is the effect's bug.
            with self._scopes[order.key]:
                ending = await work
        except Exception as error:
            self._panic(order, error, since_ns)
            return
        finally:
            self._scopes.pop(order.key, None)
        self._end(order, ending or self._verdicts.pop(order.key, Ending("cancelled")), since_ns)

    def _cancel(self, order: CancelOrder) -> None:
        """An order that has not begun ends without having begun; one that has ended is left alone."""
        verdict = Ending("timed-out" if order.timed_out else "cancelled")
        waiting = any(held.order.key == order.target for queue in self._queues.values() for held in queue)
        scope = None if order.waiting_only else self._scopes.get(order.target)
        if scope is not None or waiting:
            self._verdicts[order.target] = verdict
        if scope is not None:
            scope.cancel()
        self._end(order, Ending(), self._clock.mono_ns())

    def _panic(self, order: Order, error: Exception, since_ns: int) -> None:
        self._inbox.push(EffectPanicked(key=order.key, error=f"{type(error).__name__}: {error}"))
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
            meant = same_userspace or (order.barrier == "synced" and not order.this_boot)
            if edge is None or not meant:
                self._end(order, Ending("unknown"), self._clock.mono_ns())
            else:
                self._spawn(order, self._readopt(edge, order), self._clock.mono_ns())
        await trio.lowlevel.checkpoint()

    async def _readopt(self, edge: Edge, order: Order) -> Ending:
        ending = await edge.adopt(order, self._inbox)
        return ending or Ending("unknown", "its outcome was lost with the daemon")
