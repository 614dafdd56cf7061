"""Shipping, as the daemon sees it: a process that is started when a segment may have been closed.

Nothing of the journal passes through here, and nobody ever waits for it: a shutdown has the process stop at
once, and none is started before it is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import trio

from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell
from ebbtide.events.base import Order, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import EpisodeClosed, ShutdownBegan
from ebbtide.events.facts import DaemonStarted
from ebbtide.otel.delivery.destination import ExporterReport, encode_line
from ebbtide.otel.metrics import ShippedCounts
from ebbtide.shipping.destination import (
    Backlog,
    ShipJob,
    ShipRequest,
    Store,
    backlog,
    load_shipped_first,
)
from ebbtide.tracing import AFTER_START_SECONDS, SideProcess, SyncedJournal

#: Once a shutdown is over its segment may be closed, and the machine may go any moment.
AFTER_CLOSE_SECONDS = 0.1


class ShippingEdge(SideProcess):
    """``locations``: where the journal may stand, the first one first."""

    effects: Mapping[type[Order], Effect] = {}

    def __init__(self, store: Store, locations: Sequence[str], journal: SyncedJournal, tell: Tell) -> None:
        super().__init__("ebbtide.shipping", "shipping", tell)
        self._job = ShipJob(store=store, locations=tuple(locations))
        self._sources = [DirectorySource(path) for path in locations]
        self._journal = journal
        self._held = False
        self._turned = trio.Event()
        #: A start that fell into a shutdown is made up for behind it.
        self._missed = False

    def see(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.event, DaemonStarted):
                self.want()
            elif isinstance(record.event, ShutdownBegan):
                self._hold(True)
            elif isinstance(record.event, EpisodeClosed):
                self._hold(False)
                self.want(AFTER_CLOSE_SECONDS)

    def want(self, delay_seconds: float = AFTER_START_SECONDS) -> None:
        self._missed = self._missed or self._held
        if not self._held:
            super().want(delay_seconds)

    def _hold(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self._turned.set()
            self._turned = trio.Event()
            if not held and self._missed:
                self._missed = False
                self.want()

    def backlog(self) -> Backlog:
        """What is closed and not in the store yet, as far as is known. Reads files; raises OSError."""
        return backlog(self._job.locations, self._sources, self._journal.journal_id, self._job.store)

    def counts(self) -> ShippedCounts:
        """For the metrics, as the cursor has them. Reads a file."""
        found = load_shipped_first(self._job.locations, self._job.store)
        return ShippedCounts(found.stored, found.present, found.failed, found.left)

    async def _live(self) -> int:
        # Between the wish and the start a shutdown may have begun.
        while self._held:
            await self._turned.wait()
        return await super()._live()

    async def _send(self) -> None:
        await self._say(encode_line(self._job))
        while True:
            turned = self._turned
            await self._say(encode_line(ShipRequest(hold=self._held)))
            await turned.wait()

    def _hear(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=ExporterReport)
        except ValueError:  # also what is not UTF-8
            return
        self._tell(report.level, report.text)

    def prewarm(self) -> None:
        """What is imported late is imported in another process."""

    def detach(self) -> None:
        """The process sees its pipe end, and has a few seconds of its own."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """It has no orders."""
        return Ending("failed", "the daemon was restarted")
