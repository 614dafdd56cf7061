"""Whole files that a crash leaves old or new, never in between; where they are synced, a power cut too.

And whose the folder is that they are written to: whoever else may write to it can put a link under any of our
names, and root would follow it. Blocking, and without Trio.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_MODE = 0o600
ROOT = 0
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def own_directory(directory: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor of a directory that nobody but us and root can write to. Raises OSError with the cure."""
    # A link may lead to it, as administrators move a journal to a larger disk; but not a stranger's link.
    _require_own(os.lstat(directory), directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _require_own(found, directory)
        # A group with our own number is ours alone, by the convention of those who give each user one.
        own_group = stat.S_IWGRP if found.st_gid == os.getegid() == os.geteuid() else 0
        if found.st_mode & WRITABLE_BY_OTHERS & ~own_group:
            who = "others may write to it: close it with chmod go-w, or name another folder"
            raise OSError(errno.EPERM, who, os.fspath(directory))
        yield descriptor
    finally:
        os.close(descriptor)


def _require_own(found: os.stat_result, directory: str | os.PathLike[str]) -> None:
    if found.st_uid not in (ROOT, os.geteuid()):
        who = f"it belongs to user {found.st_uid}: make it ours with chown, or name another folder"
        raise OSError(errno.EPERM, who, os.fspath(directory))


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


#: The temporary files that are being written. The lock is for this set alone, and held over no write.
_temporaries: set[Path] = set()
_temporaries_lock = threading.Lock()


@contextmanager
def _temporary(names: Iterator[Path]) -> Iterator[Path]:
    """One that no other thread writes to; the first, so that the next writes over what a crash leaves."""
    with _temporaries_lock:
        temporary = next(name for name in names if name not in _temporaries)
        _temporaries.add(temporary)
    try:
        yield temporary
    finally:
        with _temporaries_lock:
            _temporaries.discard(temporary)


def replace_file(directory: Path, name: str, data: bytes) -> None:
    """A whole file, durable when it returns, or none; one that was there is replaced. Raises OSError, also
    where others may write to the directory.
    """
    # The content is synced before the rename, and the name after it: the other way round a power cut could
    # leave an empty file under the right name.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    numbers = itertools.chain(("",), (f"{number}." for number in itertools.count(1)))
    with (
        _temporary(directory / f"{name}.{number}part" for number in numbers) as part,
        own_directory(directory) as folder,
    ):
        descriptor = os.open(part.name, flags, FILE_MODE, dir_fd=folder)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(part.name, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


#: Of what an edge remembers: a thousand pods' objects as they are kept.
OWN_BYTES_MAX = 16 * 1024 * 1024


def read_own(path: Path, bytes_max: int = OWN_BYTES_MAX) -> bytes:
    """A file that only we or root can have written, and no more of it than this. Raises OSError."""
    with own_directory(path.parent) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path.name, flags, dir_fd=folder), "rb") as file:
            return file.read(bytes_max)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Old content or new, never half of it; readable for the owner only. Raises OSError, also where others
    may write to the folder.

    For what an edge remembers: the name's own durability is not waited for, as it is in `replace_file`. Two
    writers at a time are let alone by each other, and the last to finish stands.
    """
    names = (path.with_name(f".{path.name}.{number}.new") for number in itertools.count())
    with _temporary(names) as temporary, own_directory(path.parent) as folder:
        _replace_in(folder, temporary.name, path.name, data, sync)


def _replace_in(folder: int, temporary: str, name: str, data: bytes, sync: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, FILE_MODE, dir_fd=folder), "wb") as file:
            file.write(data)
            file.flush()
            # Before the rename: after a crash the name may otherwise stand for a file without its content.
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
