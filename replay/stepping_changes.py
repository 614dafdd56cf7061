"""What an event changed, field by field; and the tests that a walk through a shutdown stops at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from actors.logic.roll import Roll
from events.decisions import KillContainer, WaveEnded, WaveStarted
from events.words.base import Names
from replay.states_diff import Differing, differing
from replay.states_execution import Change
from replay.states_fields import ROLL_FIELDS, SHORT, Flat, flatten
from replay.stepping import Seen
from replay.timeline import actor_name, short_name
from replay.timeline_wanted import is_actor, is_pod


class FieldChange(NamedTuple):
    """One field of an actor; None where the field, or the actor, was not there."""

    actor: str
    path: str
    before: Flat
    after: Flat


#: A list that is empty is as good as one that is not there.
_NOTHING: tuple[Flat, ...] = ([], None)


def field_changes(changes: Iterable[Change], names: Names, field: str | None = None) -> Iterator[FieldChange]:
    """In the order of the actors and of their fields. A new actor shows what is not at its default.

    With ``field`` only what may be that field, or the end of whose path it may be: it is found faster.
    """
    for change in changes:
        for path, before, after in _differing(change):
            if field is None or _may_hold(path, before, after, field):
                yield from _flat(change.actor, path, before, after, names)


def _differing(change: Change) -> Iterator[Differing]:
    before, after = change.before, change.after
    yield from differing(before and before.state, after and after.state)
    if before is not None and after is not None and before.failed != after.failed:
        yield Differing("failed", before.failed, after.failed)


def _flat(actor: str, path: str, before: Any, after: Any, names: Names) -> Iterator[FieldChange]:
    """Fields at their default are left out where only one side is there."""
    every = type(before) is type(after)
    old, new = (
        {} if value is None else flatten(value, names, path=path, every=every) for value in (before, after)
    )
    for each in {**old, **new}:
        was, now = old.get(each), new.get(each)
        if was != now and not (was in _NOTHING and now in _NOTHING):
            yield FieldChange(actor, each, was, now)


def _may_hold(path: str, before: Any, after: Any, field: str) -> bool:
    """A single value is called by its path; of a roll it is known what it holds."""
    name = field.rpartition(".")[2]
    if isinstance(after, Roll) or isinstance(before, Roll):
        return name in ROLL_FIELDS
    return _is_nested(before) or _is_nested(after) or is_end_of(field, path)


def _is_nested(value: Any) -> bool:
    """Whether it has fields of its own, and is not a list of words."""
    if isinstance(value, tuple) and value:
        return isinstance(value[0], msgspec.Struct) and type(value[0]) not in SHORT
    return isinstance(value, msgspec.Struct | dict)


def is_end_of(field: str, path: str) -> bool:
    """Whether a field that people name is this one: by its whole path, or by the end of it."""
    return path == field or path.endswith(f".{field}")


def means(wanted: str, label: str, names: Names) -> bool:
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

    def changes(self, seen: Seen, names: Names) -> list[FieldChange]:
        """Those of its fields that an event changed."""
        of = (change for change in seen.point.changes if self.is_of(change.actor, names))
        return [
            change for change in field_changes(of, names, self.field) if is_end_of(self.field, change.path)
        ]

    def is_of(self, label: str, names: Names) -> bool:
        return not self.actor or means(self.actor, label, names)


# --- where a walk stops ------------------------------------------------------------------------

_WAVES = (WaveStarted.__name__, WaveEnded.__name__)


def is_wave(seen: Seen) -> bool:
    return seen.line.type in _WAVES


def is_kill(seen: Seen) -> bool:
    return seen.line.type == KillContainer.__name__


def is_failure(seen: Seen) -> bool:
    return seen.line.bad


def is_type(wanted: str, seen: Seen) -> bool:
    """Its type's name, or a part of it."""
    return wanted.lower() in seen.line.type.lower()


def is_about(pod: str, seen: Seen) -> bool:
    return is_pod(pod, seen.line.uid, seen.line.pod)


def holds(text: str, seen: Seen) -> bool:
    """Whether the text stands anywhere in what is told of it, or in its data."""
    line = seen.line
    told = f"{line.type} {line.short} {line.pod} {line.text} {line.data}"
    return text.lower() in told.lower()
