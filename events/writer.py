"""The journal's writer: `append` never blocks and no disk fails it, the disk follows as fast as it can.

Everything queued is one write; a sync covers all that was written before it (group commit). With no
location left the transitions go to a last resort. Evidence never outranks the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from events.backlog import Backlog
from events.chain import Chain, Item, Start
from events.driver import Driver
from events.facts import StorageFailed
from events.frames import FrameTooLarge
from events.lastresort import transition_line
from events.marks import Checkpoint
from events.record import Record, Stamp
from events.reports import Reports
from events.segment import Identity
from events.storage import Storage

#: Emits the records of the journal itself.
JOURNAL_ACTOR = "journal"


class Writer:
    """One process's writer: `open`, then `begin_segment`, then `append` while `run` runs.

    Callbacks are called from the writer's tasks or from `append`, and must not block:
    ``on_failed(location, error)``, ``on_moved(location, first_seq)``, ``on_lost(error)`` when no location
    is left, and ``last_resort(line)`` for each transition from then on.
    """

    def __init__(
        self,
        storages: Sequence[Storage],
        identity: Identity,
        start: Start,
        *,
        program: str = "ebbtide",
        on_failed: Callable[[str, str], None],
        on_moved: Callable[[str, int], None],
        on_lost: Callable[[str], None],
        last_resort: Callable[[str], None],
    ) -> None:
        self._chain = Chain(identity, start)
        self._backlog = Backlog(self._chain)
        self._driver = Driver(storages, self._backlog, program, Reports(on_failed, on_moved, self._on_lost))
        self._tell_failed, self._tell_lost, self._last_resort = on_failed, on_lost, last_resort

    @property
    def journal_id(self) -> bytes:
        """16 random bytes, given by whoever began the journal."""
        return self._chain.journal_id

    @property
    def location(self) -> str:
        """Where the journal is being written; empty when it is lost."""
        return self._driver.location

    @property
    def away(self) -> bool:
        """Not at the first location. A new segment prepares the way back, a later one takes it."""
        return self._driver.away

    @property
    def lost(self) -> bool:
        """No location is left: nothing more is written, and nobody need wait for it."""
        return self._backlog.lost

    @property
    def last_seq(self) -> int:
        return self._chain.end.seq

    @property
    def written_seq(self) -> int:
        return self._backlog.written.seq

    @property
    def synced_seq(self) -> int:
        return self._backlog.durable.seq

    @property
    def segment_bytes(self) -> int:
        """The size of the current segment, the queue included."""
        return self._chain.end.offset

    async def open(self) -> None:
        """Become the writer of the first location that works; make the history's end durable.

        Raises JournalLocked. A location that cannot be used is reported and passed over.
        """
        await self._driver.open()

    def begin_segment(self, anchor: Stamp, checkpoint: Checkpoint | None = None) -> Record | None:
        """A new segment from here on, beginning with ``checkpoint``; at once, and without waiting.

        Returns the checkpoint's record: it takes a number of its own.
        """
        self._queue(self._chain.begin_segment(anchor))
        if checkpoint is None:
            return None
        record = Record(
            seq=self.last_seq + 1,
            mono_ns=anchor.mono_ns,
            wall_ns=anchor.wall_ns,
            episode=checkpoint.episode,
            cause=0,
            actor=JOURNAL_ACTOR,
            last=True,
            event=checkpoint,
        )
        self.append((record,))
        return record

    def append(self, records: Sequence[Record]) -> list[bytes]:
        """Queue records for writing; their chain hashes. Raises ValueError for a gap in the numbers.

        An event that is larger than a frame may be is told of, and the journal says so in its place.
        """
        items = [self._item(record) for record in records]
        self._queue(items)
        for record in records:
            if getattr(record.event, "barrier", None) == "synced":
                self._backlog.want_sync(record.seq)
        return [item.end.hash for item in items]

    async def wait_written(self, seq: int) -> bool:
        """Until record ``seq`` survives our own death; False when the journal is lost."""
        while self.written_seq < seq and not self.lost:
            await self._backlog.changed()
        return self.written_seq >= seq

    async def wait_synced(self, seq: int) -> bool:
        """Until record ``seq`` survives a power cut; False when the journal is lost."""
        self._backlog.want_sync(seq)
        while self.synced_seq < seq and not self.lost:
            await self._backlog.changed()
        return self.synced_seq >= seq

    async def run(self) -> None:
        """Write until cancelled, until `close` has sealed the segment, or until the journal is lost."""
        await self._driver.run()

    async def close(self) -> None:
        """Write what is queued, seal the segment, give the lock back; nothing may be appended any more.

        Waits for ``run``, which must be running and returns then.
        """
        self._queue([self._chain.seal()])
        self._backlog.closing = True
        while not self._backlog.settled:
            await self._backlog.changed()
        await self._driver.release()

    def _item(self, record: Record) -> Item:
        try:
            return self._chain.append(record, self.synced_seq)
        except FrameTooLarge as error:
            self._tell_failed(self.location, str(error))
            told = StorageFailed(location=self.location, error=str(error))
            return self._chain.append(msgspec.structs.replace(record, event=told), self.synced_seq)

    def _queue(self, items: Sequence[Item]) -> None:
        if self.lost:
            self._tell(items)
        else:
            self._backlog.add(items)

    def _on_lost(self, error: str, undurable: Sequence[Item]) -> None:
        self._tell_lost(error)
        self._tell(undurable)

    def _tell(self, items: Sequence[Item]) -> None:
        for item in items:
            line = transition_line(item.record) if item.record else None
            if line is not None:
                self._last_resort(line)
