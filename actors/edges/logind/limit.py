"""Raising logind's limit with a drop-in, and taking it back.

logind 252 has no reload command: it reads its files again on SIGHUP, some milliseconds later. It reads
them in the middle of a shutdown as well, but the timer that runs does not move; so nothing is touched then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from actors.edges.bus import Bus, BusError
from actors.edges.logind import reader
from actors.edges.logind.desk import Desk, HungDisk, in_thread
from actors.edges.logind.names import SYSTEMD, UNIT
from actors.interfaces import Ending, Outlet
from events.base import NS_PER_SECOND
from events.decisions import RemoveDropIn, WriteDropIn

SIGHUP = 1
#: Pauses between looks at the property; the kubelet's, and a short one because logind is quick.
PAUSES_SECONDS = (0.02, 0.1, 0.2, 0.4, 0.8)
PREPARING = Ending("failed", "preparing")


class Limit:
    """The effects of `WriteDropIn` and `RemoveDropIn`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def write(self, order: WriteDropIn, outlet: Outlet) -> Ending:
        """Done when logind shows the limit; failed names the file that wins against ours, if one does."""
        needed_ns = order.seconds * NS_PER_SECOND
        files = self._desk.files
        change = partial(files.write, order.seconds)
        return await self._apply(change, lambda grant_ns: grant_ns >= needed_ns, outlet)

    async def remove(self, order: RemoveDropIn, outlet: Outlet) -> Ending:
        """Done when logind shows what the other files say."""
        files = self._desk.files
        return await self._apply(files.remove, lambda grant_ns: grant_ns == files.effective_ns(), outlet)

    async def _apply(
        self, change: Callable[[], object], reached: Callable[[int], bool], outlet: Outlet
    ) -> Ending:
        try:
            bus = await self._desk.link.bus()
            if await reader.preparing(bus):
                return PREPARING
            await in_thread(change)
            await bus.method(SYSTEMD, "KillUnit", "ssi", UNIT, "all", SIGHUP)
            grant_ns = await _settle(bus, reached)
            await self._desk.report_state(outlet)
            await self._desk.report_files(outlet, always=True)
            return Ending() if reached(grant_ns) else Ending("failed", await self._why(grant_ns))
        except BusError as error:
            return Ending("failed", str(error))
        except (OSError, HungDisk) as error:
            return Ending("failed", f"cannot change {self._desk.files.ours}: {error}")

    async def _why(self, grant_ns: int) -> str:
        limit = f"logind's limit is {grant_ns / NS_PER_SECOND:g} s"
        overrider = (await in_thread(self._desk.files.read)).overridden_by
        if overrider:
            return f"{limit}: {overrider} is read after {self._desk.files.ours}; rename or mask it"
        return f"{limit}: it did not take up {self._desk.files.ours}; see journalctl -u {UNIT}"


async def _settle(bus: Bus, reached: Callable[[int], bool]) -> int:
    """The limit when it is as wanted, or after the last look."""
    for pause_seconds in PAUSES_SECONDS:
        if reached(await reader.grant(bus)):
            break
        await trio.sleep(pause_seconds)
    return await reader.grant(bus)
