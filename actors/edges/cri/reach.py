"""Does the runtime answer? Said when it changes: as a fact, and to the operator.

A connection that breaks is noticed at once, a runtime that hangs by its lists that do not come. A break of
less than a second (a runtime that is restarted quickly) is passed over.
"""

from __future__ import annotations

from typing import Protocol

import trio

from actors.edges.cri.errors import Lost
from actors.edges.cri.notes import Notes
from actors.interfaces import Outlet
from events.facts import RuntimeRead

#: Longer than gRPC needs to connect anew, shorter than anybody at a signal would wait.
AWAY_SECONDS = 1.0
#: Two lists that do not come. One may be late beside a hundred stops on a slow node.
HANGS_SECONDS = 8.0


class Connection(Protocol):
    """What is asked of `actors.edges.cri.link.Link`."""

    async def ready(self, seconds: float) -> None:
        """Return once the runtime is connected; raises Lost when it is not in time."""

    async def gone(self) -> None:
        """Return once it no longer is."""


class Reach:
    """``known`` is set when it has been found out, one way or the other."""

    def __init__(self, connection: Connection, notes: Notes) -> None:
        self.answering: bool | None = None
        self.known = trio.Event()
        self._connection = connection
        self._notes = notes
        self._failing_since: float | None = None
        self._turn = trio.Lock()

    @property
    def away(self) -> bool:
        return self.answering is False

    async def follow(self, outlet: Outlet, back: trio.MemorySendChannel[None]) -> None:
        """Until cancelled; something goes into ``back`` when the runtime can be asked again."""
        while True:
            try:
                await self._connection.ready(AWAY_SECONDS)
            except Lost as error:
                await self._say(False, outlet, error)
                await self._connection.ready(float("inf"))
            try:
                back.send_nowait(None)
            except trio.WouldBlock:
                pass  # It is about to be asked in any case.
            await self._connection.gone()

    async def answers(self, outlet: Outlet) -> None:
        """It has told all that it was asked."""
        self._failing_since = None
        await self._say(True, outlet)

    async def fails(self, error: Exception, since: float, outlet: Outlet) -> None:
        """A look that began at ``since`` has failed."""
        if self._failing_since is None:
            self._failing_since = since
        if trio.current_time() - self._failing_since > HANGS_SECONDS:
            await self._say(False, outlet, error)

    async def _say(self, answering: bool, outlet: Outlet, error: Exception | None = None) -> None:
        async with self._turn:
            if self.answering is not answering:
                self.answering = answering
                if error is None:
                    self._notes.back()
                else:
                    self._notes.away(error)
                await outlet.put(RuntimeRead(reachable=answering, error="" if error is None else str(error)))
            self.known.set()
