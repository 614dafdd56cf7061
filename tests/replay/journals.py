"""Small journals for what the golden ones do not hold: edited records, other versions, two shutdowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ebbtide.events.base import Event, Record
from tests.journals import IDENTITY, segment, write_files


def write(folder: Path, written: Iterable[Record], flags: tuple[str, ...] = (), boot: str = "boot-1") -> Path:
    """A journal of one segment; its folder."""
    identity = IDENTITY._replace(boot_id=boot, logic_flags=flags)
    return write_files(folder, segment(written, identity=identity, durable=False))


def edit(written: list[Record], seq: int, change: Callable[[Event], Event]) -> list[Record]:
    """The same records, with one event changed."""
    return [
        msgspec.structs.replace(record, event=change(record.event)) if record.seq == seq else record
        for record in written
    ]
