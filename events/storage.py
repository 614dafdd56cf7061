"""Where segments live: a directory on a disk that may be slow, full, broken, or hung.

Reading is synchronous (`events.source`). Writing goes through `Storage`: every call runs in a thread of this
location's own, and is abandoned when the caller gives up, so that a hung disk holds nobody.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from events.source import DirectorySource as DirectorySource
from events.source import Source as Source
from events.source import StoredFile as StoredFile

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
#: What is above the journal is somebody else's to close; the umask counts.
PARENT_MODE = 0o777
LOCK_NAME = "lock"
RESERVE_NAME = "reserve"

#: What a lock file may say of its holder.
OWNER_BYTES_MAX = 256

#: A write, a sync and one call of retention at a time; a hung location keeps its threads for itself.
THREADS_MAX = 3

#: What the kernel says when space, and not the disk, is what is missing: the reserve helps.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class JournalLocked(Exception):
    """Another program writes this journal; end it first, or name another directory with --journal."""


class SegmentFile(Protocol):
    """One segment while it is written. Raises OSError; after that the file is not to be used again."""

    async def write(self, data: bytes) -> None:
        """All of it, at the end."""

    async def sync(self) -> None:
        """Everything written before this call is durable when it returns."""

    async def close(self) -> None:
        """Give its descriptor back, whatever still hangs in it; again is no error."""


class Storage(Protocol):
    """Write access to one location."""

    @property
    def location(self) -> str: ...

    @property
    def source(self) -> Source: ...

    async def acquire(self, program: str) -> None:
        """Make the directory where it is missing and become its only writer, again is no error.

        Raises JournalLocked, naming the other's program and process id, and OSError.
        """

    async def create(self, name: str) -> SegmentFile:
        """A new file, its name durable. Raises OSError, also where the name is taken."""

    async def sync_file(self, name: str) -> None:
        """Make an existing file durable that another process may have written; cheap where it is."""

    async def put(self, name: str, data: bytes) -> None:
        """A whole file, durable, or none at all. Raises OSError."""

    async def set_reserve(self, size_bytes: int) -> None:
        """Keep space aside for a full disk; 0 gives it back. Raises OSError."""

    async def remove(self, name: str) -> None:
        """Durably, so that files vanish in the order in which they were removed."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Run a blocking function, such as a scan of ``source``, where this location's I/O runs."""

    async def release(self) -> None:
        """Stop being the writer."""


class DirectoryFile:
    """A segment file on a real disk."""

    def __init__(self, descriptor: int, limiter: trio.CapacityLimiter) -> None:
        self._descriptor = descriptor
        self._limiter = limiter
        self._guard = threading.Lock()
        self._users = 0
        self._closing = False

    async def write(self, data: bytes) -> None:
        await _in_thread(self._limiter, self._use, lambda descriptor: _write_all(descriptor, data))

    async def sync(self) -> None:
        await _in_thread(self._limiter, self._use, os.fdatasync)

    async def close(self) -> None:
        with self._guard:
            closes = not self._closing and not self._users
            self._closing = True
        if closes:
            await _in_thread(self._limiter, os.close, self._descriptor)

    def _use(self, work: Callable[[int], None]) -> None:
        """The last that leaves a closed file closes its descriptor: until then the number is not free, and
        a write that hung goes on into no other file.
        """
        with self._guard:
            if self._closing:
                raise OSError(errno.EBADF, "the segment was given up")
            self._users += 1
        try:
            work(self._descriptor)
        finally:
            with self._guard:
                self._users -= 1
                closes = self._closing and not self._users
            if closes:
                os.close(self._descriptor)


class DirectoryStorage:
    """A directory on a real disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source = DirectorySource(path)
        self._path = Path(path)
        self._limiter = trio.CapacityLimiter(THREADS_MAX)
        self._lock = -1
        #: An attempt that was given up must have ended before the next: else we meet our own lock.
        self._locking = threading.Lock()

    @property
    def location(self) -> str:
        return self.source.location

    async def acquire(self, program: str) -> None:
        if self._lock < 0:
            owner = f"{program} {os.getpid()}\n"
            self._lock = await _take(self._limiter, self._locking, _lock, self._path, owner)

    async def create(self, name: str) -> DirectoryFile:
        taking = threading.Lock()
        descriptor = await _take(self._limiter, taking, _create, self._path, name)
        return DirectoryFile(descriptor, self._limiter)

    async def sync_file(self, name: str) -> None:
        await self.call(_sync_file, self._path / name)

    async def put(self, name: str, data: bytes) -> None:
        await self.call(_put, self._path, name, data)

    async def set_reserve(self, size_bytes: int) -> None:
        await self.call(_set_reserve, self._path / RESERVE_NAME, size_bytes)

    async def remove(self, name: str) -> None:
        await self.call(_remove, self._path, name)

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        return await _in_thread(self._limiter, function, *args)

    async def release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            await self.call(os.close, lock)


async def _in_thread(limiter: trio.CapacityLimiter, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=limiter)


async def _take(
    limiter: trio.CapacityLimiter,
    taking: threading.Lock,
    function: Callable[[Unpack[Ts]], int],
    *args: *Ts,
) -> int:
    """A descriptor that ``function`` opens, under ``taking``; closed when its caller has given up."""
    taken: list[int] = []
    abandoned = threading.Event()

    def work() -> int:
        with taking:
            if abandoned.is_set():
                raise OSError(errno.ETIMEDOUT, "given up")
            taken.append(function(*args))
            if abandoned.is_set():
                _close(taken)
        return -1

    try:
        await _in_thread(limiter, work)
    except trio.Cancelled:
        abandoned.set()
        _close(taken)
        raise
    return taken[0]


def _close(taken: list[int]) -> None:
    """At most once, whichever thread is first."""
    try:
        descriptor = taken.pop()
    except IndexError:
        return
    os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _create(directory: Path, name: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(directory / name, flags, FILE_MODE)
    try:
        _sync_directory(directory)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _put(directory: Path, name: str, data: bytes) -> None:
    part = directory / f"{name}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(part, directory / name)
    _sync_directory(directory)


def _remove(directory: Path, name: str) -> None:
    os.unlink(directory / name)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _lock(directory: Path, owner: str) -> int:
    _make_directory(directory, DIRECTORY_MODE)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, OWNER_BYTES_MAX, 0)
        os.close(descriptor)
        raise JournalLocked(_locked_by(directory, holder)) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _make_directory(directory: Path, mode: int) -> None:
    """Durably: what is made inside is worth nothing where a power cut takes the directory itself."""
    if directory.is_dir():
        return
    _make_directory(directory.parent, PARENT_MODE)
    directory.mkdir(mode, exist_ok=True)
    _sync_directory(directory.parent)


def _locked_by(directory: Path, content: bytes) -> str:
    program, _, pid = content.decode("utf-8", "replace").strip().rpartition(" ")
    holder = f"{program} (process {pid})" if program else "another process"
    return f"{holder} writes the journal in {directory}: end it first, or name another with --journal"


def _set_reserve(path: Path, size_bytes: int) -> None:
    if size_bytes == 0:
        path.unlink(missing_ok=True)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    finally:
        os.close(descriptor)
