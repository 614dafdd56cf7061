"""Every actor's state after any event of a journal, or at any instant."""

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
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Period, PlannedPod, Pod
from ebbtide.replay.replayer import Divergence, Replayer, whole_steps
from ebbtide.replay.timeline import Moment, Signal, SignalClock, When, named


class States(NamedTuple):
    """After the record ``at``; ``step_end``: the last number of its step. ``names``: the pods known by then;
    ``signal``: of the running shutdown.
    """

    at: RawRecord
    step_end: int
    known: dict[str, KnownState]
    when: When
    signal: Signal | None
    names: Names
    divergence: Divergence | None


def states_at(history: History, seq: int) -> States | None:
    """Right after record ``seq``, also within a step; None: no such record.

    Executes from the nearest checkpoint before it. Raises events.codec.UnknownType and BadPayload.
    """
    names, clock, when = Names(), SignalClock(), None
    checkpoint_seq = 0
    for header, records in history.batches():
        for raw in records:
            if raw.seq > seq:
                continue
            when = clock.when(header, raw)
            if raw.tag == Checkpoint.__name__:
                checkpoint_seq = raw.seq
            else:
                learn_record(names, raw)
    if when is None:
        return None
    replayer = Replayer(goes_on=True)
    for _, records in whole_steps(history.batches()):
        first, last = records[0].seq, records[-1].seq
        if first > seq:
            return None
        if last < checkpoint_seq:
            continue
        if last < seq:
            replayer.feed(records)
            continue
        stopped = None
        if seq < last:
            stopped = replayer.system = Stopped(replayer.system, seq - first)
        replayer.feed(records)
        known = (stopped and stopped.known) or _known_states(replayer.system)
        return States(records[seq - first], last, known, when, clock.signal, names, replayer.divergence)
    return None


def seq_at_moment(history: History, moment: Moment, first_seq: int) -> int | None:
    """The last record not after a moment, or None. Time counts from the shutdown at ``first_seq``."""
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
    """``failed``: it takes no further part."""

    state: State
    failed: bool = False


def _known_states(system: System) -> dict[str, KnownState]:
    return {slot.label: KnownState(slot.state, slot.failed) for slot in system.slots.values()}


class Stopped(System):
    """Continues from another system, and keeps the actors' states after one event. ``at``: the event's place
    in the next step. ``known`` stays None if the step is shorter.
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


# --- an actor's state as rows

#: Suffixes of fields with a moment of the monotonic clock; other ``_ns`` are durations.
MOMENT_SUFFIXES = (
    *("deadline_ns", "limit_ns", "at_ns", "by_ns", "since_ns", "until_ns", "begun_ns"),
    # Of an outage's actors.
    *("first_ns", "seen_ns", "down_ns", "switch_ns", "wake_ns", "unused_ns"),
)

#: Each is one word in a row.
_WORDS: dict[type, Callable[[Any, Names], str]] = {
    Pod: lambda value, names: value.label,
    PlannedPod: lambda value, names: f"{names.of(value.uid)} {span_s(value.grace_seconds)}",
    Period: lambda value, names: f"{span_s(value.seconds)} from priority {value.priority}",
}


def state_rows(
    value: Any, names: Names, signal_ns: int | None, *, every: bool, path: str = ""
) -> Iterator[tuple[str, str]]:
    """Path (``downs[main].phase``) and text of each field, in order. ``every``: defaults too. Moments count
    from a known signal.
    """

    def inner(of: Any, path: str) -> Iterator[tuple[str, str]]:
        return state_rows(of, names, signal_ns, every=every, path=path)

    if isinstance(value, PodChecklist):
        missing = dict.fromkeys(value.missing())
        yield f"{path}.open", names.all_of(missing) or "none"
        yield f"{path}.ended", names.all_of(uid for uid in value.places if uid not in missing) or "none"
    elif isinstance(value, msgspec.Struct) and type(value) not in _WORDS:
        for name, of in struct_fields(value, every=every).items():
            yield from inner(of, f"{path}.{name}" if path else name)
    elif isinstance(value, dict) and not all(type(of) in _WORDS for of in value.values()):
        for key, of in value.items():
            yield from inner(of, f"{path}[{named(str(key), names)}]")
    elif isinstance(value, tuple | list) and any(
        isinstance(each, msgspec.Struct) and type(each) not in _WORDS for each in value
    ):
        for at, each in enumerate(value):
            yield from inner(each, f"{path}[{getattr(getattr(each, 'spec', each), 'name', at)}]")
    else:
        yield path, _value_text(path, value, names, signal_ns)


def _value_text(path: str, value: Any, names: Names, signal_ns: int | None) -> str:
    if type(value) in _WORDS:
        return _WORDS[type(value)](value, names)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        texts = [_value_text("", each, names, None) for each in value]
        return ("; " if any("," in each for each in texts) else ", ").join(texts) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, bytes):
        return value.hex()
    if not isinstance(value, int) or not path.endswith("_ns"):
        return named(str(value), names) or '""'
    if value >= NEVER_NS:
        return "never"
    if path.endswith(MOMENT_SUFFIXES) and not value:
        return "none"
    if path.endswith(MOMENT_SUFFIXES) and signal_ns is not None:
        return f"{'+' if value >= signal_ns else ''}{span(value - signal_ns)}"
    return span(value)
