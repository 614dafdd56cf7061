"""What the logind edge holds between two facts, and how it reports: a fact is a change.

Reports take turns. What was read is put before the next signal is, and is thrown away when a signal came
in while it was read: otherwise "does not go down", read just before the signal, could follow it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import trio

from actors.edges.bus import Bus, BusError
from actors.edges.logind import reader
from actors.edges.logind.dropins import DropIns
from actors.edges.logind.link import Link
from actors.edges.logind.lock import DelayLock
from actors.edges.logind.schedule import NONE, Schedule
from actors.interfaces import Outlet
from events.facts import DropInsRead, LogindRead, PreparingRead

T = TypeVar("T")

#: Small files; a disk that takes longer hangs, and must hold nobody.
FILE_SECONDS_MAX = 2.0
#: A whole look holds the next signal's report up for no longer than this.
LOOK_SECONDS_MAX = 1.0
#: A reading that signals keep overtaking is given up: they say more than it would.
ATTEMPTS_MAX = 5


class HungDisk(Exception):
    """A file could not be read or written in time."""


async def in_thread(work: Callable[[], T]) -> T:
    """Raises HungDisk, and what ``work`` raises."""
    with trio.move_on_after(FILE_SECONDS_MAX):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise HungDisk(f"the disk did not answer within {FILE_SECONDS_MAX:g} s")


class Look(NamedTuple):
    """What one look in between saw. ``limit``: the grant and a kubelet's lock, where they were looked at."""

    preparing: bool
    owner: str
    limit: tuple[int, bool] | None


class Desk:
    """The parts of the edge, and the last values reported."""

    def __init__(self, link: Link, lock: DelayLock, files: DropIns, schedule: Schedule) -> None:
        self.link, self.lock, self.files, self.schedule = link, lock, files, schedule
        self.turn = trio.Lock()
        self.preparing = False
        self.grant_ns = 0
        self.kubelet_lock = False
        #: Of the last fact that named one.
        self.owner = ""
        self._drop_ins: DropInsRead | None = None
        self._scheduled = NONE

    async def report_state(self, outlet: Outlet) -> None:
        """Read logind and put `LogindRead`, changed or not. Raises BusError.

        Between attempts a signal that waits for its turn has it.
        """
        for _ in range(ATTEMPTS_MAX):
            bus = await self.link.bus()
            async with self.turn:
                found = None
                with trio.move_on_after(LOOK_SECONDS_MAX):
                    found = await reader.read_all(bus)
                if found is not None and not self.link.pending:
                    self.preparing, self.grant_ns, self.kubelet_lock = (
                        found.preparing,
                        found.grant_ns,
                        found.kubelet_lock,
                    )
                    self.owner = self.link.owner
                    await outlet.put(LogindRead(owner=self.owner, **found._asdict()))
                    return
        raise BusError("logind is too slow, or keeps signalling: its state could not be read in between")

    async def report_changes(self, outlet: Outlet) -> None:
        """Read logind again and put what is no longer as last reported. Silent while it is away.

        Call it in turn: with ``turn`` held.
        """
        if not self.link.owner:
            return
        look = None
        # No answer, nothing to say: the owner's change, or the connection's end, is a fact of its own.
        with contextlib.suppress(BusError), trio.move_on_after(LOOK_SECONDS_MAX):
            look = await self._look(await self.link.bus())
        if look is not None and not self.link.pending:
            await self._report(look, outlet)

    async def _look(self, bus: Bus) -> Look:
        """The limit and a kubelet's lock matter until the signal: then both are fixed."""
        preparing, owner = await reader.preparing(bus), self.link.owner
        if preparing or (preparing, owner) != (self.preparing, self.owner):
            return Look(preparing, owner, None)
        grant_ns, kubelet_lock = await reader.ask_all(bus, reader.grant, reader.kubelet_lock)
        return Look(preparing, owner, (grant_ns, kubelet_lock))

    async def _report(self, look: Look, outlet: Outlet) -> None:
        if (look.preparing, look.owner) != (self.preparing, self.owner):
            self.preparing, self.owner = look.preparing, look.owner
            await outlet.put(PreparingRead(preparing=look.preparing, owner=look.owner))
        elif look.limit is not None and look.limit != (self.grant_ns, self.kubelet_lock):
            self.grant_ns, self.kubelet_lock = look.limit
            await outlet.put(
                LogindRead(
                    owner=self.owner, grant_ns=self.grant_ns, preparing=False, kubelet_lock=self.kubelet_lock
                )
            )

    async def report_files(self, outlet: Outlet, always: bool = False) -> None:
        """Read the drop-ins and the schedule; put what changed, and the drop-ins if ``always``."""
        try:
            drop_ins, scheduled = await in_thread(lambda: (self.files.read(), self.schedule.read()))
        except HungDisk:
            return
        if always or drop_ins != self._drop_ins:
            self._drop_ins = drop_ins
            await outlet.put(drop_ins)
        if scheduled != self._scheduled:
            self._scheduled = scheduled
            await outlet.put(scheduled)
