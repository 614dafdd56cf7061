"""The loop in virtual time: the sequencer (`actors.runner`) without the waiting.

An `Agenda` holds future facts and moves of the world. The `Loop` takes the next entry, or a `Tick` if the
actors' earliest deadline comes first, steps the `System` with it, and gives the new records to a `World`,
which puts the outcomes of their orders on the agenda: ``simulate`` models the edges (`replay.sim.edges`),
``what-if`` answers from a record (`replay.whatif.world`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.hook import LOST
from ebbtide.actors.system import System
from ebbtide.events.base import BARRIER_NS_MAX, Fact, Order, Record, Stamp
from ebbtide.events.decisions import CancelOrder
from ebbtide.events.facts import DurabilityLate, OrderEnded, Result, Tick
from ebbtide.events.units import span
from ebbtide.replay.sim.scenario import Draws

#: The order at one instant: the world's moves, then the inbox's lanes (`events.base.Fact`), with the ticks.
MOVES, URGENT, TICKS, OUTCOMES, REST = range(5)

RANKS = (URGENT, OUTCOMES, REST)

#: A shutdown of 10 000 pods takes a tenth of it.
STEPS_MAX = 2_000_000

WorldMove = Callable[[], object]


class RanAway(Exception):
    """An actor or a world never rests. Report its seed or journal."""


class Entry:
    """``what``: a fact to admit, or a move of the world; None: dropped."""

    __slots__ = ("at_ns", "what")

    def __init__(self, at_ns: int, what: Fact | WorldMove) -> None:
        self.at_ns = at_ns
        self.what: Fact | WorldMove | None = what


class Agenda:
    """``now_ns``: the monotonic clock."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._heap: list[tuple[int, int, int, Entry]] = []
        self._number = 0

    def put(self, at_ns: int, what: Fact | WorldMove, lane: int | None = None) -> Entry:
        """At ``at_ns``, or now if that is past. ``lane``: the order at one instant."""
        if lane is None:
            lane = RANKS[what.lane] if isinstance(what, Fact) else MOVES
        entry = Entry(max(at_ns, self.now_ns), what)
        heappush(self._heap, (entry.at_ns, lane, self._number, entry))
        self._number += 1
        return entry

    def after(self, delay_ns: int, what: Fact | WorldMove) -> Entry:
        return self.put(self.now_ns + delay_ns, what)

    def drop(self, entry: Entry | None) -> None:
        if entry is not None:
            entry.what = None

    def later(self, after_ns: int, do: WorldMove) -> WorldMove:
        """The result cancels it (`actors.simulated_logind.Timer`)."""
        entry = self.after(after_ns, do)
        return partial(self.drop, entry)

    def drop_facts(self) -> None:
        """Their process is gone; the world's moves go on."""
        for *_, entry in self._heap:
            if isinstance(entry.what, Fact):
                entry.what = None

    def clear(self) -> None:
        self._heap.clear()

    def head(self) -> tuple[int, int] | None:
        """The next entry's time and lane."""
        while self._heap and self._heap[0][3].what is None:
            heappop(self._heap)
        return self._heap[0][:2] if self._heap else None

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        """Time and lane of a deadline's tick."""
        return deadline_ns, TICKS

    def take(self) -> Fact | WorldMove:
        """Moves the clock to the next entry. `head` must have found one."""
        at_ns, _, _, entry = heappop(self._heap)
        self.now_ns = at_ns
        assert entry.what is not None, "head() skips what was dropped"
        return entry.what


class World(Protocol):
    def answer(self, records: Sequence[Record]) -> None:
        """Put the outcomes of one step's orders on the agenda."""


