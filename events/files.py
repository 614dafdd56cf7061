"""Replaces files as a whole: after a crash, and with a sync after a power cut, a file is old or new.

The folder must be ours: another writer could put a link there, and root would follow it.
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
    """A descriptor of a directory that only we and root can write to. Raises OSError with the cure."""
    # An administrator may link to a larger disk, so check the link's owner too.
    _require_own(os.lstat(directory), directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _require_own(found, directory)
        # By convention, a group with our own number has no other member.
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
    # A write may be partial. Without a view each retry would copy the rest.
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


#: The temporary files in use. The lock guards only this set.
_temporaries: set[Path] = set()
_temporaries_lock = threading.Lock()


@contextmanager
def _temporary(path: Path) -> Iterator[str]:
    """The first free name, so that the next write replaces the leftover of a crash."""
    names = (path.with_name(f".{path.name}.{number}.new") for number in itertools.count())
    with _temporaries_lock:
        temporary = next(name for name in names if name not in _temporaries)
        _temporaries.add(temporary)
    try:
        yield temporary.name
    finally:
        with _temporaries_lock:
            _temporaries.discard(temporary)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Raises OSError, also if others may write to the directory. The last of two writers wins."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with _temporary(path) as temporary, own_directory(path.parent) as folder:
        try:
            descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=folder)
            try:
                write_all(descriptor, data)
                # Before the rename, or after a power cut the name could have a file without its content.
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def replace_file(path: Path, data: bytes) -> None:
    """The file and its name are durable at the return."""
    write_atomically(path, data, sync=True)
    sync_directory(path.parent)


#: Room for the objects of a thousand pods.
OWN_BYTES_MAX = 16 * 1024 * 1024


def read_own(path: Path, bytes_max: int = OWN_BYTES_MAX) -> bytes:
    """Reads only a file that no other user can write. Raises OSError."""
    with own_directory(path.parent) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path.name, flags, dir_fd=folder), "rb") as file:
            return file.read(bytes_max)
