"""Becoming the writer of a location: its lock, and the history brought there.

A fallback location is likely to be lost with the boot. So whoever settles at a better one takes the segments
of the others along, as whole files: no link may name what a power cut or a reboot can take.
"""

from __future__ import annotations

from collections.abc import Sequence

from events.bounds import SYNC_HANG_SECONDS, bounded
from events.segment import parse_file_name
from events.storage import Source, Storage

#: Of one segment that is brought from another location: far more than one ever has.
FILE_BYTES_MAX = 1024 * 1024 * 1024


async def settle(storage: Storage, others: Sequence[Storage], program: str, journal_id: bytes) -> None:
    """Raises JournalLocked, and OSError where the location or the history at another cannot be used.

    All segments there are synced: a process before may have left any of them in the page cache only.
    """
    await bounded(storage.acquire, program)
    there = await bounded(storage.call, _segments, storage.source, journal_id)
    for name in there:
        await bounded(storage.sync_file, name, seconds=SYNC_HANG_SECONDS)
    for other in others:
        for name in await bounded(other.call, _segments, other.source, journal_id):
            if name not in there:
                data = await bounded(other.call, other.source.read, name, 0, FILE_BYTES_MAX)
                await bounded(storage.put, name, data, seconds=SYNC_HANG_SECONDS)


def _segments(source: Source, journal_id: bytes) -> list[str]:
    """The names of a journal's segments at one location."""
    ours = journal_id.hex()[:8]
    named = ((file.name, parse_file_name(file.name)) for file in source.files() if file.size)
    return [name for name, parts in named if parts and parts[1] == ours]
