"""Where segments are written: a directory on a disk that may be slow, full, broken, or hung.

Every call of `Storage` runs in one of the location's own threads. The caller may abandon it, so a hung disk
blocks no task.
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
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource, Segment, Source, find_path, find_segments
from ebbtide.events.files import FILE_MODE, own_directory, replace_file, sync_directory, write_all
from ebbtide.events.inotify import GONE_MASK, FolderWatch
from ebbtide.events.segment import SHORT_ID_DIGITS, parse_segment_file_name
from ebbtide.events.units import span_s

DIRECTORY_MODE = 0o700
#: For directories above the journal, with any umask: a user who may write there could move the journal.
PARENT_MODE = 0o755
LOCK_NAME = "lock"
RESERVE_NAME = "reserve"

#: Of the holder's text in a lock file: a program's name and a process id.
OWNER_BYTES_MAX = 256

#: One each for a write, a sync and a call of retention; a hung location keeps its threads.
THREADS_MAX = 3

#: The errors against which the reserve helps.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class JournalLocked(Exception):
    """Another program writes this journal: end it first, or name another directory with --journal."""


class SegmentGone(OSError):
    def __init__(self) -> None:
        super().__init__(errno.ENOENT, "its folder was moved or deleted")


class SegmentFile(Protocol):
    """One segment while it is written. Raises OSError; after that, do not use the file again."""

    async def write(self, data: bytes) -> None:
        """Appends all of it."""

    async def sync(self) -> None:
        """Makes all earlier writes durable. Raises SegmentGone."""

    async def watch(self) -> None:
        """Waits until the file is closed. Raises SegmentGone: no reader would find later records."""

    async def close(self) -> None:
        """Works even if a call hangs; a second call is a no-op."""


class Waits(NamedTuple):
    """Bounds of a call and of a sync. Without a waiter: how long written data stays unsynced, and how long
    records gather before a write.
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
        """Make a missing directory and become its only writer; a second call is a no-op.

        Raises JournalLocked and OSError.
        """

    async def create(self, name: str) -> SegmentFile:
        """The new file's name is durable. Raises OSError, also if the name is taken."""

    async def sync_file(self, name: str) -> None:
        """Make an existing file durable."""

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole durable file, or none. Raises OSError."""

    async def set_reserve(self, size_bytes: int) -> None:
        """Reserve space for a full disk; 0 frees it. Raises OSError."""

    async def remove(self, name: str) -> None:
        """Durably, so that files vanish in the order of their removal."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Run a blocking function, such as a scan of ``source``, in this location's threads."""

    async def release(self) -> None:
        """Stop being the writer."""


class DirectoryFile:
    """A `SegmentFile` on a disk."""

    def __init__(self, descriptor: int, limiter: trio.CapacityLimiter, path: Path) -> None:
        self._descriptor = descriptor
        self._limiter = limiter
        self._path = path
        #: A hung watch must not take a writer's thread.
        self._watch_limiter, self._watching = trio.CapacityLimiter(1), trio.CancelScope()
        self._guard = threading.Lock()
        self._users = 0
        self._closing = False

    async def write(self, data: bytes) -> None:
        await _in_thread(self._limiter, self._use, lambda descriptor: write_all(descriptor, data))

    async def sync(self) -> None:
        await _in_thread(self._limiter, self._use, self._sync)

    async def watch(self) -> None:
        paths = self._path, *self._path.parents
        with self._watching:
            folders = await _in_thread(self._watch_limiter, FolderWatch, paths, GONE_MASK)
            try:
                while True:
                    await _in_thread(self._watch_limiter, self._use, self._look)
                    await folders.event()
            finally:
                folders.close()

    def _sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)
        self._look(descriptor)

    def _look(self, descriptor: int) -> None:
        if not _is_named(descriptor, self._path):
            raise SegmentGone

    async def close(self) -> None:
        self._watching.cancel()
        with self._guard:
            closes = not self._closing and not self._users
            self._closing = True
        if closes:
            await _in_thread(self._limiter, os.close, self._descriptor)

    def _use(self, work: Callable[[int], None]) -> None:
        # The last user of a closed file closes its descriptor. Earlier the kernel could reuse the number, and
        # a hung write would reach another file.
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
    """A `Storage` in a directory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source = DirectorySource(path, own=True)
        self._path = Path(path)
        self._limiter = trio.CapacityLimiter(THREADS_MAX)
        self._lock = -1
        #: An abandoned attempt must end before the next one, or that finds our own lock.
        self._locking = threading.Lock()

    @property
    def location(self) -> str:
        return self.source.location

    @property
    def waits(self) -> Waits:
        return disk_waits()

    async def acquire(self, program: str) -> None:
        # The locked folder may have been moved or deleted. Then lock the new one.
        if self._lock >= 0 and not await self.call(_is_named, self._lock, self._path / LOCK_NAME):
            await self.release()
        if self._lock < 0:
            owner = f"{program} {os.getpid()}\n"
            self._lock = await _take(self._limiter, self._locking, _lock, self._path, owner)

    async def create(self, name: str) -> DirectoryFile:
        taking = threading.Lock()
        descriptor = await _take(self._limiter, taking, _create, self._path, name)
        return DirectoryFile(descriptor, self._limiter, self._path / name)

    async def sync_file(self, name: str) -> None:
        await self.call(_sync_file, self._path / name)

    async def put(self, name: str, data: bytes) -> None:
        await self.call(replace_file, self._path / name, data)

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
    """A thread's state. ``runs``: or waits for a processor; ``waits``: how often it has waited."""

    runs: bool
    waits: int


