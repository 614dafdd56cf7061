"""What stands between `append` and the disk: items queued, items written, and who waits for which.

Everything here is synchronous but the waiting. An item is *queued* until the driver takes it, then *pending*
until it is known durable; a file that fails hands both on to the next file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from events.chain import Chain, Item
from events.segment import Link

#: One `write()`; a backlog after a stall goes out in several.
WRITE_BYTES_MAX = 1024 * 1024


class Backlog:
    """The items between the chain's end and the last place known durable."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.written = self.durable = chain.end
        self.closing = self.lost = False
        self._queued: deque[Item] = deque()
        self._pending: deque[Item] = deque()
        self._sync_wanted = 0
        self._queue_changed, self._sync_asked = trio.Event(), trio.Event()
        self._published = trio.lowlevel.ParkingLot()

    @property
    def settled(self) -> bool:
        """Nothing is left to write or to sync, and nothing more will come."""
        return self.lost or (self.closing and not self._queued and not self._pending)

    @property
    def unsynced(self) -> bool:
        return self.written != self.durable

    def add(self, items: Sequence[Item]) -> None:
        self._queued.extend(items)
        self._queue_changed.set()

    def next(self) -> Item | None:
        return self._queued[0] if self._queued else None

    def take(self) -> Item:
        """The next item; it is pending from now on."""
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
        """The place behind the last item that was taken."""
        return self._pending[-1].end

    def publish_written(self, end: Link) -> None:
        self.written = end
        self.want_sync(self._sync_wanted)
        self._published.unpark_all()

    def publish_durable(self, end: Link) -> None:
        while self._pending and self._pending[0].end[:2] <= end[:2]:
            self._pending.popleft()
        self.durable = end
        self._queue_changed.set()
        self._published.unpark_all()

    def carry(self) -> bytes:
        """The first bytes of a file that goes on behind the last durable place; all items are pending now."""
        data, moved = self.chain.carry(self.durable, [*self._pending, *self._queued])
        self._pending, self._queued = deque(moved), deque()
        return data

    def lose(self) -> list[Item]:
        """There is nowhere left to write: nobody need wait any more. What was not durable."""
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

    def kick(self) -> None:
        """Wake everybody: something outside the backlog changed."""
        self._queue_changed.set()
        self._published.unpark_all()

    async def changed(self) -> None:
        """Until something was published."""
        await self._published.park()

    async def queue_changed(self) -> None:
        """Until something was queued, or made durable, since the last call returned."""
        await self._queue_changed.wait()
        self._queue_changed = trio.Event()

    async def sync_asked(self) -> None:
        """Until somebody waits for more than is durable."""
        if self._sync_wanted <= self.durable.seq:
            self._sync_asked = trio.Event()
            await self._sync_asked.wait()
