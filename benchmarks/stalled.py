"""The daemon on a disk that can be made to hang: every write and sync first takes a lock on a file.

Run as ``python -m benchmarks.stalled GATE`` and then ebbtide's arguments.

While somebody holds an exclusive lock on GATE, the daemon's disk threads block in the kernel, as they do on a
disk that does not answer. Nothing else of the daemon is changed.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Any

from ebbtide.events import disk as storage
from ebbtide.events import files


class Gate:
    """Stands in front of a function of the disk's threads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def guard(self, function: Any) -> Any:
        def behind(*args: Any) -> Any:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)
            return function(*args)

        return behind


class StalledOs:
    """`os` as the storage sees it."""

    def __init__(self, gate: Gate) -> None:
        self.write = gate.guard(os.write)
        self.fdatasync = gate.guard(os.fdatasync)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def main() -> None:
    gate = Gate(Path(sys.argv.pop(1)))
    for module in (files, storage):
        setattr(module, "os", StalledOs(gate))
    from ebbtide.cli import main as ebbtide

    ebbtide()


if __name__ == "__main__":
    main()
