"""Memory limits for reading journals that strangers may have made: an error names the journal.

No process takes more than 256 MiB. A command has 50 before it reads, a worker of a fleet 110. They look
before each read and each few rows.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ebbtide.events.catalog import Source, StoredFile
from ebbtide.events.recovery import stated_findings
from ebbtide.events.units import size_text

#: Beyond that. A shutdown of 2 000 pods needs 60 in a worker, and 20 in a command.
WORKER_BYTES_MAX, READER_BYTES_MAX = 80 << 20, 128 << 20
#: The rest of the 256 is for a piece, and for answers on their way.
PROCESS_BYTES_MAX, ORDINARY_BYTES = 192 << 20, 16 << 20
#: For a page, which then has its record's texts several times.
PAGE_READER_BYTES_MAX = 64 << 20
ITEMS_A_LOOK = 16
T = TypeVar("T")


def too_large_text(bytes_max: int) -> str:
    return f"reading it takes more than {size_text(bytes_max)} of memory, which no node's journal does"


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class MemoryWatch:
    """``bytes_max``: more than now, up to the whole process's limit. ``reading``: for the error."""

    def __init__(self, bytes_max: int, reading: str = "the journal") -> None:
        now = _resident_bytes()
        # Freed memory may stay with the process after another journal: an ordinary one is read all the same.
        self._bytes_max = min(now + bytes_max, max(PROCESS_BYTES_MAX, now + ORDINARY_BYTES))
        self._problem = f"{reading}: {too_large_text(bytes_max)}"

    def look(self) -> None:
        """Raises MemoryError."""
        if _resident_bytes() > self._bytes_max:
            raise MemoryError(self._problem)

    def watched(self, items: Iterable[T]) -> Iterator[T]:
        for count, item in enumerate(items):
            if count % ITEMS_A_LOOK == 0:
                self.look()
            yield item


class WatchedSource:
    """Looks before each read. The error names the journal, also from a process of the pool."""

    def __init__(self, source: Source) -> None:
        self._source, self._memory = source, MemoryWatch(READER_BYTES_MAX, source.location)
        #: A packed journal has its original's damage.
        self.stated = stated_findings(source)

    @property
    def location(self) -> str:
        return self._source.location

    def files(self) -> list[StoredFile]:
        return self._source.files()

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Raises MemoryError, OSError."""
        self._memory.look()
        return self._source.read(name, offset, size)
