"""Shipping in the daemon: starts a follower when a segment may have been closed.

A shutdown kills the follower, which is safe (`store_sink`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from msgspec.structs import replace

from ebbtide.actors.interfaces import Tell
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.shipping_destination import Backlog, Store, backlog
from ebbtide.side_process import EXIT_KEPT, Report, SideProcess, StoreJob


class ShippingEdge(SideProcess):
    """``locations``: of the journal, in their order."""

    def __init__(
        self,
        store: Store,
        locations: Sequence[str],
        journal_id: Callable[[], bytes],
        in_shutdown: Callable[[], bool],
        tell: Tell,
    ) -> None:
        super().__init__("shipping", tell)
        self._store, self._locations = store, tuple(locations)
        self._sources = [DirectorySource(path, own=True) for path in locations]
        self._journal_id, self._in_shutdown = journal_id, in_shutdown
        #: No shutdown is open.
        self._free = trio.Event()
        self._said = ""
        #: Not known to be in the store at retention's last look; and how many of these it has removed.
        self._unshipped: frozenset[str] = frozenset()
        self._lost = 0
        self._state: ShippingState | None = None

    def see(self, records: Sequence[Record]) -> None:
        """Does not read the records: a start may find an open shutdown."""
        if self._in_shutdown():
            # After a stop a request in a thread would go on.
            self._kill()
            if self._free.is_set():
                self._free = trio.Event()
        elif not self._free.is_set():
            self._free.set()
            self.want()

    def last_state(self) -> ShippingState | None:
        """By the last report."""
        return None if self._state is None else replace(self._state, lost=self._lost)

    def backlog(self) -> Backlog:
        """For retention, up to its hard cap. Raises OSError."""
        return backlog(self._locations, self._sources, self._journal_id(), self._store)

    def looked(self, found: Backlog) -> None:
        """Retention begins."""
        self._unshipped = found.names

    def removed(self, name: str) -> None:
        """Retention has removed this segment."""
        if name in self._unshipped:
            self._lost += 1
            self._tell(4, f"shipping: {name} was removed before the store confirmed it")

    async def _until_free(self) -> None:
        await self._free.wait()

    async def _live(self) -> int:
        code = await super()._live()
        # Killed by us; the rest follows after the shutdown.
        return EXIT_KEPT if self._in_shutdown() else code

    async def _send(self) -> None:
        # A shutdown may begin during the start.
        if self._in_shutdown():
            self._kill()
        await self._write(StoreJob(store=self._store, locations=self._locations))
        await trio.sleep_forever()

    def _reported(self, report: Report) -> None:
        self._state = report.shipping or self._state
        # Every new process finds the same problem: log it once.
        if report.text and report.text != self._said:
            self._said = report.text
            self._tell(report.level, report.text)
