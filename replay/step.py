"""Walking through a shutdown event by event, forwards and back, with what each event changed.

`Stepper` moves; below it the changed fields of an event, and the conditions at which a walk stops.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ebbtide.actors.wave import PodChecklist
from ebbtide.events.base import Checkpoint
from ebbtide.events.decisions import KillContainer, WaveEnded, WaveStarted
from ebbtide.events.messages import Names
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import Episode
from ebbtide.replay.replayer import Divergence, whole_steps
from ebbtide.replay.states import (
    CHECKLIST_FIELDS,
    ELEMENT_TEXTS,
    DifferingValue,
    Execution,
    FlatValue,
    KnownStates,
    Point,
    StateChange,
    differing_values,
    flatten,
    put_state,
)
from ebbtide.replay.timeline import Line, Timeline, actor_name, is_actor, is_pod, short_name

# Forwards the steps are executed as they are reached. Some thousand events behind the place are kept, with
# the changes they made, and going back undoes those; further back the journal is executed again from its
# nearest checkpoint. So memory does not grow with the shutdown.


#: Events kept behind the place; a step is kept whole.
EVENTS_KEPT_MAX = 4096


class SteppedEvent(NamedTuple):
    """One event: where it stands and whom it changed, and its line for people."""

    point: Point
    line: Line


StopCondition = Callable[[SteppedEvent], bool]


class Stepper:
    """A place in a shutdown: ``here`` is the event, ``known`` what every actor knew after it.

    ``history`` is read anew whenever going back needs it. Raises, at any move, events.codec.UnknownType and
    BadPayload where a fact cannot be executed, and OSError.
    """

    def __init__(self, history: History, episode: Episode, kept_max: int = EVENTS_KEPT_MAX) -> None:
        self.first_seq, self.last_seq = episode.first_seq, episode.last_seq
        self._history, self._kept_max = history, kept_max
        self._shown = Timeline(episode.first_seq)
        # The checkpoints up to the end of the shutdown; names are learned on the way, in the same reading,
        # because a pod that an earlier record introduced is not introduced again.
        found = []
        for batch in self._history.batches():
            for raw in batch.records:
                if raw.tag == Checkpoint.__name__ and raw.seq <= self.last_seq:
                    found.append(raw.seq)
            if batch.records[0].seq < self.first_seq:
                before = [raw for raw in batch.records if raw.seq < self.first_seq]
                for _ in self._shown.lines(Batch(batch.header, before)):
                    pass
        self._checkpoints = found
        self.known: KnownStates = {}
        self._start(self.first_seq)

    @property
    def here(self) -> SteppedEvent:
        return self._kept[self._at]

    @property
    def names(self) -> Names:
        return self._shown.names

    @property
    def divergence(self) -> Divergence | None:
        """Where this version decides otherwise, as far as has been walked."""
        return self._execution.divergence

    # --- moving -------------------------------------------------------------------------------

    def next(self) -> bool:
        """To the event behind; False at the end."""
        if self._at + 1 == len(self._kept) and not self._read_step():
            return False
        self._at += 1
        for change in self.here.point.changes:
            put_state(self.known, change.actor, change.after)
        return True

    def back(self) -> bool:
        """To the event before; False at the begin."""
        if self._at == 0:
            if self.here.line.seq == self.first_seq:
                return False
            self._start(self.here.line.seq - 1)
            return True
        for change in reversed(self.here.point.changes):
            put_state(self.known, change.actor, change.before)
        self._at -= 1
        return True

    def seek(self, seq: int) -> bool:
        """To a record by its number; False, and no move, where it is not of this shutdown."""
        if not self.first_seq <= seq <= self.last_seq:
            return False
        if seq < self._kept[0].line.seq:
            self._start(seq)
        while self.here.line.seq < seq and self.next():
            pass
        while self.here.line.seq > seq and self.back():
            pass
        return self.here.line.seq == seq

    def find(self, test: StopCondition, *, backwards: bool = False) -> bool:
        """To the nearest other event that passes; False, and no move, where there is none."""
        # Where nothing passes, back: to look for what is not there must not lose one's place.
        origin = self.here.line.seq
        while self.back() if backwards else self.next():
            if test(self.here):
                return True
        self.seek(origin)
        return False

    def causes(self) -> list[SteppedEvent]:
        """What led to this event: from its cause to the fact of its step."""
        chain, seen = [], self.here
        while seen.line.cause:
            at = bisect_left(self._kept, seen.line.cause, key=lambda kept: kept.line.seq)
            # What led to the begin of a shutdown may belong to the one that it closed, and is told there.
            if self._kept[at].line.seq != seen.line.cause:
                break
            seen = self._kept[at]
            chain.append(seen)
        return chain

    def step_bounds(self) -> tuple[int, int]:
        """The numbers of the first and the last record of this event's step."""
        first = (self.causes() or [self.here])[-1].line.seq
        behind = (seen.line.seq for seen in self._kept[self._at + 1 :] if not seen.line.cause)
        return first, next(behind, self._kept[-1].line.seq + 1) - 1

    # --- reading ------------------------------------------------------------------------------

    def _start(self, seq: int) -> None:
        # With half of what may be kept before it, so that neither the next steps back nor the next ones
        # forwards make it read the journal again.
        kept_from = max(self.first_seq, seq - self._kept_max // 2)
        checkpoint = max((each for each in self._checkpoints if each <= kept_from), default=0)
        self._execution = Execution()
        self._kept: list[SteppedEvent] = []
        self._at = -1
        self._source = self._from(checkpoint, kept_from)
        if not self.next():
            raise LookupError(f"record {seq} cannot be read any more")
        while self.here.line.seq < seq and self.next():
            pass

    def _from(self, checkpoint: int, kept_from: int) -> Iterator[Batch]:
        """The steps from there on; those before are executed and not looked at."""
        looking = False
        for batch in whole_steps(self._history.batches()):
            last = batch.records[-1].seq
            if last < checkpoint:
                continue
            if last < kept_from:
                self._execution.run(batch.records)
                continue
            if not looking:
                self.known, looking = dict(self._execution.known), True
            yield batch

    def _read_step(self) -> bool:
        batch = next(self._source, None)
        if batch is None or batch.records[0].seq > self.last_seq:
            return False
        lines = {line.seq: line for line in self._shown.lines(batch)}
        points = self._execution.step(batch.header, batch.records)
        # What is too far behind, in whole steps: going back over half of one would undo a change whose
        # beginning is not there any more.
        spare = max(0, len(self._kept) - self._kept_max)
        while 0 < spare < len(self._kept) and self._kept[spare].line.cause:
            spare += 1
        del self._kept[:spare]
        self._at -= spare
        self._kept += [
            SteppedEvent(point, lines[point.raw.seq]) for point in points if point.raw.seq in lines
        ]
        return True


class FieldChange(NamedTuple):
    """One field of an actor; None where the field, or the actor, was not there."""

    actor: str
    path: str
    before: FlatValue
    after: FlatValue


#: A list that is empty is as good as one that is not there.
_NOTHING: tuple[FlatValue, ...] = ([], None)


def field_changes(
    changes: Iterable[StateChange], names: Names, field: str | None = None
) -> Iterator[FieldChange]:
    """In the order of the actors and of their fields. A new actor shows what is not at its default.

    With ``field`` only what may be that field, or the end of whose path it may be: it is found faster.
    """
    for change in changes:
        was, now = change.before, change.after
        differing = [*differing_values(was and was.state, now and now.state)]
        if was is not None and now is not None and was.failed != now.failed:
            differing.append(DifferingValue("failed", was.failed, now.failed))
        for path, before, after in differing:
            if field is None or _may_hold(path, before, after, field):
                # Fields at their default are left out where only one side is there.
                every = type(before) is type(after)
                old, new = (
                    {} if value is None else flatten(value, names, path=path, every=every)
                    for value in (before, after)
                )
                for each in {**old, **new}:
                    left, right = old.get(each), new.get(each)
                    if left != right and not (left in _NOTHING and right in _NOTHING):
                        yield FieldChange(change.actor, each, left, right)


def _may_hold(path: str, before: Any, after: Any, field: str) -> bool:
    """A single value is called by its path; of a checklist it is known what is shown."""
    # May: of something with fields of its own the paths are known only once it has been flattened. To flatten
    # all of every change, to find one field in a thousand events, is what this saves.
    name = field.rpartition(".")[2]
    if isinstance(after, PodChecklist) or isinstance(before, PodChecklist):
        return name in CHECKLIST_FIELDS
    return _is_nested(before) or _is_nested(after) or is_end_of(field, path)


def _is_nested(value: Any) -> bool:
    """Whether it has fields of its own, and is not a list of words."""
    if isinstance(value, tuple) and value:
        return isinstance(value[0], msgspec.Struct) and type(value[0]) not in ELEMENT_TEXTS
    return isinstance(value, msgspec.Struct | dict)


def is_end_of(field: str, path: str) -> bool:
    """Whether a field that people name is this one: by its whole path, or by the end of it."""
    return path == field or path.endswith(f".{field}")


def names_actor(wanted: str, label: str, names: Names) -> bool:
    """Whether people may call this actor so: by its name, its kind, or its pod."""
    subject = label.partition(":")[2]
    return (
        wanted in (actor_name(label, names), label)
        or is_actor(wanted, label, short_name(label))
        or is_pod(wanted, subject, names.labels.get(subject, ""))
    )


class Watch(NamedTuple):
    """A field to stop at when it changes. ``actor`` empty: of any; ``field`` may be the end of its path."""

    actor: str
    field: str

    def changes(self, seen: SteppedEvent, names: Names) -> list[FieldChange]:
        """Those of its fields that an event changed."""
        of = (change for change in seen.point.changes if self.is_of(change.actor, names))
        return [
            change for change in field_changes(of, names, self.field) if is_end_of(self.field, change.path)
        ]

    def is_of(self, label: str, names: Names) -> bool:
        return not self.actor or names_actor(self.actor, label, names)


_WAVES = (WaveStarted.__name__, WaveEnded.__name__)


def is_wave(seen: SteppedEvent) -> bool:
    return seen.line.type in _WAVES


def is_kill(seen: SteppedEvent) -> bool:
    return seen.line.type == KillContainer.__name__


def is_failure(seen: SteppedEvent) -> bool:
    return seen.line.bad


def is_type(wanted: str, seen: SteppedEvent) -> bool:
    """Its type's name, or a part of it."""
    return wanted.lower() in seen.line.type.lower()


def is_about(pod: str, seen: SteppedEvent) -> bool:
    return is_pod(pod, seen.line.uid, seen.line.pod)


def contains_text(text: str, seen: SteppedEvent) -> bool:
    """Whether the text stands anywhere in what is told of it, or in its data."""
    line = seen.line
    haystack = f"{line.type} {line.short} {line.pod} {line.text} {line.data}"
    return text.lower() in haystack.lower()
