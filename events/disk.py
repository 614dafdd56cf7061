"""Where segments are written: a directory on a disk that may be slow, full, broken, or hung.

Reading is synchronous (`events.catalog`). Writing goes through `Storage`: every call runs in a thread of
this location's own, and is abandoned when the caller gives up, so that a hung disk holds nobody. `bounded`
says how long the journal waits.

`LocationTakeover` makes a process the writer of a location: its lock, and the history brought there. A
fallback location is likely to be lost with the boot, so whoever writes at a better one takes the segments
of the others along, as whole files: no link may name what a power cut or a reboot can take.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from ebbtide.events import bounds
from ebbtide.events.catalog import DirectorySource, Source
from ebbtide.events.files import FILE_MODE, own_directory, replace_file, sync_directory, write_all
from ebbtide.events.segment import SHORT_ID_DIGITS, parse_segment_file_name
from ebbtide.events.units import span_s

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


class Waits(NamedTuple):
    """How long the journal waits for a location before it gives it up, in seconds; how long written data
    stays unsynced there when nobody waits for it; and how long records gather before they are written, if
    nobody does.
    """

    call_seconds: float
    sync_seconds: float
    unsynced_seconds: float
    gather_seconds: float = 0.0


class Storage(Protocol):
    """Write access to one location."""

    @property
    def location(self) -> str: ...

    @property
    def waits(self) -> Waits: ...

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
        await _in_thread(self._limiter, self._use, lambda descriptor: write_all(descriptor, data))

    async def sync(self) -> None:
        await _in_thread(self._limiter, self._use, os.fdatasync)

    async def close(self) -> None:
        with self._guard:
            closes = not self._closing and not self._users
            self._closing = True
        if closes:
            await _in_thread(self._limiter, os.close, self._descriptor)

    def _use(self, work: Callable[[int], None]) -> None:
        # The last that leaves a closed file closes its descriptor: until then the number is not free, and a
        # write that hung for a minute goes on into no file that was opened meanwhile.
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
        self.source = DirectorySource(path, own=True)
        self._path = Path(path)
        self._limiter = trio.CapacityLimiter(THREADS_MAX)
        self._lock = -1
        #: An attempt that was given up must have ended before the next: else we meet our own lock.
        self._locking = threading.Lock()

    @property
    def location(self) -> str:
        return self.source.location

    @property
    def waits(self) -> Waits:
        return disk_waits()

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
        await self.call(replace_file, self._path, name, data)

    async def set_reserve(self, size_bytes: int) -> None:
        await self.call(_set_reserve, self._path, size_bytes)

    async def remove(self, name: str) -> None:
        await self.call(_remove, self._path, name)

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        return await _in_thread(self._limiter, function, *args)

    async def release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            await self.call(os.close, lock)


class Seen(NamedTuple):
    """What the kernel says of a thread. ``runs``: or would, if a processor were free; ``waits``: how often it
    has waited for something.
    """

    runs: bool
    waits: int


class _Thread:
    """In which a bounded call runs: its number while it does, and whether there is one at all."""

    def __init__(self) -> None:
        self.number = 0
        self.limiter: trio.CapacityLimiter | None = None

    @property
    def waits_for_processor(self) -> bool:
        """It has not begun, though it may, or has ended and nobody has been told."""
        return self.limiter is not None and not self.number and self.limiter.available_tokens > 0

    def look(self) -> Seen | None:
        """None where there is none, or nobody can tell."""
        number = self.number
        if not number:
            return None
        try:
            text = Path(f"/proc/self/task/{number}/status").read_text()
        except OSError:
            return None
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return Seen(fields["State"].split()[0] == "R", int(fields["voluntary_ctxt_switches"]))


_thread: ContextVar[_Thread | None] = ContextVar("thread", default=None)


async def _in_thread(limiter: trio.CapacityLimiter, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    if (thread := _thread.get()) is None:
        return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=limiter)
    thread.limiter = limiter

    def work() -> T:
        thread.number = threading.get_native_id()
        try:
            return function(*args)
        finally:
            thread.number = 0

    return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


async def _take(
    limiter: trio.CapacityLimiter,
    taking: threading.Lock,
    function: Callable[[Unpack[Ts]], int],
    *args: *Ts,
) -> int:
    """A descriptor that ``function`` opens, under ``taking``; closed when its caller has given up."""
    # An open that hangs in its thread is abandoned, and may succeed a minute later, when nobody wants the
    # file any more: then the thread closes it. Both look at the same list, and either may be first.
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
    # By taking it off the list, which is atomic: a number that was closed twice may be another file by then.
    try:
        descriptor = taken.pop()
    except IndexError:
        return
    os.close(descriptor)


def _create(directory: Path, name: str) -> int:
    # Exclusively: a file of that name is evidence of somebody's. Its name is made durable before any record
    # is in it, or a synced record could stand in a file that no directory lists after a power cut.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with own_directory(directory) as folder:
        descriptor = os.open(name, flags, FILE_MODE, dir_fd=folder)
        try:
            os.fsync(folder)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def _remove(directory: Path, name: str) -> None:
    # Synced one by one: a power cut may leave the newer of two and take the older, never the other way round,
    # and what is left begins with a checkpoint at every moment.
    with own_directory(directory) as folder:
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _lock(directory: Path, owner: str) -> int:
    _make_directory(directory, DIRECTORY_MODE)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with own_directory(directory) as folder:
        descriptor = os.open(LOCK_NAME, flags, FILE_MODE, dir_fd=folder)
    try:
        # flock and no pid file: it goes with its process, however that ends, and needs nobody to clean up.
        # The text is for whoever finds it taken.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, OWNER_BYTES_MAX, 0)
        os.close(descriptor)
        program, _, pid = holder.decode("utf-8", "replace").strip().rpartition(" ")
        who = f"{program} (process {pid})" if program else "another process"
        raise JournalLocked(
            f"{who} writes the journal in {directory}: end it first, or name another with --journal"
        ) from error
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
    sync_directory(directory.parent)


def _set_reserve(directory: Path, size_bytes: int) -> None:
    with own_directory(directory) as folder:
        if size_bytes == 0:
            with suppress(FileNotFoundError):
                os.unlink(RESERVE_NAME, dir_fd=folder)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(RESERVE_NAME, flags, FILE_MODE, dir_fd=folder)
    # Allocated and not only sized: a sparse file would keep nothing aside.
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    finally:
        os.close(descriptor)


# --- how long the journal waits for a disk --------------------------------------------------------

#: A crash of the machine loses no more than this of what nobody waited for.
UNSYNCED_SECONDS = 0.1
#: A thread that waits for the interpreter's lock wakes every few milliseconds; one in a hung disk does not.
LOOK_SECONDS = 0.05


def disk_waits() -> Waits:
    return Waits(bounds.now.disk_seconds, bounds.now.disk_sync_seconds, UNSYNCED_SECONDS)


async def bounded(
    function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, seconds: float | None = None
) -> T:
    """Await ``function(*args)``. Raises OSError (ETIMEDOUT) when it does not end in time, and not for want of
    a processor.
    """
    seconds = bounds.now.disk_seconds if seconds is None else seconds
    thread, answers, errors = _Thread(), list[T](), list[Exception]()
    reset = _thread.set(thread)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_give_up, thread, seconds, nursery.cancel_scope)
            try:
                answers.append(await function(*args))
            except Exception as error:
                # Out of here it would be a group.
                errors.append(error)
            nursery.cancel_scope.cancel()
    finally:
        _thread.reset(reset)
    if errors:
        raise errors[0]
    if answers:
        return answers[0]
    raise OSError(errno.ETIMEDOUT, f"the disk did not answer within {span_s(seconds)}")


async def _give_up(thread: _Thread, seconds: float, scope: trio.CancelScope) -> None:
    await trio.sleep(seconds)
    before = None
    with trio.move_on_after(bounds.now.disk_starved_seconds - seconds):
        while ((seen := thread.look()) and (seen.runs or seen != before)) or thread.waits_for_processor:
            before = seen
            await trio.sleep(LOOK_SECONDS)
    scope.cancel()


async def begin_file(storage: Storage, name: str, data: bytes) -> SegmentFile:
    """A new file that begins with ``data``. Raises OSError, and keeps no descriptor then."""
    seconds = storage.waits.call_seconds
    file = await bounded(storage.create, name, seconds=seconds)
    try:
        await bounded(file.write, data, seconds=seconds)
    except OSError:
        await close_file(file)
        raise
    return file


async def close_file(file: SegmentFile) -> None:
    """Only a descriptor is at stake: what was not durable is written again elsewhere."""
    with suppress(OSError):
        await bounded(file.close)


# --- becoming the writer of a location ------------------------------------------------------------

#: Of one segment that is brought from another location: far more than one ever has.
COPY_BYTES_MAX = 1024 * 1024 * 1024


class LocationTakeover:
    """One process on its way to being the writer. It remembers which syncs it must not believe."""

    def __init__(self, program: str, journal_id: bytes) -> None:
        self._program = program
        self._journal_id = journal_id
        #: Files whose sync failed: the kernel has forgotten what is missing, and the next sync would succeed.
        self._doubtful: set[tuple[str, str]] = set()

    async def settle(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """Raises JournalLocked, and OSError where the location or the history at another cannot be used.

        All segments there are synced: a process before may have left any of them in the page cache only. A
        file that cannot be synced is replaced, in one rename, by a new one with the same bytes. Of the
        others, those with a number under ``below`` are brought.
        """
        await self.acquire(storage)
        there = await _names_at(storage, self._journal_id)
        for name in there:
            file = (storage.location, name)
            # A sync that failed once is not believed again: the kernel has forgotten what is missing. Then
            # the bytes are read back and written anew, which is true whether the page cache or the disk had
            # them.
            if file not in self._doubtful:
                try:
                    await bounded(storage.sync_file, name, seconds=storage.waits.sync_seconds)
                    continue
                except OSError:
                    self._doubtful.add(file)
            await _copy_segment(name, storage, storage)
            self._doubtful.discard(file)
        await self.bring(storage, others, below)

    async def bring(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """The others' segments that are missing at ``storage``. Raises OSError."""
        there = await _names_at(storage, self._journal_id)
        for other in others:
            for name in await _names_at(other, self._journal_id, below):
                if name not in there:
                    await _copy_segment(name, other, storage)

    async def acquire(self, storage: Storage) -> None:
        await bounded(storage.acquire, self._program, seconds=storage.waits.call_seconds)


