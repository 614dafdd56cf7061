"""The daemon's side of shipping: it starts a process when a segment may be closed.

The daemon never waits for the process. A shutdown kills it and starts none until its end: a partial request
leaves no object, and the cursor only saves requests.
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
    """``locations``: possible places of the journal, the first one first."""

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
        #: Set while no shutdown is open; unset before the first step.
        self._free = trio.Event()
        self._said, self._lost = "", 0
        #: Not confirmed at retention's last look; and the segment of these whose removal has begun.
        self._unshipped: frozenset[str] = frozenset()
        self._removing = ""
        self._state: ShippingState | None = None

    def see(self, records: Sequence[Record]) -> None:
        """An observer of steps. It reads the system's state, because a start may find a shutdown in
        progress.
        """
        if self._in_shutdown():
            # Kill, not stop: a request in a client's thread or a redaction would go on.
            self._kill()
            if self._free.is_set():
                self._free = trio.Event()
        elif not self._free.is_set():
            self._free.set()
            self.want()

    def last_state(self) -> ShippingState | None:
        """The last report of a process; None without any."""
        return self._state

    def backlog(self) -> Backlog:
        """The segments that retention keeps up to its hard cap. Reads files; raises OSError."""
        return backlog(self._locations, self._sources, self._journal_id(), self._store)

    def looked(self, found: Backlog) -> None:
        """Before a removal. Detects a last removal that happened despite an error or a deadline."""
        if self._removing not in found.accounted:
            self.removed()
        self._unshipped, self._removing = found.names, ""

    def removing(self, name: str) -> None:
        """After retention removed a segment, shipped or not."""
        self._removing = name if name in self._unshipped else ""

    def removed(self) -> None:
        """Logs lost segments; the next process records them."""
        if name := self._removing:
            self._removing = ""
            self._lost += 1
            self._tell(4, f"shipping: {name} was removed before it was known to be in the store")

    async def _until_free(self) -> None:
        await self._free.wait()

    async def _live(self) -> int:
        code = await super()._live()
        # We killed it; the rest is sent after the shutdown.
        return EXIT_KEPT if self._in_shutdown() else code

    async def _send(self) -> None:
        # A shutdown may begin during the start.
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
        # Every process finds the same problem (no client, an unreadable journal): log it once.
        if report.text and report.text != self._said:
            self._said = report.text
            self._tell(report.level, report.text)

    def prewarm(self) -> None:
        """No-op: the other process imports late code."""

    def detach(self) -> None:
        """The process sees the end of its pipe and has a few seconds left."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """It has no orders."""
        return Ending("failed", "the daemon was restarted")
