"""Where segments are written: a directory on a disk that may be slow, full, broken, or hung.

Every call of `Storage` runs in one of the location's own threads, and the caller may abandon it, so that a
hung disk blocks no task. `bounded` limits the wait.

`LocationTakeover` makes a process the writer of a location. The boot's end often loses a fallback location,
so the writer at a better one copies its segments, as whole files: no link may name a segment that a power cut
or a reboot can take.

Retention removes whole segments, oldest first: `removable` chooses them; `trim` removes them.
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
#: For directories above the journal, with any umask: who may write there can move the journal away.
PARENT_MODE = 0o755
LOCK_NAME = "lock"
RESERVE_NAME = "reserve"

#: The holder's text in a lock file.
OWNER_BYTES_MAX = 256

#: A write, a sync and one call of retention at a time; a hung location keeps its threads.
THREADS_MAX = 3

#: Errors of a full disk, which the reserve helps.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class JournalLocked(Exception):
    """Another program writes this journal; end it first, or name another directory with --journal."""


class SegmentGone(OSError):
    """The segment is no longer at its location: its folder was moved or deleted."""

    def __init__(self) -> None:
        super().__init__(errno.ENOENT, "its folder was moved or deleted")


class SegmentFile(Protocol):
    """One segment while it is written. Raises OSError; after that, do not use the file again."""

    async def write(self, data: bytes) -> None:
        """Writes all of it, at the end."""

    async def sync(self) -> None:
        """Makes everything written before durable. Raises SegmentGone."""

    async def watch(self) -> None:
        """Until the file is closed. Raises SegmentGone: no reader would find what is written from now on."""

    async def close(self) -> None:
        """Releases its descriptor, even if a call hangs in it; a second call is a no-op."""


class Waits(NamedTuple):
    """In seconds: how long the journal waits for a location, how long written data stays unsynced without a
    waiter, and how long records gather before a write without one.
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
        """Make the directory if it is missing and become its only writer; a second call is a no-op.

        Raises JournalLocked, naming the other's program and process id, and OSError.
        """

    async def create(self, name: str) -> SegmentFile:
        """A new file with a durable name. Raises OSError, also if the name is taken."""

    async def sync_file(self, name: str) -> None:
        """Make an existing file durable; cheap if it is."""

    async def put(self, name: str, data: bytes) -> None:
        """A whole durable file, or none. Raises OSError."""

    async def set_reserve(self, size_bytes: int) -> None:
        """Reserve space for a full disk; 0 frees it. Raises OSError."""

    async def remove(self, name: str) -> None:
        """Durably, so that files vanish in the order of their removal."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Run a blocking function, such as a scan of ``source``, in this location's threads."""

    async def release(self) -> None:
        """Stop being the writer."""


class DirectoryFile:
    """A segment file on a real disk."""

    def __init__(self, descriptor: int, limiter: trio.CapacityLimiter, path: Path) -> None:
        self._descriptor = descriptor
        self._limiter = limiter
        self._path = path
        #: A watch that hangs must not take a writer's thread.
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
        # The last user of a closed file closes its descriptor: the number is not reused before, so a hung
        # write cannot reach another file.
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
        #: An abandoned attempt must end before the next one, or we meet our own lock.
        self._locking = threading.Lock()

    @property
    def location(self) -> str:
        return self.source.location

    @property
    def waits(self) -> Waits:
        return disk_waits()

    async def acquire(self, program: str) -> None:
        # Perhaps the lock of a folder that was moved or deleted, and is made again now.
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
    """The kernel's view of a thread. ``runs``: it does, or would with a free processor; ``waits``: how often
    it has waited.
    """

    runs: bool
    waits: int


class _Thread:
    """The thread of a bounded call: its number during the call, and whether it began."""

    def __init__(self) -> None:
        self.number = 0
        self.limiter: trio.CapacityLimiter | None = None

    @property
    def waits_for_processor(self) -> bool:
        """It could begin but has not, or has ended without its caller's notice."""
        return self.limiter is not None and not self.number and self.limiter.available_tokens > 0

    def look(self) -> Seen | None:
        """None: there is no such thread, or no view of it."""
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
    # An abandoned open may succeed a minute later: then the thread closes the descriptor. Either side may be
    # first.
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
    # Taking it off the list is atomic: closing a number twice may close another file.
    try:
        descriptor = taken.pop()
    except IndexError:
        return
    os.close(descriptor)


def _create(directory: Path, name: str) -> int:
    # Exclusively: an existing file is evidence. The name becomes durable before any record: else a power cut
    # could leave a synced record in a file that no directory lists.
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
    # Sync one by one: a power cut must never take the newer file and leave the older.
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
        # flock, not a pid file: it ends with its process and needs no cleanup. The text is for a process that
        # finds it taken.
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
    """Whether the open file still has this path: a moved parent changes neither file nor folder."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _make_directory(directory: Path, mode: int) -> None:
    """Durably: a power cut that takes the directory takes its files."""
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
    # Allocated: a sparse file would reserve no space.
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    finally:
        os.close(descriptor)


# --- how long the journal waits for a disk --------------------------------------------------------

#: A crash of the machine loses at most this much unawaited data.
UNSYNCED_SECONDS = 0.1
#: A thread that waits for the interpreter's lock wakes every few milliseconds; in a hung disk it does not.
LOOK_SECONDS = 0.05


def disk_waits() -> Waits:
    return Waits(bounds.now.disk_seconds, bounds.now.disk_sync_seconds, UNSYNCED_SECONDS)


async def bounded(
    function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, seconds: float | None = None
) -> T:
    """Await ``function(*args)``. Raises OSError (ETIMEDOUT) if it does not end in time, unless it only lacks
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
    """A new file that begins with ``data``. Raises OSError, and then keeps no descriptor."""
    seconds = storage.waits.call_seconds
    file = await bounded(storage.create, name, seconds=seconds)
    try:
        await bounded(file.write, data, seconds=seconds)
    except OSError:
        await close_file(file)
        raise
    return file