class Loop:
    """A restart replaces ``system`` between two steps. ``wall_offset_ns``: the wall clock minus the monotonic
    one; it may change. ``awake`` False: no process, so no tick.
    """

    def __init__(self, system: System, agenda: Agenda, world: World, wall_offset_ns: int) -> None:
        self.system = system
        self.agenda = agenda
        self.wall_offset_ns = wall_offset_ns
        self.awake = True
        self._world = world

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.agenda.now_ns, self.agenda.now_ns + self.wall_offset_ns)

    def admit(self, fact: Fact) -> list[Record]:
        """One step, now; its orders are answered."""
        records = self.system.step(fact, self.stamp)
        self._world.answer(records)
        return records

    def steps(self, until_ns: int | None = None) -> Iterator[list[Record]]:
        """Until the agenda is empty, or up to ``until_ns``. Raises RanAway."""
        for _ in range(STEPS_MAX):
            fact = self._next(until_ns)
            if fact is None:
                return
            yield self.admit(fact)
        raise RanAway(f"still busy after {STEPS_MAX} steps, at {span(self.agenda.now_ns)}")

    def run(self, until_ns: int | None = None) -> None:
        for _ in self.steps(until_ns):
            pass

    def _next(self, until_ns: int | None) -> Fact | None:
        for _ in range(STEPS_MAX):
            head, deadline_ns = self.agenda.head(), self.system.next_deadline_ns() if self.awake else None
            due = (NEVER_NS, TICKS) if deadline_ns is None else self.agenda.tick_due(deadline_ns)
            tick = head is None or due < head
            at_ns = due[0] if head is None else min(due, head)[0]
            if at_ns == NEVER_NS or (until_ns is not None and at_ns > until_ns):
                return None
            if tick:
                self.agenda.now_ns = max(self.agenda.now_ns, at_ns)
                return Tick()
            what = self.agenda.take()
            if isinstance(what, Fact):
                return what
            what()
        raise RanAway(f"the world moves by itself for ever, at {span(self.agenda.now_ns)}")


# --- effects as scripts

# An order's script, a generator over the modelled node (`replay.sim.edges`), yields the times that it takes.
# `Effects` runs scripts in virtual time, the tests' world as Trio tasks. Both keep the same rules: an actor's
# orders begin in their order, a `CancelOrder` overtakes, a cancelled effect ends as its canceller says, and
# after a restart every open order is followed or ends unknown.


class Outcome(NamedTuple):
    """Becomes the order's `OrderEnded`."""

    result: Result = "done"
    reason: str = ""
    exit_code: int | None = None


class Pause(Enum):
    #: Between two touches of the node at one instant: in the tests' world time may pass here, or the daemon
    #: die.
    TOUCH = "touch"
    #: Until cancelled.
    FOREVER = "forever"


TOUCH, FOREVER = Pause.TOUCH, Pause.FOREVER


class Until(NamedTuple):
    """Wait until a follower is called, at most ``timeout_ns``. Running the script adds the follower."""

    followers: list[Callable[[], object]]
    timeout_ns: int


class EffectCancelled(Exception):
    """A cancelled script gets it, cleans up and re-raises."""


#: Nanoseconds to wait, another wait, or a fact to report.
Step = int | Until | Pause | Fact

Watching = Generator[Step, None, None]
Script = Generator[Step, None, Outcome]

#: The order, and whether it begins before its barrier is reached.
Begin = Callable[[Any, bool], Script]


#: The last one is rare, and exceeds its bound.
WRITE_US = (30, 250)
SYNC_US = (400, 6000)
SLOW_SYNC_US = (6000, 30_000)


class PendingEffect:
    """``entry``: when it continues."""

    __slots__ = ("begun", "entry", "order", "script", "since_ns", "verdict")

    def __init__(self, order: Order, now_ns: int) -> None:
        self.order = order
        self.since_ns = now_ns
        self.begun = False
        self.entry: Entry | None = None
        self.script: Script | None = None
        self.verdict: Result | None = None


