"""logind on a laptop: the same orders and facts as the real one, without bus, root, or a power-off.

It keeps logind's rules: the signal comes first; with a delay lock held it then waits until the lock goes or
the limit is over; no lock can be had while it waits; without a lock it does not wait at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import trio

from actors.edges.start_state import StartState
from actors.interfaces import Effect, Ending, Outlet
from events.base import NS_PER_SECOND, Order
from events.decisions import Arm, Disarm, ReleaseLock, RemoveDropIn, WriteDropIn
from events.facts import DropInsRead, LogindRead, PrepareForShutdown
from events.model import ShutdownKind

OWNER = "embedded"
#: logind's own default.
GRANT_SECONDS = 5
IN_PROGRESS = Ending("failed", "OperationInProgress")
PREPARING = Ending("failed", "preparing")


class Down(NamedTuple):
    """How the wait ended: ``released``, or ``timed_out`` with the lock still held."""

    kind: ShutdownKind
    timed_out: bool


class EmbeddedLogindEdge:
    """One program's own logind. ``grant_seconds`` is its limit until a drop-in raises it."""

    def __init__(self, grant_seconds: int = GRANT_SECONDS) -> None:
        self._base_seconds = grant_seconds
        self._ours_seconds: int | None = None
        self._kind: ShutdownKind = "unknown"
        self._commands, self._inbox = trio.open_memory_channel[ShutdownKind | None](1)
        self._free = trio.Event()
        self._free.set()
        self.preparing = False
        #: Set when the machine would go down now; `down` then says how.
        self.released = trio.Event()
        self.down: Down | None = None
        self.effects: Mapping[type[Order], Effect] = {
            Arm: self._arm,
            Disarm: self._give_back,
            ReleaseLock: self._give_back,
            WriteDropIn: self._write_drop_in,
            RemoveDropIn: self._remove_drop_in,
        }

    @property
    def lock_held(self) -> bool:
        return not self._free.is_set()

    @property
    def grant_ns(self) -> int:
        return NS_PER_SECOND * (self._base_seconds if self._ours_seconds is None else self._ours_seconds)

    async def begin(self, kind: ShutdownKind = "poweroff") -> None:
        """Ask for a shutdown, as ``systemctl KIND`` does. While one runs, a second is not begun."""
        await self._commands.send(kind)

    async def cancel(self) -> None:
        """The machine does not go down after all. Nothing happens when it does not anyway."""
        await self._commands.send(None)

    async def run(self, outlet: Outlet) -> None:
        """Carry shutdowns out, one at a time, until cancelled."""
        async for kind in self._inbox:
            if kind is not None:
                await self._shut_down(kind, outlet)

    def prewarm(self) -> None:
        """Nothing here is imported late."""

    def detach(self) -> None:
        """Nothing is held outside this process."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Nothing here outlives its process."""
        return None

    async def read_start_state(self) -> StartState:
        """As the real edge: a program's own logind never shuts down before the program runs."""
        return StartState(preparing=False, grant_ns=self.grant_ns)

    async def _shut_down(self, kind: ShutdownKind, outlet: Outlet) -> None:
        self.preparing, self._kind = True, kind
        limit_seconds = self.grant_ns / NS_PER_SECOND
        await outlet.put(self._signal(active=True))
        with trio.move_on_after(limit_seconds) as limit:
            if await self._released_or_cancelled():
                self.down = Down(kind, timed_out=False)
                self.released.set()
                return
        if limit.cancelled_caught:
            self.down = Down(kind, timed_out=True)
            self.released.set()
            return
        self.preparing = False
        await outlet.put(self._signal(active=False))

    async def _released_or_cancelled(self) -> bool:
        """True: the lock has gone. False: cancelled first."""
        cancelled = False

        async def hear_cancel() -> None:
            nonlocal cancelled
            while await self._inbox.receive() is not None:
                pass
            cancelled = True
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_cancel)
            await self._free.wait()
            nursery.cancel_scope.cancel()
        return not cancelled

    def _signal(self, *, active: bool) -> PrepareForShutdown:
        return PrepareForShutdown(
            active=active,
            kind=self._kind,
            grant_ns=self.grant_ns,
            lock_held=self.lock_held,
            owner=OWNER,
        )

    # --- effects -------------------------------------------------------------------------------

    async def _arm(self, order: Arm, outlet: Outlet) -> Ending:
        refused = order.lock and self.preparing and not self.lock_held
        if order.lock and not refused:
            self._free = trio.Event() if self._free.is_set() else self._free
        await self._report(outlet)
        return IN_PROGRESS if refused else Ending()

    def _give_back(self, order: Disarm | ReleaseLock, outlet: Outlet) -> Ending:
        self._free.set()
        return Ending()

    async def _write_drop_in(self, order: WriteDropIn, outlet: Outlet) -> Ending:
        return await self._limit(order.seconds, outlet)

    async def _remove_drop_in(self, order: RemoveDropIn, outlet: Outlet) -> Ending:
        return await self._limit(None, outlet)

    async def _limit(self, seconds: int | None, outlet: Outlet) -> Ending:
        if self.preparing:
            return PREPARING
        self._ours_seconds = seconds
        await self._report(outlet)
        return Ending()

    async def _report(self, outlet: Outlet) -> None:
        ours_ns = None if self._ours_seconds is None else self._ours_seconds * NS_PER_SECOND
        await outlet.put(
            LogindRead(
                owner=OWNER,
                grant_ns=self.grant_ns,
                preparing=self.preparing,
                kind=self._kind if self.preparing else "unknown",
            ),
            DropInsRead(others_ns=self._base_seconds * NS_PER_SECOND, ours_ns=ours_ns),
        )
