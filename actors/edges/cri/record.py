"""Which containers a shutdown was given, kept for the daemon's next life.

What has ended while no daemon ran is then reported by the next one, and nothing else is. The file means
nothing after a reboot, so it is not synced, and its folder belongs on a file system that goes with the boot.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from actors.edges.cri.table import Told
from actors.edges.process.record import write_atomically

FILE_NAME = "told"


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the file holds."""

    boot_id: str
    told: tuple[Told, ...]


class ToldFile:
    """One file in ``folder``, which is made if need be. Raises OSError when it cannot be made."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / FILE_NAME
        self._boot_id = boot_id
        self._stored = b""

    def store(self, told: list[Told]) -> None:
        """Only a change is written. Without it a restart learns later of what has ended: that may be."""
        record = msgspec.msgpack.encode(Record(boot_id=self._boot_id, told=tuple(told)))
        if record == self._stored:
            return
        with suppress(OSError):
            write_atomically(self._path, record)
            self._stored = record

    def load(self) -> tuple[Told, ...]:
        """Empty for another boot, or when there is nothing of use."""
        try:
            record = msgspec.msgpack.decode(self._path.read_bytes(), type=Record)
        except (OSError, ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
            return ()
        return record.told if record.boot_id == self._boot_id else ()
