"""The journal's writer: `append` never blocks and never fails; the disk follows as fast as it can.

`Driver` writes and syncs in two loops, so that a slow sync delays no write. A failed or hung call is final
for its file, and the next file begins with every record not known durable. Without any location, a shutdown's
transitions go to the kernel's log and to pstore.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import trio

from ebbtide.events import disk
from ebbtide.events.base import JOURNAL_ACTOR, Checkpoint, Record, Stamp
from ebbtide.events.codec import FrameTooLarge
from ebbtide.events.facts import StorageFailed
from ebbtide.events.segment import Chain, Identity, Link, SegmentItem, WriterStart, segment_file_name


class Writer:
    """`open`, then `begin_segment`, then `append` while `run` runs.

    The callbacks must not block: ``on_failed(location, error)``, ``on_moved(location, first_seq)``,
    ``on_lost(error)`` without any location, and ``last_resort(line)`` for each transition after that.
    """

    def __init__(
        self,
        storages: Sequence[disk.Storage],
        identity: Identity,
        start: WriterStart,
        *,
        program: str = "ebbtide",
        on_failed: Callable[[str, str], None],
        on_moved: Callable[[str, int], None],
        on_lost: Callable[[str], None],
        last_resort: Callable[[str], None],
    ) -> None:
        self._chain = Chain(identity, start)
        self._backlog = Backlog(self._chain)
        self._driver = Driver(
            storages, self._backlog, program, WriterCallbacks(on_failed, on_moved, self._on_lost)
        )
        self._report_failed, self._report_lost, self._last_resort = on_failed, on_lost, last_resort

    @property
    def journal_id(self) -> bytes:
        return self._chain.journal_id

    @property
    def location(self) -> str:
        """Empty: the journal is lost."""
        return self._driver.location

    @property
    def away(self) -> bool:
        """Not at the first location. A new segment prepares the return, a later one completes it."""
        return self._driver.away

    @property
    def severed(self) -> bool:
        """Readers need a new segment's checkpoint: the folder with the history was moved or deleted."""
        return self._driver.severed

    @property
    def lost(self) -> bool:
        """No location is left: never wait for a record."""
        return self._backlog.lost

    @property
    def last_seq(self) -> int:
        return self._chain.end.seq

    @property
    def written_seq(self) -> int:
        return self._backlog.written.seq

    @property
    def synced_seq(self) -> int:
        return self._backlog.durable.seq

    @property
    def head(self) -> tuple[int, bytes]:
        """The last record known durable, and its chain hash; 0 before this process has one."""
        return self._backlog.head

    @property
    def segment_bytes(self) -> int:
        """The size of the current segment, the queue included."""
        return self._chain.end.offset

    async def open(self) -> None:
        """Become the writer of the first location that works. Raises JournalLocked."""
        await self._driver.open()

    def begin_segment(self, anchor: Stamp, checkpoint: Checkpoint | None = None) -> Record | None:
        """Returns the checkpoint's record, which has a number of its own."""
        self._queue(self._chain.begin_segment(anchor))
        if checkpoint is None:
            return None
        record = Record(
            seq=self.last_seq + 1,
            mono_ns=anchor.mono_ns,
            wall_ns=anchor.wall_ns,
            episode=checkpoint.episode,
            cause=0,
            actor=JOURNAL_ACTOR,
            last=True,
            event=checkpoint,
        )
        self.append((record,))
        return record

    def append(self, records: Sequence[Record]) -> list[bytes]:
        """Returns the records' chain hashes. Raises ValueError for a gap in the numbers."""
        # Readers stop at a gap, so a fact takes the number of an event that is too large.
        items = []
        for record in records:
            try:
                items.append(self._chain.append(record, self.synced_seq))
            except FrameTooLarge as error:
                self._report_failed(self.location, str(error))
                failed = StorageFailed(location=self.location, error=str(error))
                instead = msgspec.structs.replace(record, event=failed)
                items.append(self._chain.append(instead, self.synced_seq))
        # Ask for the sync now, so that it runs while the effects of this step start.
        self._queue(items)
        for record in records:
            if getattr(record.event, "barrier", None) == "synced":
                self._backlog.want_sync(record.seq)
        return [item.end.hash for item in items]

    async def wait_written(self, seq: int) -> bool:
        """Until record ``seq`` survives our process; False when the journal is lost."""
        while self.written_seq < seq and not self.lost:
            await self._backlog.changed()
        return self.written_seq >= seq

    async def wait_synced(self, seq: int) -> bool:
        """Until record ``seq`` survives a power cut; False when the journal is lost."""
        self._backlog.want_sync(seq)
        while self.synced_seq < seq and not self.lost:
            await self._backlog.changed()
        return self.synced_seq >= seq

    async def run(self) -> None:
        """Writes until `close` has sealed the segment, or the journal is lost."""
        await self._driver.run()

    async def close(self) -> None:
        """Write the queue, seal the segment, release the lock. `run` must be running. No `append` follows."""
        self._queue([self._chain.seal()])
        self._backlog.close()
        while not self._backlog.settled:
            await self._backlog.changed()
        await self._driver.release()

    def _queue(self, items: Sequence[SegmentItem]) -> None:
        if self.lost:
            self._write_last_resort(items)
        else:
            self._backlog.add(items)

    def _on_lost(self, error: str, undurable: Sequence[SegmentItem]) -> None:
        self._report_lost(error)
        self._write_last_resort(undurable)

    def _write_last_resort(self, items: Sequence[SegmentItem]) -> None:
        for item in items:
            line = transition_line(item.record) if item.record else None
            if line is not None:
                self._last_resort(line)