class Effects:
    """One process's effects."""

    def __init__(self, agenda: Agenda, draws: Draws, table: Mapping[type[Order], Begin]) -> None:
        self._agenda = agenda
        self._draws = draws
        self._table = table
        self._open: dict[str, PendingEffect] = {}
        #: When each actor's last order begins: the next one does not overtake it.
        self._passes_ns: dict[str, int] = {}
        self.alive = True

    def hold(self, records: Sequence[Record]) -> None:
        """Put one step's orders behind their barriers."""
        orders = [record.event for record in records if isinstance(record.event, Order)]
        if not orders:
            return
        written_ns = self._draws.between(*WRITE_US) * 1000
        slow = self._draws.chance(1, 60)
        synced_ns = written_ns + self._draws.between(*(SLOW_SYNC_US if slow else SYNC_US)) * 1000
        delays_ns = {"none": 0, "written": written_ns, "synced": synced_ns}
        now_ns = self._agenda.now_ns
        for order in orders:
            delay_ns = delays_ns[order.barrier]
            begins_ns = now_ns + min(delay_ns, BARRIER_NS_MAX)
            if not isinstance(order, CancelOrder):
                actor = order.key.partition("/")[0]
                begins_ns = max(begins_ns, self._passes_ns.get(actor, 0))
                self._passes_ns[actor] = begins_ns
            work = self._open[order.key] = PendingEffect(order, now_ns)
            if delay_ns > BARRIER_NS_MAX:
                late = DurabilityLate(key=order.key, barrier=order.barrier, waited_ns=BARRIER_NS_MAX)
                self._agenda.put(begins_ns, late)
            work.entry = self._agenda.put(begins_ns, partial(self._begin, work))

    def _begin(self, work: PendingEffect) -> None:
        if not self.alive:
            return
        order = work.order
        work.begun, work.since_ns, work.entry = True, self._agenda.now_ns, None
        if work.verdict is not None:
            self.end(order.key, work.verdict)
        elif isinstance(order, CancelOrder):
            target = self._open.get(order.target)
            if target is not None and not (order.waiting_only and target.begun):
                target.verdict = "timed-out" if order.timed_out else "cancelled"
                # A waiting order ends when it would begin.
                if target.begun:
                    self._agenda.drop(target.entry)
                    target.entry = None
                    if target.script is not None:
                        with suppress(EffectCancelled):
                            target.script.throw(EffectCancelled)
                    self.end(order.target, target.verdict)
            self.end(order.key)
        elif type(order) in self._table:
            # Not late: only the tests' world delays barriers.
            self._go_on(work, self._table[type(order)](order, False))
        else:
            self.end(order.key, "failed", f"no edge carries out {type(order).__name__}")

    def _go_on(self, work: PendingEffect, script: Script) -> None:
        """Run to the script's next wait or its end."""
        work.script, work.entry = script, None
        while self.alive and work.order.key in self._open:
            try:
                step = next(script)
            except StopIteration as stop:
                self.end(work.order.key, *stop.value)
                return
            if isinstance(step, Fact):
                self._agenda.after(0, step)
            elif isinstance(step, Until):
                step.followers.append(partial(self._wake, work, script))
                work.entry = self._agenda.after(step.timeout_ns, partial(self._go_on, work, script))
                return
            elif step is FOREVER:
                return
            elif isinstance(step, int):
                work.entry = self._agenda.after(step, partial(self._go_on, work, script))
                return

    def _wake(self, work: PendingEffect, script: Script) -> None:
        """Without an entry the script itself caused this call."""
        if work.entry is not None:
            self._agenda.drop(work.entry)
            self._go_on(work, script)

    def end(self, key: str, result: Result = "done", reason: str = "", exit_code: int | None = None) -> None:
        """A second outcome is a no-op."""
        work = self._open.pop(key, None) if self.alive else None
        if work is None:
            return
        elapsed_ns = self._agenda.now_ns - work.since_ns
        ended = OrderEnded(key=key, result=result, reason=reason, elapsed_ns=elapsed_ns, exit_code=exit_code)
        self._agenda.after(0, ended)

    def adopt(
        self, orders: Iterable[Order], follow: Callable[[Order], Script | None], *, same_userspace: bool
    ) -> None:
        """An earlier process's orders. ``follow`` gives None for an unknown outcome."""
        for order in orders:
            work = self._open[order.key] = PendingEffect(order, self._agenda.now_ns)
            work.begun = True
            lasting = order.barrier == "synced" and not order.this_boot
            if not (same_userspace or lasting) or type(order) not in self._table:
                self.end(order.key, "unknown")
                continue
            script = follow(order)
            if script is None:
                self.end(order.key, "unknown", LOST)
            else:
                self._go_on(work, script)
