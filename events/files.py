"""Whole files that a crash leaves old or new, never in between; where they are synced, a power cut too.

Blocking, and without Trio.
"""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600


def write_all(descriptor: int, data: bytes) -> None:
    # A write may take a part only (a signal, a disk that fills up); without a view the rest would be copied
    # again for each.
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(directory: Path) -> None:
    """The names in it are durable when it returns."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(directory: Path, name: str, data: bytes) -> None:
    """A whole file, durable when it returns, or none; one that was there is replaced. Raises OSError."""
    # The content is synced before the rename, and the name after it: the other way round a power cut could
    # leave an empty file under the right name.
    part = directory / f"{name}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(part, directory / name)
    sync_directory(directory)


#: The temporary files that are being written. The lock is for this set alone, and held over no write.
_temporaries: set[Path] = set()
_temporaries_lock = threading.Lock()


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Old content or new, never half of it; readable for the owner only. Raises OSError.

    For what an edge remembers: the name's own durability is not waited for, as it is in `replace_file`. Two
    writers at a time are let alone by each other, and the last to finish stands.
    """
    with _temporaries_lock:
        names = (path.with_name(f".{path.name}.{number}.new") for number in itertools.count())
        # One that no other thread writes to; the first, so that what a crash leaves is written over by the
        # next.
        temporary = next(name for name in names if name not in _temporaries)
        _temporaries.add(temporary)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            # Before the rename: after a crash the name may otherwise stand for a file without its content.
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        with _temporaries_lock:
            _temporaries.discard(temporary)