class _Thread:
    """The thread of a bounded call; its number is 0 before and after the call."""

    def __init__(self) -> None:
        self.number = 0
        self.limiter: trio.CapacityLimiter | None = None

    @property
    def waits_for_processor(self) -> bool:
        """It has not begun although the limiter lets it, or has ended and its caller has not noticed."""
        return self.limiter is not None and not self.number and self.limiter.available_tokens > 0

    def look(self) -> Seen | None:
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
    """Opens a descriptor under ``taking``; closes it if the caller has given up."""
    # An abandoned open may succeed a minute later, so both sides may close it.
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
    # `pop` is atomic. Closing a number twice may close another file.
    try:
        descriptor = taken.pop()
    except IndexError:
        return
    os.close(descriptor)


def _create(directory: Path, name: str) -> int:
    # Never overwrite a file: it is evidence. The name becomes durable before any record, or a power cut could
    # leave a synced record in a file that no directory lists.
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
    # Sync each: a power cut must not bring back an older file without the newer one.
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
        # flock, not a pid file: it ends with its process.
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


def _is_named(descriptor: int, path: Path) -> bool:
    """Ask by path: a moved parent changes neither the file nor its folder."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _make_directory(directory: Path, mode: int) -> None:
    """Durably, or a power cut takes the directory with its files."""
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
    # A sparse file would reserve no space.
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    finally:
        os.close(descriptor)


# --- how long the journal waits for a disk

#: A crash of the machine loses at most this much data for which no caller waited.
UNSYNCED_SECONDS = 0.1
#: In this time, a thread that waits for the interpreter's lock wakes; a thread in a hung disk does not.
LOOK_SECONDS = 0.05


def disk_waits() -> Waits:
    return Waits(bounds.now.disk_seconds, bounds.now.disk_sync_seconds, UNSYNCED_SECONDS)


async def bounded(
    function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, seconds: float | None = None
) -> T:
    """Awaits the call. Raises OSError (ETIMEDOUT) if it is late, unless its thread lacks a processor."""
    seconds = bounds.now.disk_seconds if seconds is None else seconds
    thread, answers, errors = _Thread(), list[T](), list[Exception]()
    reset = _thread.set(thread)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_give_up, thread, seconds, nursery.cancel_scope)
            try:
                answers.append(await function(*args))
            except Exception as error:
                # A raise here would make a group.
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
    """Creates a file that begins with ``data``. Raises OSError, and then keeps no descriptor."""
    seconds = storage.waits.call_seconds
    file = await bounded(storage.create, name, seconds=seconds)
    try:
        await bounded(file.write, data, seconds=seconds)
    except OSError:
        await close_file(file)
        raise
    return file


async def close_file(file: SegmentFile) -> None:
    """An error only costs a descriptor: the writer writes data that is not durable again elsewhere."""
    with suppress(OSError):
        await bounded(file.close)


# --- becoming the writer of a location

#: Far more than a segment ever has.
COPY_BYTES_MAX = 1024 * 1024 * 1024


class LocationTakeover:
    """How one process becomes the writer of a location.

    The boot's end often loses a fallback location. So the writer at a better one copies its segments, because
    no link may name a segment that a power cut or a reboot can take.
    """

    def __init__(self, program: str, journal_id: bytes) -> None:
        self._program = program
        self._journal_id = journal_id
        #: Files whose sync failed: the kernel has dropped the missing pages, and the next sync would succeed.
        self._doubtful: set[tuple[str, str]] = set()

    async def settle(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """Sync all segments there: an earlier process may have left any in the page cache. Then `bring`.

        Raises JournalLocked, and OSError if the location or another one's history cannot be used.
        """
        await self.acquire(storage)
        there = await _names_at(storage, self._journal_id)
        for name in there:
            file = (storage.location, name)
            if file not in self._doubtful:
                try:
                    await bounded(storage.sync_file, name, seconds=storage.waits.sync_seconds)
                    continue
                except OSError:
                    self._doubtful.add(file)
            # Read the bytes back and write them again.
            await _copy_segment(name, storage, storage)
            self._doubtful.discard(file)
        await self.bring(storage, others, below)

    async def bring(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """Copy the others' segments under ``below`` that are missing at ``storage``. Raises OSError."""
        there = await _names_at(storage, self._journal_id)
        for other in others:
            for name in await _names_at(other, self._journal_id, below):
                if name not in there:
                    await _copy_segment(name, other, storage)

    async def acquire(self, storage: Storage) -> None:
        await bounded(storage.acquire, self._program, seconds=storage.waits.call_seconds)


