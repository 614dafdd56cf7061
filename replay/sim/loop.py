"""The loop in virtual time: who moves the actors when there is neither a clock nor a machine?

An `Agenda` holds what is going to happen, at integer nanoseconds of a monotonic clock that stands still
while anything is computed. The `Loop` takes the next entry, or a `Tick` if the actors' earliest deadline
comes first, steps the `System` with it, and shows the new records to a `World`, which answers their orders
by putting outcomes and observations on the agenda. It is all of the sequencer (`actors.runner`) but the
waiting: facts of the same instant go by lane (moves of the world, logind and people, ticks, outcomes, the
rest), then in the order in which they were put there. So a run is a function of the system's state, the
world and the agenda.

How a world plugs in. ``simulate`` answers from a modelled node (`replay.sim.simulate`); ``what-if`` answers
each order by its key with the recorded outcome, at the recorded delay:

    agenda = Agenda(begin_ns)
    agenda.put(signal_ns, PrepareForShutdown(...))
    class Recorded:
        def answer(self, records):
            for record in records:
                if isinstance(record.event, Order):
                    agenda.after(delay_ns, OrderEnded(key=record.event.key, ...))
    loop = Loop(system, agenda, Recorded(), wall_offset_ns=wall_ns - mono_ns)
    for records in loop.steps(): ...

An entry that is no longer to happen (an effect that was cancelled) is taken off with `Agenda.drop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.system import FACT_PRIORITIES, System
from ebbtide.events.base import Fact, Record, Stamp
from ebbtide.events.facts import Tick

#: What the world does by itself at an instant comes before anybody hears of it; the rest are the inbox's
#: priorities, with the ticks between the first and the second (`actors.system`).
MOVES, URGENT, TICKS, OUTCOMES, REST = range(5)

#: The rank of each fact that is not of the last lane.
RANKS: dict[type[Fact], int] = {kind: (URGENT, OUTCOMES)[lane] for kind, lane in FACT_PRIORITIES.items()}

#: Steps of one run before it counts as running in circles: a shutdown of 10 000 pods takes a tenth of it.
STEPS_MAX = 2_000_000

WorldMove = Callable[[], object]


class RanAway(Exception):
    """The run came to no end: an actor or a world keeps itself busy. Report it, with its seed or journal."""


class Entry:
    """One thing to come. ``what`` is a fact to admit, or a move of the world; None once it was dropped."""

    __slots__ = ("at_ns", "what")

    def __init__(self, at_ns: int, what: Fact | WorldMove) -> None:
        self.at_ns = at_ns
        self.what: Fact | WorldMove | None = what


class Agenda:
    """What is going to happen. ``now_ns`` is the virtual monotonic clock; it never goes back."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._heap: list[tuple[int, int, int, Entry]] = []
        self._number = 0

    def put(self, at_ns: int, what: Fact | WorldMove, lane: int | None = None) -> Entry:
        """At ``at_ns``, or at once if that is past. ``lane``: a place of its own among what is due then."""
        if lane is None:
            lane = RANKS.get(type(what), REST) if isinstance(what, Fact) else MOVES
        entry = Entry(max(at_ns, self.now_ns), what)
        heappush(self._heap, (entry.at_ns, lane, self._number, entry))
        self._number += 1
        return entry

    def after(self, delay_ns: int, what: Fact | WorldMove) -> Entry:
        """So long from now."""
        return self.put(self.now_ns + delay_ns, what)

    def drop(self, entry: Entry | None) -> None:
        """It will not happen; again, or for nothing, is no error."""
        if entry is not None:
            entry.what = None

    def later(self, after_ns: int, do: WorldMove) -> WorldMove:
        """A move so long from now; what is returned takes that back (`actors.simulated_logind.Timer`)."""
        entry = self.after(after_ns, do)
        return partial(self.drop, entry)

    def drop_facts(self) -> None:
        """Who was to hear them is gone; what the world does by itself goes on."""
        for *_, entry in self._heap:
            if isinstance(entry.what, Fact):
                entry.what = None

    def clear(self) -> None:
        """Nothing of it will happen."""
        self._heap.clear()

    def head(self) -> tuple[int, int] | None:
        """When the next entry is due and in which lane; None if there is none."""
        while self._heap and self._heap[0][3].what is None:
            heappop(self._heap)
        return self._heap[0][:2] if self._heap else None

    def take(self) -> Fact | WorldMove:
        """The next entry; the clock goes on to it. Call `head` before: there must be one."""
        at_ns, _, _, entry = heappop(self._heap)
        self.now_ns = at_ns
        assert entry.what is not None, "head() skips what was dropped"
        return entry.what


class World(Protocol):
    """What answers the actors' orders."""

    def answer(self, records: Sequence[Record]) -> None:
        """One step's records, in order: put on the agenda what comes of their orders."""


class Loop:
    """Drives ``system`` through ``agenda``. ``system`` may be exchanged between two steps (a restart).

    ``wall_offset_ns`` is the wall clock minus the monotonic one, and may be changed too. While nobody is
    ``awake`` (the process has died) no tick comes.
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
        """One step, now; its orders are answered before this returns."""
        records = self.system.step(fact, self.stamp)
        self._world.answer(records)
        return records

    def steps(self, until_ns: int | None = None) -> Iterator[list[Record]]:
        """Each step's records, until nothing is left to come, or nothing up to ``until_ns``.

        Stopping to iterate stops the run between two steps. Raises RanAway.
        """
        for _ in range(STEPS_MAX):
            fact = self._next(until_ns)
            if fact is None:
                return
            yield self.admit(fact)
        raise RanAway(f"still busy after {STEPS_MAX} steps, at {self.agenda.now_ns} ns")

    def run(self, until_ns: int | None = None) -> None:
        """All steps, for whoever has seen them as the world. Raises RanAway."""
        for _ in self.steps(until_ns):
            pass

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        """When the tick for a deadline is admitted, and in which lane: here punctually."""
        return deadline_ns, TICKS

    def _next(self, until_ns: int | None) -> Fact | None:
        """The next fact, a tick included; moves of the world on the way are made."""
        for _ in range(STEPS_MAX):
            head, deadline_ns = self.agenda.head(), self.system.next_deadline_ns() if self.awake else None
            due = (NEVER_NS, TICKS) if deadline_ns is None else self.tick_due(deadline_ns)
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
        raise RanAway(f"the world moves by itself for ever, at {self.agenda.now_ns} ns")
