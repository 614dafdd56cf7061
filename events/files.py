"""Segment files within the journal's bounds: begun with their first bytes, and closed whatever hangs."""

from __future__ import annotations

from contextlib import suppress

from events.bounds import bounded
from events.storage import SegmentFile, Storage


async def begin(storage: Storage, name: str, data: bytes) -> SegmentFile:
    """A new file that begins with ``data``. Raises OSError, and keeps no descriptor then."""
    file = await bounded(storage.create, name)
    try:
        await bounded(file.write, data)
    except OSError:
        await close(file)
        raise
    return file


async def close(file: SegmentFile) -> None:
    """Only a descriptor is at stake: what was not durable is written again elsewhere."""
    with suppress(OSError):
        await bounded(file.close)
