"""A journal's steps executed again, and looked at event by event: whom did each event change, and how?

A step runs to its end in one call. To see the states within it, `Watched` takes note of whoever heard an
event, before the next one is delivered; nothing else differs from the system that ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from actors.logic.actor import State
from actors.logic.routes import SINGLETONS
from actors.logic.slot import Opened, Slot
from actors.logic.system import System, Trace
from events.base import Event
from events.decisions import ActorFailed
from events.facts import OrderEnded
from events.frames import FLAG_LAST, RawRecord
from events.history import Batch
from events.segment import Header
from replay.engine import Divergence, Replayer


class Standing(NamedTuple):
    """What an actor knows. ``failed``: it takes no further part."""

    state: State
    failed: bool = False


class Change(NamedTuple):
    """An actor before and after an event; None: it was not there yet, or is not there any more."""

    actor: str
    before: Standing | None
    after: Standing | None


class Point(NamedTuple):
    """One record, and which actors it changed. ``answers`` is the order whose outcome it is."""

    header: Header
    raw: RawRecord
    changes: tuple[Change, ...]
    answers: Opened | None


Standings = dict[str, Standing]


class Watched(System):
    """A system that goes on where another one stands, and notes each change; ``known`` is by label."""

    def __init__(self, system: System) -> None:
        vars(self).update(vars(system))
        self.known: Standings = {slot.label: _standing(slot) for slot in self.slots.values()}
        #: Of the last step, an entry for each event in its order.
        self.changes: list[tuple[Change, ...]] = []
        self.answers: Opened | None = None
        self._touched: list[Slot] = []
        self._begun = False

    def trace(self, fact: Event, mono_ns: int) -> list[Trace]:
        self.changes, self._touched, self._begun = [], [], False
        self.answers = self.open_orders.get(fact.key) if isinstance(fact, OrderEnded) else None
        trail = super().trace(fact, mono_ns)
        # Whoever was revived or dropped at the step's end belongs to its last event.
        self._touched = [*self._touched, *(self.slots[(kind.name, "")] for kind in SINGLETONS)]
        self._look()
        if len(self.known) > len(self.slots):
            there = {slot.label: slot for slot in self.slots.values()}
            gone = [label for label in self.known if label not in there]
            self.changes[-1] += tuple(Change(label, self.known.pop(label), None) for label in gone)
        return trail

    def _recipients(self, event: Event, *how: Any) -> list[Slot]:
        """Called once an event, before it is delivered: whoever heard the one before has done so by now."""
        if self._begun:
            self._look()
        self._begun = True
        self._touched = super()._recipients(event, *how)
        return self._touched

    def _fail(self, slot: Slot, event: Event, now_ns: int, error: str) -> ActorFailed:
        self._touched = [*self._touched, slot]
        return super()._fail(slot, event, now_ns, error)

    def _look(self) -> None:
        changes = []
        for slot in self._touched:
            before, after = self.known.get(slot.label), _standing(slot)
            if before is None or before.state is not after.state or before.failed != after.failed:
                changes.append(Change(slot.label, before, after))
                self.known[slot.label] = after
        self.changes.append(tuple(changes))


def _standing(slot: Slot) -> Standing:
    return Standing(slot.state, slot.failed)


class Execution:
    """Steps of a journal in their order, executed again. The first one begins with a checkpoint.

    Raises, where a fact cannot be read at all, events.codec.UnknownType and BadPayload. Where this version
    comes to other decisions ``divergence`` says so, and what follows is what it makes of the facts.
    """

    def __init__(self) -> None:
        self._replayer = Replayer(goes_on=True)

    @property
    def divergence(self) -> Divergence | None:
        return self._replayer.divergence

    @property
    def known(self) -> Standings:
        """What every actor knows after the last step; to be read only, and before the next one."""
        return self._watched().known

    def run(self, header: Header, records: Iterable[RawRecord]) -> None:
        """Whole steps, without looking."""
        self._replayer.feed(records)

    def step(self, header: Header, records: list[RawRecord]) -> list[Point]:
        """One step, a point for each of its records."""
        watched = self._watched()
        watched.changes, watched.answers = [], None
        self._replayer.feed(records)
        made = list(watched.changes)
        if self._replayer.system is not watched:
            made = [_between(watched.known, self._watched().known)]
        # A digest is heard by nobody; and another version may have decided more, or less.
        spare = max(0, len(records) - len(made))
        made = [*made[: len(records) - 1], sum(made[len(records) - 1 :], ()), *[()] * spare][: len(records)]
        return [
            Point(header, raw, changes, None if at else watched.answers)
            for at, (raw, changes) in enumerate(zip(records, made, strict=True))
        ]

    def _watched(self) -> Watched:
        if not isinstance(self._replayer.system, Watched):
            self._replayer.system = Watched(self._replayer.system)
        return self._replayer.system


def _between(before: Standings, after: Standings) -> tuple[Change, ...]:
    """A checkpoint was taken over: all that it says otherwise."""
    labels = {**before, **after}
    pairs = ((label, before.get(label), after.get(label)) for label in labels)
    return tuple(Change(*each) for each in pairs if each[1] != each[2])


def steps(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same records, one step each."""
    for header, records in batches:
        begin = 0
        for at, raw in enumerate(records, 1):
            if raw.flags & FLAG_LAST:
                yield Batch(header, records[begin:at])
                begin = at


def advance(known: Standings, points: Iterable[Point]) -> Standings:
    """``known`` itself, after these points."""
    for point in points:
        for change in point.changes:
            put(known, change.actor, change.after)
    return known


def put(known: Standings, actor: str, standing: Standing | None) -> None:
    if standing is None:
        known.pop(actor, None)
    else:
        known[actor] = standing