# --- the backlog goes to disk

#: A whole shutdown of 1 000 pods is about 20 records of 300 bytes a pod.
RESERVE_BYTES = 8 * 1024 * 1024


class Driver:
    """Brings the backlog to disk. ``storages``: the best location first."""

    def __init__(
        self, storages: Sequence[disk.Storage], backlog: Backlog, program: str, reports: WriterCallbacks
    ) -> None:
        self._storages, self._at = list(storages), 0
        self._backlog = backlog
        self._takeover = disk.LocationTakeover(program, backlog.chain.journal_id)
        self._failback = disk.Failback(self._takeover, self._storages)
        self._nursery: trio.Nursery
        self._reports = reports
        self._file: disk.SegmentFile | None = None
        self._broken: OSError | None = None
        self._reserved = self._begun = self.severed = False
        self._syncing = trio.Lock()

    @property
    def location(self) -> str:
        return "" if self._backlog.lost else self._storages[self._at].location

    @property
    def away(self) -> bool:
        return self._at > 0

    async def open(self) -> None:
        # Each round over all locations asks for less: the whole history, the local part, only the lock.
        reason = "there is no location"
        takeover = self._takeover
        for settle_at in (
            self._settle,
            lambda at: takeover.settle(self._storages[at], ()),
            lambda at: takeover.acquire(self._storages[at]),
        ):
            for at, storage in enumerate(self._storages):
                try:
                    await settle_at(at)
                except OSError as error:
                    reason = str(error)
                    self._reports.failed(storage.location, reason)
                else:
                    self._at = at
                    return
        self._reports.lost(reason, self._backlog.lose())

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._sync_loop)
            # Before the first record: the disk may fill up later.
            await self._reserve()
            await self._write_loop()
            nursery.cancel_scope.cancel()

    async def release(self) -> None:
        # Also the earlier locations: the driver kept their locks, so that no other process wrote there.
        for storage in self._storages[: self._at + 1]:
            with suppress(OSError):
                await disk.bounded(storage.release)

    # --- writing

    async def _write_loop(self) -> None:
        while not self._backlog.settled:
            # Headers and trailers need their own syncs. One write takes all queued records.
            item = self._backlog.next()
            try:
                if self._broken is not None:
                    raise self._broken
                if item is None:
                    await self._backlog.queue_changed()
                elif item.header:
                    await self._begin_segment(item)
                elif item.record is None:
                    await self._seal(item)
                else:
                    await self._gather()
                    # Take them before the write: if it fails, they are pending, and the next file has them.
                    file, data = self._open_file(), self._backlog.take_records()
                    end = self._backlog.taken()
                    await disk.bounded(file.write, data, seconds=self._waits.call_seconds)
                    self._backlog.publish_written(end)
            except OSError as error:
                await self._move(error)

    async def _gather(self) -> None:
        """If a write costs much, wait for more records, or until a caller waits."""
        seconds = self._waits.gather_seconds
        if seconds > 0 and not self._backlog.closing:
            with trio.move_on_after(seconds):
                await self._backlog.sync_asked()
            if self._broken is not None:
                raise self._broken

    async def _begin_segment(self, item: SegmentItem) -> None:
        if self.away and self._begun:
            # The first location may work again. The queue waits, so do only quick work here.
            if await self._failback.finish():
                self._at = 0
                self._reports.moved(self.location, self._backlog.written.seq + 1)
                self._nursery.start_soon(self._reserve)
            else:
                self._nursery.start_soon(self._failback.prepare, item.end.segment)
        self._begun, self.severed = True, False
        name = segment_file_name(item.end.segment, self._backlog.chain.journal_id)
        file = await disk.begin_file(self._storages[self._at], name, item.data)
        self._backlog.take()
        self._change_file(file)
        self._backlog.publish_written(item.end)

    async def _seal(self, item: SegmentItem) -> None:
        """A trailer claims that all before it is durable: sync before and after it."""
        file = self._open_file()
        await self._sync(file)
        # Only now: if the sync fails, the next file needs the trailer in the queue.
        self._backlog.take()
        await disk.bounded(file.write, item.data, seconds=self._waits.call_seconds)
        self._backlog.publish_written(item.end)
        await self._sync(file)
        self._file = None
        await disk.close_file(file)

    @property
    def _waits(self) -> disk.Waits:
        return self._storages[self._at].waits

    def _change_file(self, file: disk.SegmentFile) -> None:
        self._file, self._syncing = file, trio.Lock()
        self._nursery.start_soon(self._watch, file)

    def _open_file(self) -> disk.SegmentFile:
        if self._file is None:
            raise OSError(errno.EBADF, "no segment is open")
        return self._file

    # --- syncing

    async def _sync_loop(self) -> None:
        while True:
            if self._file is None or self._broken is not None or not self._backlog.unsynced:
                await self._backlog.changed()
                continue
            # A later sync covers more; a waiting barrier gets one at once.
            with trio.move_on_after(self._waits.unsynced_seconds):
                await self._backlog.sync_asked()
            file = self._file
            if file is not None:
                with suppress(OSError):
                    await self._sync(file)

    async def _sync(self, file: disk.SegmentFile) -> None:
        # One at a time: the kernel reports lost data to only one sync.
        async with self._syncing:
            if self._broken is not None:
                raise self._broken
            # Before the sync, which may miss later writes.
            end = self._backlog.written
            try:
                await disk.bounded(file.sync, seconds=self._waits.sync_seconds)
            except OSError as error:
                self._break(file, error)
                raise
            # A sync that ends after its file was replaced is no proof for the new file.
            if file is self._file and end[:2] > self._backlog.durable[:2]:
                self._backlog.publish_durable(end)

    async def _watch(self, file: disk.SegmentFile) -> None:
        """The folder of an idle journal may be moved or deleted, and readers would find no later record."""
        # Without inotify a sync finds it.
        with suppress(OSError):
            try:
                await file.watch()
            except disk.SegmentGone as error:
                self._break(file, error)

    def _break(self, file: disk.SegmentFile, error: OSError) -> None:
        """Only the write loop changes files, or two loops would do it twice."""
        if file is self._file:
            self._broken = error
            self._backlog.kick()

    # --- failing

    async def _move(self, error: OSError) -> None:
        """Continue in another file, at the next location that works."""
        while not self._backlog.lost:
            # Never use the file again: after a failed sync the kernel marks the missing pages clean, and the
            # next sync would succeed. Closing it may hang too.
            file, self._file = self._file, None
            if file is not None:
                self._nursery.start_soon(disk.close_file, file)
            self._broken = None
            gone = isinstance(error, disk.SegmentGone)
            self.severed |= gone
            # A full disk gets the reserved space once.
            in_reserve, self._reserved = error.errno in disk.NO_SPACE and self._reserved, False
            try:
                if in_reserve:
                    self._reports.failed(self.location, f"{error}; the journal goes on in its reserve")
                    await disk.bounded(self._storages[self._at].set_reserve, 0)
                else:
                    self._reports.failed(self.location, str(error))
                    if self._at + 1 < len(self._storages):
                        self._at += 1
                    elif not gone:
                        self._reports.lost(str(error), self._backlog.lose())
                        return
                    # Else the disk works: make the last location's folder again.
                storage = self._storages[self._at]
                # Leave the history at the old location: a copy takes longer than pods may wait.
                await self._takeover.acquire(storage)
                data, first_seq = self._backlog.carry(), self._backlog.durable.seq + 1
                end = self._backlog.chain.end
                name = segment_file_name(end.segment, self._backlog.chain.journal_id)
                self._change_file(await disk.begin_file(storage, name, data))
            except OSError as another:
                error = another
            except disk.JournalLocked as locked:
                error = OSError(errno.EBUSY, str(locked))
            else:
                self._reports.moved(storage.location, first_seq)
                self._backlog.publish_written(end)
                if not in_reserve:
                    self._nursery.start_soon(self._reserve)
                return

    async def _settle(self, at: int) -> None:
        await self._takeover.settle(self._storages[at], self._storages[at + 1 :])

    async def _reserve(self) -> None:
        """It may fail: then a full disk moves the journal to the next location."""
        if not self._backlog.lost:
            storage = self._storages[self._at]
            with suppress(OSError):
                await disk.bounded(storage.set_reserve, RESERVE_BYTES)
                self._reserved = storage is self._storages[self._at]


