"""Becoming the writer of a location: its lock, and the history brought there.

A fallback location is likely to be lost with the boot. So whoever settles at a better one takes the segments
of the others along, as whole files: no link may name what a power cut or a reboot can take.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from events.bounds import SYNC_HANG_SECONDS, bounded
from events.segment import parse_file_name
from events.storage import JournalLocked, Source, Storage

#: Of one segment that is brought from another location: far more than one ever has.
FILE_BYTES_MAX = 1024 * 1024 * 1024


class Settler:
    """One process's way of settling. It remembers what it must not believe."""

    def __init__(self, program: str, journal_id: bytes) -> None:
        self._program = program
        self._journal_id = journal_id
        #: Files whose sync failed: the kernel has forgotten what is missing, and the next sync would succeed.
        self._doubtful: set[tuple[str, str]] = set()

    async def settle(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """Raises JournalLocked, and OSError where the location or the history at another cannot be used.

        All segments there are synced: a process before may have left any of them in the page cache only. Of
        the others, those with a number under ``below`` are brought.
        """
        await self.acquire(storage)
        there = await bounded(storage.call, _segments, storage.source, self._journal_id, None)
        for name in there:
            await self._make_durable(storage, name)
        await self.bring(storage, others, below)

    async def bring(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """The others' segments that are missing at ``storage``. Raises OSError."""
        there = await bounded(storage.call, _segments, storage.source, self._journal_id, None)
        for other in others:
            for name in await bounded(other.call, _segments, other.source, self._journal_id, below):
                if name not in there:
                    await _copy(name, other, storage)

    async def acquire(self, storage: Storage) -> None:
        await bounded(storage.acquire, self._program)

    async def _make_durable(self, storage: Storage, name: str) -> None:
        """A file that cannot be synced is replaced, in one rename, by a new one with the same bytes."""
        doubt = (storage.location, name)
        if doubt not in self._doubtful:
            try:
                await bounded(storage.sync_file, name, seconds=SYNC_HANG_SECONDS)
                return
            except OSError:
                self._doubtful.add(doubt)
        await _copy(name, storage, storage)
        self._doubtful.discard(doubt)


class WayBack:
    """From a fallback to the first location, in two steps: syncing what lies there may take its time, and
    happens beside the writing; what was written meanwhile is brought at the begin of a later segment.
    """

    def __init__(self, settler: Settler, storages: Sequence[Storage]) -> None:
        self._settler = settler
        self._storages = storages
        self._ready = self._busy = False

    async def prepare(self, segment: int) -> None:
        """All before this segment, which is being written. Where that fails, all stays as it is."""
        if self._busy:
            return
        self._busy = True
        with suppress(OSError, JournalLocked):
            await self._settler.settle(self._storages[0], self._storages[1:], segment)
            self._ready = True
        self._busy = False

    async def finish(self) -> bool:
        """Between two segments: the rest, if it was prepared; True when the first location has it all."""
        ready, self._ready = self._ready, False
        if ready:
            with suppress(OSError):
                await bounded(self._settler.bring, self._storages[0], self._storages[1:])
                return True
        return False


async def _copy(name: str, source: Storage, target: Storage) -> None:
    data = await bounded(source.call, source.source.read, name, 0, FILE_BYTES_MAX)
    await bounded(target.put, name, data, seconds=SYNC_HANG_SECONDS)


def _segments(source: Source, journal_id: bytes, below: int | None) -> list[str]:
    """The names of a journal's segments at one location, all or those under a number."""
    ours = journal_id.hex()[:8]
    named = ((file.name, parse_file_name(file.name)) for file in source.files() if file.size)
    return [
        name for name, parts in named if parts and parts[1] == ours and (below is None or parts[0] < below)
    ]
