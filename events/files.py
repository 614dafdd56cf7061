"""Whole files that a power cut leaves old or new, never in between. Blocking, and without Trio."""

from __future__ import annotations

import os
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
