"""The simulated edge to logind: arms, releases, listens. Facts and their order as the real one gives them."""

from __future__ import annotations

import math

import trio

from actors.interfaces import Ending, Outlet
from events.base import NS_PER_SECOND, Order
from events.decisions import Arm, Disarm, ReleaseLock, RemoveDropIn, WriteDropIn
from events.facts import BusLost, DropInsRead, LogindRead, PrepareForShutdown, PreparingRead
from tests.world.draws import Draws
from tests.world.edge import Edge, Life
from tests.world.logind import STORE, Disconnected, Going, InProgress, OwnerChanged, Said, Unreachable
from tests.world.node import Node
from tests.world.trail import sleep_ns

#: How often the real edge reads ``PreparingForShutdown`` in a shutdown (design, rule 2).
POLL_SECONDS = 1.0


class LogindEdge(Edge):
    """Arms, releases, listens."""

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws)
        self._heard, self._said = trio.open_memory_channel[Said](1024)
        self._preparing, self._owner, self._connected = False, "", False
        self.effects = {
            Arm: self._arm,
            Disarm: self._give_back,
            ReleaseLock: self._give_back,
            WriteDropIn: self._write_drop_in,
            RemoveDropIn: self._remove_drop_in,
        }
        if STORE in node.logind.holders:
            node.logind.duplicate(life.number)

    @property
    def _held(self) -> bool:
        return self._life.number in self._node.logind.holders

    async def run(self, outlet: Outlet) -> None:
        while True:
            said: Said | None = None
            with trio.move_on_after(POLL_SECONDS if self._preparing else math.inf):
                said = await self._said.receive()
            await self._report(said, outlet)

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None

    async def _report(self, said: Said | None, outlet: Outlet) -> None:
        if isinstance(said, Going):
            await sleep_ns(self._draws.between(100, 2000) * 1000)
            self._preparing, self._owner = said.active, said.owner
            await outlet.put(self._signal(said))
        elif isinstance(said, Disconnected):
            self._connected = False
            await outlet.put(BusLost(error="the connection to the bus broke"))
        elif said == OwnerChanged(""):
            await outlet.put(BusLost(error="logind left the bus"))
        else:
            await self._look(outlet)

    def _signal(self, said: Going) -> PrepareForShutdown:
        """As below systemd 255: the limit is asked for after the signal, and may have been raised by then."""
        grant_ns = self._node.logind.grant_ns
        return PrepareForShutdown(
            active=said.active, kind=said.kind, grant_ns=grant_ns, lock_held=self._held, owner=said.owner
        )

    async def _look(self, outlet: Outlet) -> None:
        """Read again; a fact is a change, and what a signal has overtaken is thrown away."""
        logind = self._node.logind
        await sleep_ns(self._draws.between(300, 3000) * 1000)
        if not self._connected or not logind.up or self._pending():
            return
        found = (logind.preparing, logind.owner)
        if found != (self._preparing, self._owner):
            self._preparing, self._owner = found
            await outlet.put(PreparingRead(preparing=found[0], owner=found[1]))

    def _pending(self) -> bool:
        return self._said.statistics().current_buffer_used > 0

    # --- effects -------------------------------------------------------------------------------

    async def _arm(self, order: Arm, outlet: Outlet) -> Ending:
        """Subscribe, lock, read, in this order."""
        self._life.begins(order)
        await self._take(300, 5000)
        try:
            self._node.logind.check()
            self._node.logind.subscribers[self._life.number] = self._hear
            self._connected = True
            refused = await self._take_lock() if order.lock and not self._held else ""
            await self._read_state(outlet)
        except Unreachable as error:
            return Ending("failed", str(error))
        await self._read_files(outlet)
        return Ending("failed", refused) if refused else Ending()

    def _hear(self, said: Said) -> None:
        self._heard.send_nowait(said)

    async def _take_lock(self) -> str:
        """Raises Unreachable."""
        await self._take(200, 3000)
        try:
            self._node.logind.inhibit(self._life.number)
        except InProgress as error:
            return str(error)
        await self._take(100, 2000)
        if self._node.features.fd_store:
            self._node.logind.duplicate(STORE)
        return ""

    async def _read_state(self, outlet: Outlet) -> None:
        """Raises Unreachable."""
        for _ in range(5):
            await self._take(200, 3000)
            logind = self._node.logind
            logind.check()
            if not self._pending():
                self._preparing, self._owner = logind.preparing, logind.owner
                kind = logind.kind if logind.preparing else "unknown"
                await outlet.put(
                    LogindRead(
                        owner=logind.owner, grant_ns=logind.grant_ns, preparing=logind.preparing, kind=kind
                    )
                )
                return
        raise Unreachable("logind keeps signalling")

    async def _read_files(self, outlet: Outlet) -> None:
        await self._take(100, 3000)
        logind = self._node.logind
        await outlet.put(
            DropInsRead(
                others_ns=logind.others_ns or 0,
                others_path="/etc/systemd/logind.conf" if logind.others_ns else "",
                ours_ns=logind.ours_ns,
                overridden_by="" if logind.obeys_drop_in else "/etc/systemd/logind.conf.d/zz.conf",
            )
        )

    async def _give_back(self, order: Disarm | ReleaseLock, outlet: Outlet) -> Ending:
        """The store's copy first, then ours."""
        late = self._life.begins(order)
        await self._take(100, 3000)
        self._node.logind.close(STORE)
        if not self._life.touch():
            await trio.sleep_forever()
        self._node.trail.note("release", detail=type(order).__name__, life=self._life.number, late=late)
        self._node.logind.close(self._life.number)
        self._life.touch()
        return Ending()

    async def _write_drop_in(self, order: WriteDropIn, outlet: Outlet) -> Ending:
        return await self._change(order, order.seconds * NS_PER_SECOND, outlet)

    async def _remove_drop_in(self, order: RemoveDropIn, outlet: Outlet) -> Ending:
        return await self._change(order, None, outlet)

    async def _change(self, order: Order, ours_ns: int | None, outlet: Outlet) -> Ending:
        logind = self._node.logind
        late = self._life.begins(order)
        await self._take(300, 3000)
        if not logind.up or logind.preparing:
            return Ending("failed", "preparing" if logind.up else "logind left the bus")
        logind.ours_ns = ours_ns
        detail = "removed" if ours_ns is None else str(ours_ns // NS_PER_SECOND)
        self._node.trail.note("drop-in", detail=detail, life=self._life.number, late=late)
        await self._take(1000, 50_000)
        logind.reload()
        try:
            await self._read_state(outlet)
        except Unreachable as error:
            return Ending("failed", str(error))
        await self._read_files(outlet)
        reached = ours_ns is None or logind.grant_ns >= ours_ns
        return Ending() if reached else Ending("failed", "another file is read after ours")
