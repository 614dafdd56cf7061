"""What an event changed, field by field; and the tests that a walk through a shutdown stops at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from actors.logic.actor import State
from events.decisions import KillContainer, WaveEnded, WaveStarted
from replay.states_execution import Change, Standing
from replay.states_fields import Flat, flatten
from replay.stepping import Seen
from replay.timeline import actor_name, short_name
from replay.timeline_wanted import is_actor, is_pod
from replay.words.base import Names


class FieldChange(NamedTuple):
    """One field of an actor; None where the field, or the actor, was not there."""

    actor: str
    path: str
    before: Flat
    after: Flat


#: A list that is empty is as good as one that is not there.
_NOTHING: tuple[Flat, ...] = ([], None)


def field_changes(changes: Iterable[Change], names: Names) -> Iterator[FieldChange]:
    """In the order of the actors and of their fields. A new actor shows what is not at its default."""
    for change in changes:
        old, new = _fields(change.before, change.after, names)
        for path in {**old, **new}:
            before, after = old.get(path), new.get(path)
            if before != after and not (before in _NOTHING and after in _NOTHING):
                yield FieldChange(change.actor, path, before, after)


def _fields(
    before: Standing | None, after: Standing | None, names: Names
) -> tuple[dict[str, Flat], dict[str, Flat]]:
    """Where both are there, fields at their default too: a field that leaves its default has an old value."""
    if before is None or after is None:
        there = flatten(_state(before or after), names)
        return ({}, there) if before is None else (there, {})
    old, new = (flatten(each.state, names, every=True) for each in (before, after))
    return {**old, "failed": before.failed}, {**new, "failed": after.failed}


def _state(standing: Standing | None) -> State:
    assert standing is not None
    return standing.state


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
        return [change for change in field_changes(of, names) if self.is_field(change.path)]

    def is_of(self, label: str, names: Names) -> bool:
        return not self.actor or means(self.actor, label, names)

    def is_field(self, path: str) -> bool:
        return path == self.field or path.endswith(f".{self.field}")


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
