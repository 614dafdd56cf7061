"""Which lines of a timeline are wanted: by actor, pod, wave, and from where to where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from replay.timeline import Line

Scale = Literal["seq", "since_ns", "wall_ns"]


class Moment(NamedTuple):
    """A place in a journal: a record's number, nanoseconds since the signal, or since 1970 UTC."""

    scale: Scale
    value: int

    def of(self, line: Line) -> int:
        """The line's place on the same scale."""
        place: int = getattr(line, self.scale)
        return place


class Wanted(NamedTuple):
    """``actor`` is a full name, with its subject or without, or a short one; ``pod`` any of a pod's names.

    ``since`` and ``until`` are inclusive. Without ``all`` only what matters to a person.
    """

    actor: str = ""
    pod: str = ""
    wave: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    all: bool = True

    def takes(self, line: Line) -> bool:
        return (
            (self.all or line.brief)
            and (self.wave is None or line.wave == self.wave)
            and (not self.actor or is_actor(self.actor, line.actor, line.short))
            and (not self.pod or is_pod(self.pod, line.uid, line.pod))
            and (self.since is None or self.since.of(line) >= self.since.value)
            and (self.until is None or self.until.of(line) <= self.until.value)
        )

    def names_pod(self, labels: Mapping[str, str]) -> bool:
        """Whether the wanted pod is among these, UID to ``namespace/name``."""
        return any(is_pod(self.pod, uid, label) for uid, label in labels.items())


EVERYTHING = Wanted()


def is_actor(wanted: str, actor: str, short: str) -> bool:
    """``HookActor`` and ``hook`` name all of them, ``HookActor:UID`` one."""
    name = actor.partition(":")[0]
    return wanted in (actor, name, short, name.removesuffix("Actor"), name.removesuffix("Actor").lower())


def is_pod(wanted: str, uid: str, label: str) -> bool:
    return bool(uid) and wanted in (uid, label, label.partition("/")[2])