async def close_file(file: SegmentFile) -> None:
    """Only a descriptor is at stake: undurable data is written again elsewhere."""
    with suppress(OSError):
        await bounded(file.close)


# --- becoming the writer of a location ------------------------------------------------------------

#: Of one segment from another location: far more than one ever has.
COPY_BYTES_MAX = 1024 * 1024 * 1024


class LocationTakeover:
    """One process on its way to being the writer. It remembers which syncs not to trust."""

    def __init__(self, program: str, journal_id: bytes) -> None:
        self._program = program
        self._journal_id = journal_id
        #: Files whose sync failed: the kernel has forgotten the missing pages, and the next sync would
        #: succeed.
        self._doubtful: set[tuple[str, str]] = set()

    async def settle(self, storage: Storage, others: Sequence[Storage], below: int | None = None) -> None:
        """Raises JournalLocked, and OSError if the location or another's history cannot be used.

        Syncs all segments there: an earlier process may have left any in the page cache. Replaces a file that
        cannot be synced by a copy. Brings the other locations' segments with a number under ``below``.
        """
        await self.acquire(storage)
        there = await _names_at(storage, self._journal_id)
        for name in there:
            file = (storage.location, name)
            # After a failed sync the kernel has forgotten the missing pages. So read the bytes back and write
            # them anew.
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
    """From a fallback to the first location, in two steps: a sync of its content, beside the writing, then a
    copy of newer segments when a later segment begins.
    """

    def __init__(self, takeover: LocationTakeover, storages: Sequence[Storage]) -> None:
        self._takeover = takeover
        self._storages = storages
        self._ready = self._busy = False

    async def prepare(self, segment: int) -> None:
        """All before the current segment. A failure has no effect."""
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
    # By name alone: a journal whose id begins alike comes along without harm, because readers use the
    # headers.
    ours = journal_id.hex()[:SHORT_ID_DIGITS]
    named = ((file.name, parse_segment_file_name(file.name)) for file in source.files() if file.size)
    return [
        name for name, parts in named if parts and parts[1] == ours and (below is None or parts[0] < below)
    ]


# --- retention ----------------------------------------------------------------------------------


#: Outside of an episode, seal a segment of this size: a start reads the newest one again, 50 ms for 1 MiB.
SEGMENT_BYTES_MAX = 1024 * 1024
#: A month of idle days and a hundred shutdowns of a hundred pods fit.
TOTAL_BYTES_MAX = 64 * 1024 * 1024
AGE_NS_MAX = 90 * 24 * 3600 * NS_PER_SECOND
#: Above this even an undelivered status and an unexported span go: a full disk would take more.
HARD_BYTES_MAX = 256 * 1024 * 1024


class Limits(NamedTuple):
    """The bounds of a location: bytes, and nanoseconds since a segment's last write.

    ``whole_episodes``: the rest begins outside of an episode, so that each goes or stays as a whole.
    """

    total_bytes: int = TOTAL_BYTES_MAX
    age_ns: int = AGE_NS_MAX
    hard_bytes: int = HARD_BYTES_MAX
    whole_episodes: bool = False


LIMITS = Limits()
#: One node's outages in the API server: a thousand such nodes take a quarter of etcd's default space (2 GiB).
#: An open outage stays.
OUTAGE_LIMITS = Limits(total_bytes=512 * 1024, hard_bytes=1 << 62, whole_episodes=True)


class Held(NamedTuple):
    """A segment, for the rule."""

    size: int
    modified_ns: int
    #: The lowest record number that it may have.
    seq_from: int
    #: Its first record is a checkpoint, so reading can begin here.
    checkpoint: bool
    #: On the path of the current journal. Other segments are useless.
    current: bool = True


def removable(held: Sequence[Held], now_wall_ns: int, keep_from_seq: int | None, limits: Limits) -> int:
    """How many of these segments, oldest first, go; the last one never goes.

    The rest begins with a checkpoint. Record ``keep_from_seq`` and all later ones stay: the first of an open
    episode, of an undelivered status, or above a projection's cursor (None: none of them). Above the hard cap
    they go all the same.
    """
    # ``gone`` moves from checkpoint to checkpoint; a segment in between goes with the one before or stays
    # with the one behind.
    gone, left_bytes = 0, sum(segment.size for segment in held)
    for upto in range(1, len(held)):
        # Reading begins at the first segment of the path that stays, not at a stray copy before it.
        front = next((segment for segment in held[upto:] if segment.current), None)
        loses = any(segment.current for segment in held[gone:upto])
        if loses and (front is None or not front.checkpoint):
            continue
        too_old = now_wall_ns - held[upto - 1].modified_ns > limits.age_ns
        needed = loses and front and keep_from_seq is not None and front.seq_from > keep_from_seq
        # Needed records stay up to the hard cap: above it a full disk would take the next shutdown's journal,
        # which is worth more.
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

    The caller bounds it: on a hung disk old segments may stay. ``on_removed`` gets each name after its
    removal.
    """
    if not storages:
        return []
    sources = [storage.source for storage in storages]
    segments, held = await storages[0].call(_survey, sources, limits.whole_episodes)
    gone = segments[: removable(held, now_wall_ns, keep_from_seq, limits)]
    by_location = {storage.location: storage for storage in storages}
    # The oldest first, each durable before the next: at any moment the rest is one end of the journal without
    # a hole.
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
