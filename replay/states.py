"""What every actor knew at any place of a journal: after any event, or at any instant.

It reads the journal twice: up to the place, then again from the nearest checkpoint before it, executing.
Below: a system that stops within a step; a state as a flat list of named values (``downs[main].phase``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from ebbtide.actors.actor import NEVER_NS, State
from ebbtide.actors.system import Slot, System
from ebbtide.actors.wave import PodChecklist
from ebbtide.events.base import Checkpoint, Event
from ebbtide.events.codec import RawRecord, learn_record
from ebbtide.events.messages import Names
from ebbtide.events.reader import History
from ebbtide.events.record.format import struct_fields
from ebbtide.events.segment import Header
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Period, PlannedPod, Pod
from ebbtide.replay.replayer import Divergence, Replayer, whole_steps
from ebbtide.replay.timeline import Moment, Signal, SignalClock, When, named


class States(NamedTuple):
    """What every actor knew after the record ``at``; ``step_end`` is the last number of its step.

    ``names``: the pods known by then; ``signal``: of the running shutdown.
    """

    at: RawRecord
    step_end: int
    known: dict[str, KnownState]
    when: When
    signal: Signal | None
    names: Names
    divergence: Divergence | None


class Survey:
    """What execution and display need from the records before a place."""

    def __init__(self) -> None:
        self.names = Names()
        self.clock = SignalClock()
        #: The number of the last checkpoint so far; 0: none.
        self.checkpoint = 0

    def pass_by(self, header: Header, raw: RawRecord) -> When:
        if raw.tag == Checkpoint.__name__:
            self.checkpoint = raw.seq
        else:
            learn_record(self.names, raw)
        return self.clock.when(header, raw)


def states_at(history: History, seq: int) -> States | None:
    """What every actor knew right after record ``seq``, also within a step; None: no such record.

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
    replayer = Replayer(goes_on=True)
    for _, records in whole_steps(history.batches()):
        first, last = records[0].seq, records[-1].seq
        if first > seq:
            return None
        if last < survey.checkpoint:
            continue
        if last < seq:
            replayer.feed(records)
            continue
        stopped = None
        if seq < last:
            stopped = replayer.system = Stopped(replayer.system, seq - first)
        replayer.feed(records)
        known = (stopped and stopped.known) or _known_states(replayer.system)
        signal, names = survey.clock.signal, survey.names
        return States(records[seq - first], last, known, when, signal, names, replayer.divergence)
    return None


def seq_at_moment(history: History, moment: Moment, first_seq: int) -> int | None:
    """The number of the last record not behind a moment; None: all are behind it, or there is none.

    Time counts since the signal of the shutdown at record ``first_seq``.
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


class KnownState(NamedTuple):
    """What an actor knows. ``failed``: it takes no further part."""

    state: State
    failed: bool = False


def _known_states(system: System) -> dict[str, KnownState]:
    return {slot.label: KnownState(slot.state, slot.failed) for slot in system.slots.values()}


class Stopped(System):
    """A system that continues from another one, and keeps its actors' states after one event.

    ``at``: the event's place in the next step. ``known`` stays None if the step is shorter.
    """

    def __init__(self, system: System, at: int) -> None:
        vars(self).update(vars(system))
        self.known: dict[str, KnownState] | None = None
        self._at, self._delivered = at, 0

    def _recipients(self, event: Event, *how: Any) -> list[Slot]:
        """Called once for each event, before its delivery."""
        if self._delivered == self._at + 1:
            self.known = _known_states(self)
        self._delivered += 1
        return super()._recipients(event, *how)


# An actor's state as a flat list of named values, for print.
#
# A path uses the fields' names: ``downs[main].phase``. Pods have their names, a checklist shows open and
# ended pods, and defaults are left out unless all are wanted.


#: Text, a number, a truth value, None, or a list of such.
FlatValue = str | int | bool | None | list[Any]

#: Suffixes of fields with a moment of the monotonic clock; other ``_ns`` are durations.
MOMENT_SUFFIXES = (
    *("deadline_ns", "limit_ns", "at_ns", "by_ns", "since_ns", "until_ns", "begun_ns"),
    # Of an outage's actors.
    *("first_ns", "seen_ns", "down_ns", "switch_ns", "wake_ns", "unused_ns"),
)

#: The name of a list's element, in place of its index.
_ELEMENT_NAMES = ("spec", "name", "uid")

#: Fields that repeat the element's or the actor's name.
_NAMED_ALREADY = (".spec.name", ".name", ".uid")


def flatten(value: Any, names: Names, *, every: bool) -> dict[str, FlatValue]:
    """Path to value, in the order of the fields. ``every``: defaults too."""
    return dict(_walk(value, "", names, every))


def _walk(value: Any, path: str, names: Names, every: bool) -> Iterator[tuple[str, FlatValue]]:
    if isinstance(value, Pod):
        yield path, value.label
    elif isinstance(value, PodChecklist):
        missing = dict.fromkeys(value.missing())
        yield f"{path}.open", [names.of(uid) for uid in missing]
        yield f"{path}.ended", [names.of(uid) for uid in value.places if uid not in missing]
    elif isinstance(value, msgspec.Struct):
        for name, of in struct_fields(value, every=every).items():
            yield from _walk(of, f"{path}.{name}" if path else name, names, every)
    elif isinstance(value, dict):
        # Pods by UID are a list: their own actors show the rest.
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
    """An element's name in a path: its own, else its place."""
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


#: Elements of a list that are a word each.
ELEMENT_TEXTS: dict[type, Callable[[Any, Names], str]] = {
    Pod: lambda value, names: value.label,
    PlannedPod: lambda value, names: f"{names.of(value.uid)} {span_s(value.grace_seconds)}",
    Period: lambda value, names: f"{span_s(value.seconds)} from priority {value.priority}",
}


def value_text(path: str, value: FlatValue, signal_ns: int | None) -> str:
    """A value for people: nanoseconds as seconds, moments as seconds since a known signal."""
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