class Failback:
    """The return from a fallback to the first location: `prepare` runs beside the writing, `finish` when a
    later segment begins.
    """

    def __init__(self, takeover: LocationTakeover, storages: Sequence[Storage]) -> None:
        self._takeover = takeover
        self._storages = storages
        self._ready = self._busy = False

    async def prepare(self, segment: int) -> None:
        """Settle all before the current segment. A failure has no effect."""
        if self._busy:
            return
        self._busy = True
        with suppress(OSError, JournalLocked):
            await self._takeover.settle(self._storages[0], self._storages[1:], segment)
            self._ready = True
        self._busy = False

    async def finish(self) -> bool:
        """Between two segments, copy the rest if `prepare` succeeded. True: the first location has all."""
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
    # Another journal's id may begin alike: without harm, because readers use the headers.
    ours = journal_id.hex()[:SHORT_ID_DIGITS]
    named = ((file.name, parse_segment_file_name(file.name)) for file in source.files() if file.size)
    return [
        name for name, parts in named if parts and parts[1] == ours and (below is None or parts[0] < below)
    ]


# --- retention


#: Outside of an episode, seal a segment of this size: a start reads the newest one, 50 ms for 1 MiB.
SEGMENT_BYTES_MAX = 1024 * 1024
#: Room for a month of idle days and a hundred shutdowns of a hundred pods.
TOTAL_BYTES_MAX = 64 * 1024 * 1024
AGE_NS_MAX = 90 * 24 * 3600 * NS_PER_SECOND
#: Above this, remove even records that are still needed: a full disk would cost the next shutdown's journal.
HARD_BYTES_MAX = 256 * 1024 * 1024


class Limits(NamedTuple):
    """``age_ns``: since a segment's last write. ``whole_episodes``: remove only whole episodes."""

    total_bytes: int = TOTAL_BYTES_MAX
    age_ns: int = AGE_NS_MAX
    hard_bytes: int = HARD_BYTES_MAX
    whole_episodes: bool = False


LIMITS = Limits()
#: A thousand nodes' outages in the API server take a quarter of etcd's default space (2 GiB). An open outage
#: stays.
OUTAGE_LIMITS = Limits(total_bytes=512 * 1024, hard_bytes=1 << 62, whole_episodes=True)


class Held(NamedTuple):
    size: int
    modified_ns: int
    #: The lowest record number that it may have.
    seq_from: int
    #: Reading can begin here.
    checkpoint: bool
    #: On the current journal's path. Other segments are useless.
    current: bool = True


def removable(held: Sequence[Held], now_wall_ns: int, keep_from_seq: int | None, limits: Limits) -> int:
    """How many of these segments to remove, oldest first; never the last one.

    The rest begins with a checkpoint. Up to the hard cap, record ``keep_from_seq`` and all later ones stay:
    the first of an open episode or of an undelivered status, or the first above a projection's cursor.
    """
    # ``gone`` moves from checkpoint to checkpoint.
    gone, left_bytes = 0, sum(segment.size for segment in held)
    for upto in range(1, len(held)):
        # Readers begin at the first segment of the path, not at a stray copy before it.
        front = next((segment for segment in held[upto:] if segment.current), None)
        loses = any(segment.current for segment in held[gone:upto])
        if loses and (front is None or not front.checkpoint):
            continue
        too_old = now_wall_ns - held[upto - 1].modified_ns > limits.age_ns
        needed = loses and front and keep_from_seq is not None and front.seq_from > keep_from_seq
        if left_bytes <= limits.hard_bytes and (needed or not (too_old or left_bytes > limits.total_bytes)):
            break
        left_bytes -= sum(segment.size for segment in held[gone:upto])
        gone = upto
    return gone


async def trim(
    storages: Sequence[Storage],
    now_wall_ns: int,
    keep_from_seq: int | None,
    limits: Limits = LIMITS,
    on_removed: Callable[[str], None] = lambda name: None,
) -> list[str]:
    """Remove segments over all locations as one journal; returns their names. Raises OSError.

    It has no bound; the caller sets one.
    """
    if not storages:
        return []
    sources = [storage.source for storage in storages]
    segments, held = await storages[0].call(_survey, sources, limits.whole_episodes)
    gone = segments[: removable(held, now_wall_ns, keep_from_seq, limits)]
    by_location = {storage.location: storage for storage in storages}
    # The oldest first, each durable before the next: at any moment the rest has no gap.
    for segment in gone:
        await by_location[segment.source.location].remove(segment.name)
        on_removed(segment.name)
    return [segment.name for segment in gone]


def _survey(sources: Sequence[Source], whole_episodes: bool) -> tuple[list[Segment], list[Held]]:
    segments = find_segments(sources)
    path = {(segment.source.location, segment.name) for segment in find_path(sources).segments}
    held = []
    for segment in segments:
        current = (segment.source.location, segment.name) in path
        seq_from = segment.header.link.seq + 1 if segment.header else 0
        checkpoint = current and segment.begins_with_checkpoint(between_episodes=whole_episodes)
        held.append(Held(segment.size, segment.modified_ns, seq_from, checkpoint, current))
    return segments, held
