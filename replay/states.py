"""What every actor knew at any place of a journal: after any event, or at any instant.

The journal is read twice, first up to the place, then executed again from the nearest checkpoint before it.
Below the entry points: the execution that notes which event changed whom; a state as a flat list of named
values (``downs[main].phase``); where two states differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ebbtide.actors.actor import NEVER_NS, State
from ebbtide.actors.system import BareRecord, OpenedOrder, Slot, System
from ebbtide.actors.wave import PodChecklist
from ebbtide.events.base import Checkpoint, Event
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_event
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.messages import NAMING_EVENTS, Names
from ebbtide.events.model import Period, PlannedPod, Pod
from ebbtide.events.reader import History
from ebbtide.events.segment import Header
from ebbtide.events.units import span, span_s
from ebbtide.replay.replayer import Divergence, Replayer, whole_steps
from ebbtide.replay.timeline import Moment, Signal, SignalClock, When, named


class States(NamedTuple):
    """What every actor knew after the record of ``at``; ``step`` are all points of its step.

    ``names`` are of the pods that were known by then, ``signal`` is that of the shutdown that ran.
    """

    at: Point
    step: list[Point]
    known: KnownStates
    when: When
    signal: Signal | None
    names: Names
    divergence: Divergence | None


class Survey:
    """What must be known of the records before a place in order to execute from there, and to describe it."""

    def __init__(self) -> None:
        self.names = Names()
        self.clock = SignalClock()
        #: The number of the last checkpoint so far; 0: none.
        self.checkpoint = 0

    def pass_by(self, header: Header, raw: RawRecord) -> When:
        if raw.tag == Checkpoint.__name__:
            self.checkpoint = raw.seq
        elif raw.tag in NAMING_EVENTS:
            # What cannot be read names nobody; whether the place can be executed, the execution will say.
            with suppress(UnknownType, BadPayload):
                self.names.learn(decode_event(raw.tag, raw.payload))
        return self.clock.when(header, raw)


def states_at(history: History, seq: int) -> States | None:
    """What every actor knew right after record ``seq``, also within a step; None if there is no such record.

    Reads twice: first all, then from the nearest checkpoint, executing. Raises events.codec.UnknownType and
    BadPayload.
    """
    survey = Survey()
    when = None
    for header, records in history.batches():
        for raw in records:
            if raw.seq <= seq:
                when = survey.pass_by(header, raw)
    if when is None:
        return None
    execution = Execution()
    for header, records in whole_steps(history.batches()):
        first, last = records[0].seq, records[-1].seq
        if survey.checkpoint <= last < seq:
            execution.run(records)
        elif first <= seq <= last:
            known = dict(execution.known)
            step = execution.step(header, records)
            at = seq - first
            apply_points(known, step[: at + 1])
            signal, names = survey.clock.signal, survey.names
            return States(step[at], step, known, when, signal, names, execution.divergence)
        elif first > seq:
            return None
    return None


def seq_at_moment(history: History, moment: Moment, first_seq: int) -> int | None:
    """The number of the last record not behind a moment; None where all are behind it, or none is there.

    Time since a signal is that of the shutdown which begins with record ``first_seq``.
    """
    if moment.scale == "seq":
        return moment.value
    clock, found = SignalClock(), None
    signal: Signal | None = None
    for header, records in history.batches():
        for raw in records:
            when = clock.when(header, raw)
            signal = clock.signal if raw.seq == first_seq else signal
            since_ns = signal.since_ns(header, raw) if signal is not None else None
            place = when.wall_ns if moment.scale == "wall_ns" else since_ns
            if place is not None and place > moment.value:
                return found
            found = raw.seq if place is not None else found
    return found


# A journal's steps executed again, and looked at event by event: whom did each event change, and how?
#
# A step runs to its end in one call. To see the states within it, `Watched` takes note of whoever heard an
# event, before the next one is delivered; nothing else differs from the system that ran.


class KnownState(NamedTuple):
    """What an actor knows. ``failed``: it takes no further part."""

    state: State
    failed: bool = False


class StateChange(NamedTuple):
    """An actor before and after an event; None: it was not there yet, or is not there any more."""

    actor: str
    before: KnownState | None
    after: KnownState | None


class Point(NamedTuple):
    """One record, and which actors it changed. ``answers`` is the order whose outcome it is."""

    header: Header
    raw: RawRecord
    changes: tuple[StateChange, ...]
    answers: OpenedOrder | None


KnownStates = dict[str, KnownState]


class Watched(System):
    """A system that goes on where another one stands, and notes each change; ``known`` is by label."""

    def __init__(self, system: System) -> None:
        vars(self).update(vars(system))
        self.known: KnownStates = {slot.label: _known_state(slot) for slot in self.slots.values()}
        #: Of the last step, an entry for each event in its order.
        self.changes: list[tuple[StateChange, ...]] = []
        self.answers: OpenedOrder | None = None
        self._touched: list[Slot] = []
        self._begun = False

    def trace(self, fact: Event, mono_ns: int) -> list[BareRecord]:
        self.changes, self._touched, self._begun = [], [], False
        self.answers = self.open_orders.get(fact.key) if isinstance(fact, OrderEnded) else None
        records = super().trace(fact, mono_ns)
        # Whoever was revived or dropped at the step's end belongs to its last event.
        self._touched = [*self._touched, *(self.slots[(kind.name, "")] for kind in self.actors.singletons)]
        self._look()
        if len(self.known) > len(self.slots):
            there = {slot.label: slot for slot in self.slots.values()}
            gone = [label for label in self.known if label not in there]
            self.changes[-1] += tuple(StateChange(label, self.known.pop(label), None) for label in gone)
        return records

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
            before, after = self.known.get(slot.label), _known_state(slot)
            if before is None or before.state is not after.state or before.failed != after.failed:
                changes.append(StateChange(slot.label, before, after))
                self.known[slot.label] = after
        self.changes.append(tuple(changes))


def _known_state(slot: Slot) -> KnownState:
    return KnownState(slot.state, slot.failed)


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
    def known(self) -> KnownStates:
        """What every actor knows after the last step; to be read only, and before the next one."""
        return self._watched().known

    def run(self, records: Iterable[RawRecord]) -> None:
        """Whole steps, without looking."""
        self._replayer.feed(records)

    def step(self, header: Header, records: list[RawRecord]) -> list[Point]:
        """One step, a point for each of its records."""
        watched = self._watched()
        watched.changes, watched.answers = [], None
        self._replayer.feed(records)
        made = list(watched.changes)
        if self._replayer.system is not watched:
            # A checkpoint was taken over: all that it says otherwise.
            after = self._watched().known
            labels = {**watched.known, **after}
            pairs = ((label, watched.known.get(label), after.get(label)) for label in labels)
            between = tuple(StateChange(*each) for each in pairs if each[1] != each[2])
            made = [between]
        # One entry a record. A digest is heard by nobody; and this version may decide more than the one that
        # wrote, then the last record takes all that is left, or less, then the last ones changed nobody.
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


def apply_points(known: KnownStates, points: Iterable[Point]) -> KnownStates:
    """``known`` itself, after these points."""
    for point in points:
        for change in point.changes:
            put_state(known, change.actor, change.after)
    return known


def put_state(known: KnownStates, actor: str, state_now: KnownState | None) -> None:
    if state_now is None:
        known.pop(actor, None)
    else:
        known[actor] = state_now


# An actor's state as a flat list of named values, to be printed, compared and watched.
#
# A path names a value as the fields do: ``downs[main].phase``. Pods are named, of a checklist it is said who
# is open and who has ended, and a field at its default is left out unless all are wanted.


#: Text, a number, a truth value, None, or a list of such.
FlatValue = str | int | bool | None | list[Any]

#: Ends of the names of fields that hold a moment of the monotonic clock; other ``_ns`` are durations.
MOMENT_SUFFIXES = (
    *("deadline_ns", "limit_ns", "at_ns", "by_ns", "since_ns", "until_ns", "begun_ns"),
    # Of an outage's actors.
    *("first_ns", "seen_ns", "down_ns", "switch_ns", "wake_ns", "unused_ns"),
)

#: What names an element of a list, instead of its place.
_ELEMENT_NAMES = ("spec", "name", "uid")

#: Fields of such an element that its name, or its actor's, says already.
_NAMED_ALREADY = (".spec.name", ".name", ".uid")

_PLAIN = (str, int, bool, type(None))


def flatten(value: Any, names: Names, *, path: str = "", every: bool = False) -> dict[str, FlatValue]:
    """Path to value, in the order of the fields, of a state or of a part of it. ``every``: defaults too."""
    return dict(_walk(value, path, names, every))


def plain_state(value: Any, *, every: bool = False, key_of: Callable[[str], str] = str) -> Any:
    """The same as nested plain values, exactly as the state has them; UIDs stay, bytes are hexadecimal.

    ``key_of`` a field's name; the keys of a mapping are data, and stay.
    """
    if isinstance(value, msgspec.Struct):
        return {
            key_of(name): plain_state(of, every=every, key_of=key_of)
            for name, of in _fields(value, every=every)
        }
    if isinstance(value, dict):
        return {str(key): plain_state(of, every=every, key_of=key_of) for key, of in value.items()}
    if isinstance(value, tuple | list):
        return [plain_state(each, every=every, key_of=key_of) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    # What JSON has no form for stands in an edited record only.
    return value if isinstance(value, _PLAIN) else repr(value)


@lru_cache(maxsize=256)
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether it is required, and default; looking these up is slow, and no type changes."""
    return tuple(
        (
            field.name,
            field.required,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def field_names(kind: type[msgspec.Struct]) -> Iterator[str]:
    """In the order in which they are declared."""
    return (name for name, _, _ in _fields_of(kind))


def _fields(value: msgspec.Struct, *, every: bool) -> Iterator[tuple[str, Any]]:
    for name, required, default in _fields_of(type(value)):
        of = getattr(value, name)
        if every or required or of != default:
            yield name, of


def _walk(value: Any, path: str, names: Names, every: bool) -> Iterator[tuple[str, FlatValue]]:
    if isinstance(value, Pod):
        yield path, value.label
    elif isinstance(value, PodChecklist):
        missing = dict.fromkeys(value.missing())
        yield f"{path}.open", [names.of(uid) for uid in missing]
        yield f"{path}.ended", [names.of(uid) for uid in value.places if uid not in missing]
    elif isinstance(value, msgspec.Struct):
        for name, of in _fields(value, every=every):
            yield from _walk(of, f"{path}.{name}" if path else name, names, every)
    elif isinstance(value, dict):
        # Pods by UID are a list of them: what else is known by pod, their own actors show.
        if all(isinstance(of, Pod) for of in value.values()):
            yield path, [pod.label for pod in value.values()]
        for key, of in () if path.endswith("pods") else value.items():
            yield from _walk(of, f"{path}[{named(str(key), names)}]", names, every)
    elif isinstance(value, tuple | list):
        yield from _sequence(value, path, names, every)
    else:
        yield path, _leaf(value, names)


def _sequence(value: Any, path: str, names: Names, every: bool) -> Iterator[tuple[str, FlatValue]]:
    nested = [each for each in value if isinstance(each, msgspec.Struct)]
    if nested and type(nested[0]) not in ELEMENT_TEXTS:
        for at, each in enumerate(value):
            element = f"{path}[{element_name(each, at)}]"
            for inner, of in _walk(each, element, names, every):
                if every or inner.removeprefix(element) not in _NAMED_ALREADY:
                    yield inner, of
        return
    texts: list[Any] = []
    for each in value:
        text = ELEMENT_TEXTS.get(type(each))
        if text is not None:
            texts.append(text(each, names))
        elif isinstance(each, tuple | list):
            texts.append(", ".join(str(_leaf(part, names)) for part in each))
        else:
            texts.append(_leaf(each, names))
    yield path, texts


def element_name(value: Any, at: int) -> str:
    """How an element of a list is called in a path: by its own name, else by its place."""
    for name in _ELEMENT_NAMES:
        found = getattr(value, name, None)
        found = getattr(found, "name", found)
        if isinstance(found, str):
            return found
    return str(at)


def _leaf(value: Any, names: Names) -> FlatValue:
    if isinstance(value, str):
        return named(value, names)
    return value.hex() if isinstance(value, bytes) else value


#: What is shown of a `PodChecklist`.
CHECKLIST_FIELDS = ("open", "ended")


#: Elements of a list that are a word each.
ELEMENT_TEXTS: dict[type, Callable[[Any, Names], str]] = {
    Pod: lambda value, names: value.label,
    PlannedPod: lambda value, names: f"{names.of(value.uid)} {span_s(value.grace_seconds)}",
    Period: lambda value, names: f"{span_s(value.seconds)} from priority {value.priority}",
}


def value_text(path: str, value: FlatValue, signal_ns: int | None) -> str:
    """A value for people: nanoseconds as seconds, moments as seconds since the signal where one is known."""
    if isinstance(value, list):
        texts = list(map(str, value))
        return ("; " if any("," in each for each in texts) else ", ").join(texts) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if not isinstance(value, int) or not path.endswith("_ns"):
        return str(value) if value != "" else '""'
    if value >= NEVER_NS:
        return "never"
    if path.endswith(MOMENT_SUFFIXES) and not value:
        return "none"
    if path.endswith(MOMENT_SUFFIXES) and signal_ns is not None:
        return f"{'+' if value >= signal_ns else ''}{span(value - signal_ns)}"
    return span(value)


# Where two states of an actor differ, found by going down only where they do.
#
# A state shares with the one before it all that its event left alone; so a change costs what changed, however
# many pods an actor knows.


class DifferingValue(NamedTuple):
    """A value, by its path, that is not what it was: the smallest that can be compared."""

    path: str
    before: Any
    after: Any


#: Told as a whole: what they hold has no place of its own.
_WHOLE = (Pod, PodChecklist, *ELEMENT_TEXTS)


def differing_values(before: Any, after: Any, path: str = "") -> Iterator[DifferingValue]:
    """In the order of the fields; nothing where both are equal."""
    if before is after:
        return
    same = type(before) is type(after) and not isinstance(before, _WHOLE)
    # Of two tuples that hold the same things in the same places each is compared by itself. Where one came or
    # went, or where the elements are a word each, the two are shown as a whole: places mean nothing there.
    alike = (
        same
        and isinstance(before, tuple)
        and len(before) == len(after)
        and all(
            isinstance(old, msgspec.Struct)
            and type(old) is type(new)
            and type(old) not in _WHOLE
            and element_name(old, at) == element_name(new, at)
            for at, (old, new) in enumerate(zip(before, after, strict=True))
        )
    )
    if same and isinstance(before, msgspec.Struct):
        for name in field_names(type(before)):
            old, new = getattr(before, name), getattr(after, name)
            if old is not new:
                yield from differing_values(old, new, f"{path}.{name}" if path else name)
    elif alike:
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differing_values(old, new, f"{path}[{element_name(old, at)}]")
    elif before != after:
        yield DifferingValue(path, before, after)