class WriterCallbacks(NamedTuple):
    """As in `Writer`; ``lost`` also gets the items that are not durable."""

    failed: Callable[[str, str], None]
    moved: Callable[[str, int], None]
    lost: Callable[[str, Sequence[SegmentItem]], None]


# An item is *queued* until the driver takes it, then *pending* until it is known durable. After a failure the
# next file gets both.

#: Of one write: a backlog after a stall takes several, each with its own bound of time.
WRITE_BYTES_MAX = 1024 * 1024


class Backlog:
    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.written = self.durable = chain.end
        self.head = (0, b"")
        self.closing = self.lost = False
        self._queued: deque[SegmentItem] = deque()
        self._pending: deque[SegmentItem] = deque()
        self._sync_wanted = 0
        self._queue_changed, self._sync_asked = trio.Event(), trio.Event()
        self._published = trio.lowlevel.ParkingLot()

    @property
    def settled(self) -> bool:
        """All is synced and no item will come, or the journal is lost."""
        return self.lost or (self.closing and not self._queued and not self._pending)

    @property
    def unsynced(self) -> bool:
        return self.written != self.durable

    def add(self, items: Sequence[SegmentItem]) -> None:
        self._queued.extend(items)
        self._queue_changed.set()

    def next(self) -> SegmentItem | None:
        return self._queued[0] if self._queued else None

    def take(self) -> SegmentItem:
        item = self._queued.popleft()
        self._pending.append(item)
        return item

    def take_records(self) -> bytes:
        """The next records, up to a header or trailer."""
        parts, size = [], 0
        while self._queued and self._queued[0].record is not None and size < WRITE_BYTES_MAX:
            parts.append(self.take().data)
            size += len(parts[-1])
        return b"".join(parts)

    def taken(self) -> Link:
        return self._pending[-1].end

    def publish_written(self, end: Link) -> None:
        self.written = end
        self.want_sync(self._sync_wanted)
        self._published.unpark_all()

    def publish_durable(self, end: Link) -> None:
        # Compare places, not record numbers: a trailer and a header have no number of their own.
        while self._pending and self._pending[0].end[:2] <= end[:2]:
            item = self._pending.popleft()
            if item.record is not None:
                self.head = item.end.seq, item.end.hash
        self.durable = end
        self._queue_changed.set()
        self._published.unpark_all()

    def carry(self) -> bytes:
        """The begin of a file that continues behind the last durable place. All items become pending."""
        data, moved = self.chain.carry(self.durable, [*self._pending, *self._queued])
        self._pending, self._queued = deque(moved), deque()
        return data

    def lose(self) -> list[SegmentItem]:
        """No location is left. Returns the items that are not durable."""
        items = [*self._pending, *self._queued]
        self.lost = True
        self._pending.clear()
        self._queued.clear()
        self.kick()
        return items

    def want_sync(self, seq: int) -> None:
        self._sync_wanted = max(self._sync_wanted, seq)
        if self._sync_wanted > self.durable.seq:
            self._sync_asked.set()

    def close(self) -> None:
        self.closing = True
        self._sync_asked.set()

    def kick(self) -> None:
        """Wake every waiter after a change outside of the backlog."""
        self._queue_changed.set()
        self._published.unpark_all()

    async def changed(self) -> None:
        """Until the backlog reports a change."""
        await self._published.park()

    async def queue_changed(self) -> None:
        """Until an item was queued, or made durable, since the last call returned."""
        # Make the new event after the wait: items since the last call have set the old one.
        await self._queue_changed.wait()
        self._queue_changed = trio.Event()

    async def sync_asked(self) -> None:
        """Until a caller waits for a record that is not durable, or until `close`. Two tasks may wait."""
        if self._sync_wanted <= self.durable.seq:
            if self._sync_asked.is_set():
                self._sync_asked = trio.Event()
            await self._sync_asked.wait()


# Without a journal, lines in the kernel's log and in pstore show how far a shutdown came.

#: The kernel's log cuts or refuses longer lines.
LINE_BYTES_MAX = 900

KERNEL_LOG = "/dev/kmsg"
PSTORE = "/dev/pmsg0"


def transition_line(record: Record) -> str | None:
    """None: the record is no transition."""
    event = record.event
    if not event.last_resort:
        return None
    # A line has no room for the names of a hundred pods: show a list's length.
    fields = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        short = len(value) if isinstance(value, tuple) else repr(value) if isinstance(value, str) else value
        fields.append(f"{name}={short}")
    line = f"ebbtide: {record.seq} {record.mono_ns} {type(event).__name__} {' '.join(fields)}"
    return line[:LINE_BYTES_MAX]


def write_last_resort(line: str) -> None:
    """Never raises."""
    # The console and a remote log show the kernel's log; pstore survives the reboot.
    data = f"{line}\n".encode()
    if not _write_line(KERNEL_LOG, data):
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
    _write_line(PSTORE, data)


def _write_line(path: str, data: bytes) -> bool:
    # Never wait: pods must still end.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(descriptor, data) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)
