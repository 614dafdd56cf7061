"""The listening half of the logind edge: signals become facts at once, the rest is looked at in between.

One task takes what logind says, in its order; when it has been silent for a while it looks at the
properties that announce no change. Another waits for the folders to change.
"""

from __future__ import annotations

from pathlib import Path

import trio

from actors.edges.bus import BusError
from actors.edges.inotify import FolderWatch
from actors.edges.logind import reader
from actors.edges.logind.desk import Desk
from actors.edges.logind.link import Ended, Item, Nudge
from actors.edges.logind.sifter import Going, OwnerChanged
from actors.interfaces import Outlet
from events.facts import BusLost, PrepareForShutdown, SignalRejected
from events.model import ShutdownKind

#: Below systemd 255 the kind costs a question. logind answers in half a millisecond; on a busy machine it is
#: worth a moment, because a power-off that is not known as one is treated as a reboot.
KIND_SECONDS_MAX = 0.25
PREPARING_SECONDS = 1.0
#: After a change that logind takes up a little later, or that somebody is about to tell it of.
HURRY_SECONDS = 0.5
HURRY_FOR_SECONDS = 5.0
#: Outside a shutdown: a lost signal, a limit that was changed without a trace in a folder we know, the lock
#: of a kubelet where the locks' folder cannot be watched. One that is started is on record this soon.
IDLE_SECONDS = 10.0
INHIBITORS = "run/systemd/inhibit"


class Watch:
    """The tasks of `LogindEdge.run`."""

    def __init__(self, desk: Desk, root: Path) -> None:
        self._desk = desk
        self._folders = (*desk.files.folders, desk.schedule.folder, root / INHIBITORS)
        self._hurry_until = 0.0

    async def listen(self, outlet: Outlet) -> None:
        """Report what logind says, and what it does not, until cancelled."""
        while True:
            item: Item | None = None
            with trio.move_on_after(self._period()):
                item = await self._desk.link.items.receive()
            async with self._desk.turn:
                if item is not None:
                    self._desk.link.handle()
                await self._report(item, outlet)
            if item is None:
                await self._desk.report_files(outlet)

    def _period(self) -> float:
        if self._desk.preparing:
            return PREPARING_SECONDS
        return HURRY_SECONDS if trio.current_time() < self._hurry_until else IDLE_SECONDS

    async def _report(self, item: Item | None, outlet: Outlet) -> None:
        match item:
            case Going():
                await self._report_going(item, outlet)
            case SignalRejected():
                await outlet.put(item)
            case Ended(error):
                await outlet.put(BusLost(error=error))
            case OwnerChanged(""):
                await outlet.put(BusLost(error="logind left the bus"))
            case Nudge():
                self._hurry_until = trio.current_time() + HURRY_FOR_SECONDS
                await self._desk.report_changes(outlet)
            case _:
                await self._desk.report_changes(outlet)

    async def _report_going(self, item: Going, outlet: Outlet) -> None:
        kind = item.kind if item.kind != "unknown" or not item.active else await self._ask_kind()
        self._desk.preparing, self._desk.owner = item.active, item.owner
        await outlet.put(
            PrepareForShutdown(
                active=item.active,
                kind=kind,
                grant_ns=self._desk.grant_ns,
                lock_held=self._desk.lock.held and self._desk.lock.alive(),
                owner=item.owner,
                kubelet_lock=self._desk.kubelet_lock,
            )
        )

    async def _ask_kind(self) -> ShutdownKind:
        """The kind, and in the same round trip the limit; what is not known in time stays as it was."""
        try:
            with trio.move_on_after(KIND_SECONDS_MAX):
                bus = await self._desk.link.bus()
                kind: ShutdownKind
                kind, grant_ns = await reader.ask_all(bus, reader.kind, reader.grant)
                self._desk.grant_ns = grant_ns
                return kind
        except BusError:
            pass
        return "unknown"

    async def follow_files(self, outlet: Outlet) -> None:
        """Report drop-ins and schedules when their folders change. Without inotify, `listen` looks."""
        try:
            folders = FolderWatch(self._folders)
        except OSError:
            return
        try:
            while True:
                await folders.changed()
                await self._desk.report_files(outlet)
                self._desk.link.nudge()
        finally:
            folders.close()
