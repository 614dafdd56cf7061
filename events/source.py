"""Where segments are read from: a location is a list of files and their bytes, and nothing is touched.

Apart from `events.storage`, because whoever only reads needs no Trio: a command that looks into a journal
starts in a third of the time.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol


class StoredFile(NamedTuple):
    """A file of a location: its name, its length in bytes, and when it was last written (wall clock)."""

    name: str
    size: int
    modified_ns: int


class Source(Protocol):
    """Read access to one location. Raises OSError. A location that does not exist is empty."""

    @property
    def location(self) -> str: ...

    def files(self) -> list[StoredFile]:
        """All files, sorted by name."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end of the file."""


class DirectorySource:
    """A real directory, only ever read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.location = os.fspath(path)

    def files(self) -> list[StoredFile]:
        try:
            with os.scandir(self.location) as entries:
                found = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        return sorted(StoredFile(name, stat.st_size, stat.st_mtime_ns) for name, stat in found)

    def read(self, name: str, offset: int, size: int) -> bytes:
        with open(os.path.join(self.location, name), "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)