class Failback:
    """From a fallback to the first location, in two steps: syncing what lies there may take its time, and
    happens beside the writing; what was written meanwhile is brought at the begin of a later segment.
    """

    def __init__(self, takeover: LocationTakeover, storages: Sequence[Storage]) -> None:
        self._takeover = takeover
        self._storages = storages
        self._ready = self._busy = False

    async def prepare(self, segment: int) -> None:
        """All before this segment, which is being written. Where that fails, all stays as it is."""
        if self._busy:
            return
        self._busy = True
        with suppress(OSError, JournalLocked):
            await self._takeover.settle(self._storages[0], self._storages[1:], segment)
            self._ready = True
        self._busy = False

    async def finish(self) -> bool:
        """Between two segments: the rest, if it was prepared; True when the first location has it all."""
        ready, self._ready = self._ready, False
        if ready:
            with suppress(OSError):
                await bounded(self._takeover.bring, self._storages[0], self._storages[1:])
                return True
        return False


async def _copy_segment(name: str, source: Storage, target: Storage) -> None:
    data = await bounded(source.call, source.source.read, name, 0, COPY_BYTES_MAX)
    await bounded(target.put, name, data, seconds=bounds.now.disk_sync_seconds)


async def _names_at(storage: Storage, journal_id: bytes, below: int | None = None) -> list[str]:
    seconds = storage.waits.call_seconds
    return await bounded(storage.call, _segment_names, storage.source, journal_id, below, seconds=seconds)


def _segment_names(source: Source, journal_id: bytes, below: int | None) -> list[str]:
    """The names of a journal's segments at one location, all or those under a number."""
    # By their names alone: those of a journal whose id begins alike come along, and do no harm. Readers go by
    # the headers.
    ours = journal_id.hex()[:SHORT_ID_DIGITS]
    named = ((file.name, parse_segment_file_name(file.name)) for file in source.files() if file.size)
    return [
        name for name, parts in named if parts and parts[1] == ours and (below is None or parts[0] < below)
    ]
