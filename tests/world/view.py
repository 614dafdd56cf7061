"""What the invariants look at: one boot from outside (the trail) and from inside (the records)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from events.base import Event
from events.decisions import PodStopBegan
from events.record import Record
from tests.world.daemon import Life
from tests.world.pods import Box
from tests.world.trail import MS, Seen
from tests.world.world import Booted, World

EventT = TypeVar("EventT", bound=Event)

#: What an effect may take on its way: a step, its barrier, the edge's own latency, the way back.
SLACK_NS = 300 * MS


class Served(NamedTuple):
    """When a daemon was at work: from its readiness to its end."""

    life: int
    from_ns: int
    to_ns: int


class BootView:
    """One boot. ``records`` are those that its daemons made, in their order."""

    #: Between a daemon's readiness and its knowing what had happened before it.
    CATCH_UP_NS = 50 * MS
    #: Ends are reported one after the other, each a few milliseconds late.
    REPORT_NS = 30 * MS

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.booted: Booted = world.boots[index]
        self.node = self.booted.node
        self.number = index + 1
        self.seen = [seen for seen in world.trail.seen if seen.boot == self.number]
        self.records = list(_remembered(self.booted.lives))
        self.served = list(self._served())
        #: The journal left the disk in this boot, so that the next boot may know less than happened.
        self.fled = any(seen.what.startswith("journal-") for seen in self.seen)
        #: No place was left for the journal, or it could not be read: even this boot's own daemons know less.
        self.hurt = any(seen.what in ("journal-lost", "error") for seen in self.seen)

    def of(self, *whats: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.what in whats]

    def events(self, kind: type[EventT]) -> Iterator[tuple[Record, EventT]]:
        for record in self.records:
            if isinstance(record.event, kind):
                yield record, record.event

    def at_ns(self, record: Record) -> int:
        """A record's stamp in world time."""
        return self.node.clock.world_ns(record.mono_ns)

    def _served(self) -> Iterator[Served]:
        ready: dict[int, int] = {}
        for seen in self.seen:
            if seen.what == "ready":
                ready[seen.life] = seen.at_ns
            elif seen.what in ("crash", "left") and seen.life in ready:
                yield Served(seen.life, ready.pop(seen.life), seen.at_ns)

    def served_through(self, from_ns: int, to_ns: int) -> bool:
        """Whether one and the same daemon was at work all the time."""
        return any(each.from_ns <= from_ns and to_ns <= each.to_ns for each in self.served)

    @property
    def ended_ns(self) -> int:
        return next(seen.at_ns for seen in self.seen if seen.what == "down")

    @property
    def stopping_ns(self) -> int:
        """When the service manager began to stop units, or the machine went down."""
        return next(seen.at_ns for seen in self.seen if seen.what in ("stopping", "down"))

    # --- pods --------------------------------------------------------------------------------------

    def boxes(self) -> list[Box]:
        return list(self.node.pods.boxes.values())

    def of_box(self, box: Box, *whats: str) -> list[Seen]:
        return [seen for seen in self.of(*whats) if (seen.uid, seen.container) == (box.uid, box.name)]

    def exit_ns(self, box: Box) -> int:
        """When it was gone; after the boot's end if it never was."""
        exits = self.of_box(box, "exit", "dropped")
        return exits[0].at_ns if exits else self.ended_ns + 1

    def exit_signal(self, box: Box) -> str:
        return next((seen.detail for seen in self.of_box(box, "exit")), "")

    def gone_was_known_ns(self, box: Box) -> int:
        """When a daemon can have heard of its end: of what ended while none was there, after its start."""
        exit_ns = self.exit_ns(box)
        starts = [each.from_ns for each in self.served if each.to_ns > exit_ns]
        return max(exit_ns + self.REPORT_NS, min(starts, default=self.ended_ns) + self.CATCH_UP_NS)

    def begins(self) -> dict[str, tuple[int, PodStopBegan]]:
        """Each pod's first `PodStopBegan` and when it was, by UID."""
        found: dict[str, tuple[int, PodStopBegan]] = {}
        for record, event in self.events(PodStopBegan):
            found.setdefault(event.uid, (self.at_ns(record), event))
        return found

    # --- episodes ----------------------------------------------------------------------------------

    def episodes(self) -> dict[int, list[Record]]:
        """The records of each shutdown that stand in this boot."""
        found: dict[int, list[Record]] = {}
        for record in self.records:
            if record.episode:
                found.setdefault(record.episode, []).append(record)
        return found


def _remembered(lives: list[Life]) -> Iterator[Record]:
    """What each daemon decided, as far as the next one knew of it; of the last one everything.

    The journal itself is not asked: retention may have taken the beginning, and the boot's end the rest.
    """
    readers = [life for life in lives if life.goes_on_after is not None]
    for at, life in enumerate(readers):
        known = readers[at + 1].goes_on_after if at + 1 < len(readers) else None
        yield from (record for record in life.records if not known or record.seq <= known)
