"""Shipping, as the daemon sees it: a process that is started when a segment may have been closed.

Nothing of the journal passes through here, and nobody ever waits for it. A shutdown kills the process, and
none is started before it is over: half a request is no object, and the cursor only saves requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio

from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell
from ebbtide.events.base import Order, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.otel.delivery.destination import EXIT_KEPT, encode_line
from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.shipping_cursor import Backlog, backlog
from ebbtide.shipping.shipping_destination import Store
from ebbtide.shipping.shipping_messages import ShipJob, ShipReport
from ebbtide.side_process import SideProcess


class ShippingEdge(SideProcess):
    """``locations``: where the journal may stand, the first one first."""

    effects: Mapping[type[Order], Effect] = {}

    def __init__(
        self,
        store: Store,
        locations: Sequence[str],
        journal_id: Callable[[], bytes],
        in_shutdown: Callable[[], bool],
        tell: Tell,
    ) -> None:
        super().__init__("ebbtide.shipping", "shipping", tell)
        self._store, self._locations = store, tuple(locations)
        self._sources = [DirectorySource(path) for path in locations]
        self._journal_id, self._in_shutdown = journal_id, in_shutdown
        #: No shutdown is open; unset as long as nobody has said so.
        self._free = trio.Event()
        self._said, self._lost = "", 0
        #: Not known to be in the store when retention looked last; the one of them whose removal has begun.
        self._unshipped: frozenset[str] = frozenset()
        self._removing = ""
        self._state: ShippingState | None = None

    def see(self, records: Sequence[Record]) -> None:
        """An observer of steps. Asked of the system and not read from the records: a shutdown may also be
        found at a start.
        """
        if self._in_shutdown():
            # Whole, and not by asking it to stop: a request that is under way in a thread of its client, or a
            # segment that is being redacted, would go on.
            self._kill()
            if self._free.is_set():
                self._free = trio.Event()
        elif not self._free.is_set():
            self._free.set()
            self.want()

    def last_state(self) -> ShippingState | None:
        """As a process has said it last; None: none has looked yet."""
        return self._state

    def backlog(self) -> Backlog:
        """What retention keeps up to its hard cap. Reads files; raises OSError."""
        return backlog(self._locations, self._sources, self._journal_id(), self._store)

    def looked(self, found: Backlog) -> None:
        """Retention begins with this. A removal that failed, or was not waited for, may have happened all the
        same: that is seen here.
        """
        if self._removing not in found.accounted:
            self.removed()
        self._unshipped, self._removing = found.names, ""

    def removing(self, name: str) -> None:
        """By retention, shipped or not."""
        self._removing = name if name in self._unshipped else ""

    def removed(self) -> None:
        """What was not shipped is said here, and put on record by the next process."""
        if name := self._removing:
            self._removing = ""
            self._lost += 1
            self._tell(4, f"shipping: {name} was removed before it was known to be in the store")

    async def _until_free(self) -> None:
        await self._free.wait()

    async def _live(self) -> int:
        code = await super()._live()
        # Killed by us; what is left is sent behind the shutdown.
        return EXIT_KEPT if self._in_shutdown() else code

    async def _send(self) -> None:
        # A shutdown may have begun while it was being started.
        if self._in_shutdown():
            self._kill()
        job = ShipJob(store=self._store, locations=self._locations, lost=self._lost)
        await self._say(encode_line(job))
        await trio.sleep_forever()

    def _hear(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=ShipReport)
        except ValueError:  # also what is not UTF-8
            return
        self._state = report.state or self._state
        self._lost -= report.recorded
        # What every process finds anew (no client, a journal that cannot be read) is said once.
        if report.text and report.text != self._said:
            self._said = report.text
            self._tell(report.level, report.text)

    def prewarm(self) -> None:
        """What is imported late is imported in another process."""

    def detach(self) -> None:
        """The process sees its pipe end, and has a few seconds of its own."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """It has no orders."""
        return Ending("failed", "the daemon was restarted")
