"""The asynchronous half of the writer: the backlog goes to disk, and what a failing disk does to it.

Writing and syncing are two loops, so that a slow sync keeps no record from being written. A failed or hung
write or sync is final for its file: nothing can be known of it any more. The next file, at the same
location if only space was missing and at the next one otherwise, begins with every record not known durable.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

import trio

from events.backlog import Backlog
from events.bounds import SYNC_HANG_SECONDS, bounded
from events.chain import Item
from events.files import begin, close
from events.reports import Reports
from events.segment import file_name
from events.settle import Settler, WayBack
from events.storage import NO_SPACE, JournalLocked, SegmentFile, Storage

#: The longest that written data stays unsynced when nobody waits for it.
SYNC_SECONDS_MAX = 0.1
#: A whole shutdown of 1 000 pods is about 20 records of 300 bytes a pod.
RESERVE_BYTES = 8 * 1024 * 1024


class Driver:
    """Drives one backlog over a list of locations, the best first."""

    def __init__(self, storages: Sequence[Storage], backlog: Backlog, program: str, reports: Reports) -> None:
        self._storages, self._at = list(storages), 0
        self._backlog = backlog
        self._settler = Settler(program, backlog.chain.journal_id)
        self._way_back = WayBack(self._settler, self._storages)
        self._nursery: trio.Nursery
        self._reports = reports
        self._file: SegmentFile | None = None
        self._broken: OSError | None = None
        self._reserved = self._begun = False
        self._syncing = trio.Lock()

    @property
    def location(self) -> str:
        """Where the journal is being written; empty when it is lost."""
        return "" if self._backlog.lost else self._storages[self._at].location

    @property
    def away(self) -> bool:
        """Not at the first location: a new segment prepares the way back, a later one takes it."""
        return self._at > 0

    async def open(self) -> None:
        """Become the writer of the first location that works. Raises JournalLocked.

        Where the history cannot be brought together at any, a gap in it is better than no evidence at all.
        """
        reason = "there is no location"
        for settle_at in (self._settle, self._settle_alone, self._acquire):
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
        """Until the backlog is closed and empty, or lost."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._sync_loop)
            await self._reserve()
            await self._write_loop()
            nursery.cancel_scope.cancel()

    async def release(self) -> None:
        for storage in self._storages[: self._at + 1]:
            with suppress(OSError):
                await bounded(storage.release)

    # --- writing -------------------------------------------------------------------------------

    async def _write_loop(self) -> None:
        while not self._backlog.settled:
            item = self._backlog.next()
            try:
                if self._broken is not None:
                    raise self._broken
                if item is None:
                    await self._backlog.queue_changed()
                else:
                    await self._write(item)
            except OSError as error:
                await self._move(error)

    async def _write(self, item: Item) -> None:
        if item.header:
            await self._begin_segment(item)
        elif item.record is None:
            await self._seal(item)
        else:
            file, data = self._open_file(), self._backlog.take_records()
            end = self._backlog.taken()
            await bounded(file.write, data)
            self._backlog.publish_written(end)

    async def _begin_segment(self, item: Item) -> None:
        if self.away and self._begun:
            await self._go_back(item.end.segment)
        self._begun = True
        name = file_name(item.end.segment, self._backlog.chain.journal_id)
        file = await begin(self._storages[self._at], name, item.data)
        self._backlog.take()
        self._file, self._syncing = file, trio.Lock()
        self._backlog.publish_written(item.end)

    async def _seal(self, item: Item) -> None:
        """A trailer says that all before it is durable: it is written after a sync, and synced itself."""
        file = self._open_file()
        await self._sync(file)
        self._backlog.take()
        await bounded(file.write, item.data)
        self._backlog.publish_written(item.end)
        await self._sync(file)
        self._file = None
        await close(file)

    def _open_file(self) -> SegmentFile:
        if self._file is None:
            raise OSError(errno.EBADF, "no segment is open")
        return self._file

    # --- syncing -------------------------------------------------------------------------------

    async def _sync_loop(self) -> None:
        while True:
            if self._file is None or self._broken is not None or not self._backlog.unsynced:
                await self._backlog.changed()
                continue
            with trio.move_on_after(SYNC_SECONDS_MAX):
                await self._backlog.sync_asked()
            file = self._file
            if file is not None:
                with suppress(OSError):
                    await self._sync(file)

    async def _sync(self, file: SegmentFile) -> None:
        """One at a time: of two syncs the kernel tells only one that data was lost.

        A sync that ends after its file was given up says nothing about the one that replaced it.
        """
        async with self._syncing:
            if self._broken is not None:
                raise self._broken
            end = self._backlog.written
            try:
                await bounded(file.sync, seconds=SYNC_HANG_SECONDS)
            except OSError as error:
                if file is self._file:
                    self._broken = error
                    self._backlog.kick()
                raise
            if file is self._file and end[:2] > self._backlog.durable[:2]:
                self._backlog.publish_durable(end)

    # --- failing -------------------------------------------------------------------------------

    async def _move(self, error: OSError) -> None:
        """Go on in another file, at the first location that takes it."""
        while not self._backlog.lost:
            self._drop_file()
            self._broken = None
            in_reserve, self._reserved = error.errno in NO_SPACE and self._reserved, False
            try:
                await self._carry(in_reserve, error)
                return
            except OSError as another:
                error = another
            except JournalLocked as locked:
                error = OSError(errno.EBUSY, str(locked))

    async def _carry(self, in_reserve: bool, error: OSError) -> None:
        if in_reserve:
            self._reports.failed(self.location, f"{error}; the journal goes on in its reserve")
            await bounded(self._storages[self._at].set_reserve, 0)
        else:
            self._give_up(error)
        if self._backlog.lost:
            return
        storage = self._storages[self._at]
        await self._settler.acquire(storage)
        data, first_seq = self._backlog.carry(), self._backlog.durable.seq + 1
        end = self._backlog.chain.end
        file = await begin(storage, file_name(end.segment, self._backlog.chain.journal_id), data)
        self._file, self._syncing = file, trio.Lock()
        self._reports.moved(storage.location, first_seq)
        self._backlog.publish_written(end)
        if not in_reserve:
            self._nursery.start_soon(self._reserve)

    def _drop_file(self) -> None:
        """What it still holds is written again elsewhere; only its descriptor is of interest."""
        file, self._file = self._file, None
        if file is not None:
            self._nursery.start_soon(close, file)

    def _give_up(self, error: OSError) -> None:
        self._reports.failed(self.location, str(error))
        if self._at + 1 < len(self._storages):
            self._at += 1
        else:
            self._reports.lost(str(error), self._backlog.lose())

    # --- beginning -----------------------------------------------------------------------------

    async def _settle_alone(self, at: int) -> None:
        await self._settler.settle(self._storages[at], ())

    async def _acquire(self, at: int) -> None:
        await self._settler.acquire(self._storages[at])

    async def _settle(self, at: int) -> None:
        await self._settler.settle(self._storages[at], self._storages[at + 1 :])

    async def _go_back(self, segment: int) -> None:
        """The first location may be well again; nothing that takes long is done here."""
        if await self._way_back.finish():
            self._at = 0
            self._reports.moved(self.location, self._backlog.written.seq + 1)
            self._nursery.start_soon(self._reserve)
        else:
            self._nursery.start_soon(self._way_back.prepare, segment)

    async def _reserve(self) -> None:
        """Without a reserve a full disk moves the journal to the next location: no reason to stop."""
        if not self._backlog.lost:
            storage = self._storages[self._at]
            with suppress(OSError):
                await bounded(storage.set_reserve, RESERVE_BYTES)
                self._reserved = storage is self._storages[self._at]
