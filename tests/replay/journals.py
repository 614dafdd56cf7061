"""Small journals beside the golden ones: edited records, other versions, two shutdowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ebbtide.events.base import Event, Record
from ebbtide.events.segment import SHUTDOWN_LOGIC
from tests.journals import IDENTITY, segment, write_files


def write(folder: Path, written: Iterable[Record], logic: str = SHUTDOWN_LOGIC, boot: str = "boot-1") -> Path:
    """A journal of one segment; its folder."""
    identity = IDENTITY._replace(boot_id=boot, logic=logic)
    return write_files(folder, segment(written, identity=identity, durable=False))


def edit(written: list[Record], seq: int, change: Callable[[Event], Event]) -> list[Record]:
    """The same records, with one event changed."""
    return [
        msgspec.structs.replace(record, event=change(record.event)) if record.seq == seq else record
        for record in written
    ]
