"""The edge to systemd-logind: carries out `LogindActor`'s orders and reports what logind says.

One task takes logind's signals in order. When logind is silent, it reads properties that announce no change.
Another task follows the folders of logind's files. A signal becomes a fact after at most one bounded question
(its kind, below systemd 255); slower work follows.

A fact is a change, and reports take turns. What was read is put before the next signal, and dropped if a
signal came meanwhile: else an old "does not go down" could follow the signal.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, ask_once, system_bus_address
from ebbtide.actors.edges.linux.inotify import FolderWatch
from ebbtide.actors.edges.logind import manager as reader
from ebbtide.actors.edges.logind.connection import (
    ConnectionEnded,
    ConnectionItem,
    LogindConnection,
    OwnerChanged,
    ShutdownSignal,
)
from ebbtide.actors.edges.logind.drop_ins import DROP_IN_FOLDER_DEFAULT, DropIns
from ebbtide.actors.edges.logind.manager import (
    INHIBIT_WHO,
    INHIBIT_WHY,
    LOGIND_UNIT,
    MANAGER,
    NO_SCHEDULE,
    OPERATION_IN_PROGRESS,
    ScheduleFile,
)
from ebbtide.actors.edges.service_manager import LOCK_NAME, SYSTEMD, ServiceManager
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, StartState
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.units import span, span_s
from ebbtide.events.values import ShutdownKind


class LogindEdge(Edge):
    """The bus at ``address``, by default the system's.

    ``lock_fds``: locks that the service manager kept; now the edge's. ``root``: of logind's files.
    ``drop_in_folder``: for ours (ValueError for an unknown one).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        service: ServiceManager | None = None,
        lock_fds: Sequence[int] = (),
        root: Path = Path("/"),
        drop_in_folder: str = DROP_IN_FOLDER_DEFAULT,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._lock = DelayLock(service or ServiceManager(""), lock_fds)
        self._link = LogindConnection(address or system_bus_address())
        self._reporter = LogindReporter(
            self._link, self._lock, DropIns(root, drop_in_folder), ScheduleFile(root, wall_ns)
        )
        self._watch = LogindWatch(self._reporter, root)
        limit = DelayLimit(self._reporter)
        self.effects: Mapping[type[Order], Effect] = {
            d.Arm: self._arm,
            d.Disarm: self._give_back,
            d.ReleaseLock: self._give_back,
            d.WriteDropIn: limit.write,
            d.RemoveDropIn: limit.remove,
        }

    @property
    def lock_held(self) -> bool:
        return self._lock.held

    async def run(self, outlet: Outlet) -> None:
        """Until cancelled. The lock goes only with the process or by order."""
        try:
            async with trio.open_nursery() as nursery:
                self._link.open(nursery)
                nursery.start_soon(self._watch.follow_files, outlet)
                await self._watch.listen(outlet)
        finally:
            self._link.close()

    async def read_start_state(self) -> StartState:
        """For `DaemonStarted`: asked before there is a loop, for at most 0.3 s."""
        with trio.move_on_after(bounds.now.logind_start_seconds):
            try:
                found = await ask_once(self._link.address, reader.read_manager)
                return StartState(found.preparing, found.kind, found.grant_ns)
            except BusError:
                pass
        return StartState()

    def detach(self) -> None:
        """The lock goes with the process; the service manager keeps its copy."""
        self.hand_over()

    def hand_over(self) -> list[int]:
        """Give up the lock's descriptors, for a program that replaces us or closes them."""
        return self._lock.hand_over()

    # --- effects -------------------------------------------------------------------------------

    async def _arm(self, order: d.Arm, outlet: Outlet) -> Ending:
        # AddMatch (in the connection), then Inhibit, then PreparingForShutdown. Reading the property before
        # the lock is held could miss a shutdown in between; adding the match later could miss its signal. In
        # this order one of the two sees it.
        try:
            bus = await self._link.bus()
            refused = await self._take_lock(bus) if order.lock else ""
            await self._reporter.report_state(outlet)
        except BusError as error:
            return Ending("failed", str(error))
        await self._reporter.report_files(outlet, always=True)
        return Ending("failed", refused) if refused else Ending()

    async def _take_lock(self, bus: Bus) -> str:
        """Empty: a lock is held; else the name of logind's refusal. Raises BusError."""
        if self._lock.held:
            # An answer proves that logind has started and has reopened the locks it knows.
            await reader.read_preparing(bus)
            if self._lock.alive():
                return ""
        try:
            (lock,) = await bus.method(
                MANAGER, "Inhibit", "ssss", "shutdown", INHIBIT_WHO, INHIBIT_WHY, "delay", answer="h"
            )
        except BusRefused as error:
            if error.name != OPERATION_IN_PROGRESS:
                raise
            # It is dead, and would look like a lock.
            await self._lock.give_back()
            return OPERATION_IN_PROGRESS.rpartition(".")[2]
        await self._lock.take(lock.to_raw_fd())
        return ""

    async def _give_back(self, order: d.Disarm | d.ReleaseLock, outlet: Outlet) -> Ending:
        reason = await self._lock.give_back()
        return Ending("failed", reason) if reason else Ending()


#: In a shutdown: only the property may show a cancel, and until then pods are ended in vain.
PREPARING_SECONDS = 1.0
#: Outside a shutdown: a lost signal, a changed limit, a kubelet's lock where the locks' folder cannot be
#: watched.
IDLE_SECONDS = 10.0
INHIBIT_FOLDER = "run/systemd/inhibit"


class LogindWatch:
    def __init__(self, reporter: LogindReporter, root: Path) -> None:
        self._reporter = reporter
        self._folders = (*reporter.files.folders, reporter.schedule.folder, root / INHIBIT_FOLDER)

    async def listen(self, outlet: Outlet) -> None:
        """Report signals, and unannounced changes, until cancelled."""
        while True:
            item: ConnectionItem | None = None
            with trio.move_on_after(PREPARING_SECONDS if self._reporter.preparing else IDLE_SECONDS):
                item = await self._reporter.link.items.receive()
            async with self._reporter.turn:
                if item is not None:
                    self._reporter.link.handle()
                await self._report(item, outlet)
            if item is None:
                await self._reporter.report_files(outlet)

    async def _report(self, item: ConnectionItem | None, outlet: Outlet) -> None:
        match item:
            case ShutdownSignal():
                # Before the fact: its step chooses the termination mode by the kind.
                kind = item.kind if item.kind != "unknown" or not item.active else await self._ask_kind()
                self._reporter.preparing, self._reporter.owner = item.active, item.owner
                await outlet.put(
                    f.PrepareForShutdown(
                        active=item.active,
                        kind=kind,
                        grant_ns=self._reporter.grant_ns,
                        lock_held=self._reporter.lock.held and self._reporter.lock.alive(),
                        owner=item.owner,
                        kubelet_lock=self._reporter.kubelet_lock,
                    )
                )
            case f.SignalRejected():
                await outlet.put(item)
            case ConnectionEnded(error):
                await outlet.put(f.BusLost(error=error))
            case OwnerChanged(""):
                await outlet.put(f.BusLost(error="logind left the bus"))
            case _:
                await self._reporter.report_changes(outlet)

    async def _ask_kind(self) -> ShutdownKind:
        """The kind and the limit in one round trip; unknown values stay."""
        try:
            with trio.move_on_after(bounds.now.logind_kind_seconds):
                bus = await self._reporter.link.bus()
                kind: ShutdownKind
                kind, grant_ns = await reader.ask_all(bus, reader.read_scheduled_kind, reader.read_grant_ns)
                self._reporter.grant_ns = grant_ns
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
                await self._reporter.report_files(outlet)
                # Such as a kubelet's new lock.
                async with self._reporter.turn:
                    await self._reporter.report_changes(outlet)
        finally:
            folders.close()


# All last reports are in one place, since a fact is a change. Reports take turns (`turn`): a reading is put
# before the next signal, and dropped if a signal came meanwhile.


ResultT = TypeVar("ResultT")

#: Signals that keep overtaking a reading say more than it would.
READ_ATTEMPTS_MAX = 5


class HungDisk(Exception):
    """A file could not be read or written in time."""


async def in_bounded_thread(work: Callable[[], ResultT]) -> ResultT:
    """Raises HungDisk, and what ``work`` raises."""
    with trio.move_on_after(bounds.now.file_seconds):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise HungDisk(f"the disk did not answer within {span_s(bounds.now.file_seconds)}")


class LogindReporter:
    """The edge's parts, and the last reported values."""

    def __init__(
        self, link: LogindConnection, lock: DelayLock, files: DropIns, schedule: ScheduleFile
    ) -> None:
        self.link, self.lock, self.files, self.schedule = link, lock, files, schedule
        self.turn = trio.Lock()
        self.preparing = False
        self.grant_ns = 0
        self.kubelet_lock = False
        #: Of the last fact with an owner.
        self.owner = ""
        self._drop_ins: f.DropInsRead | None = None
        self._scheduled = NO_SCHEDULE

    async def report_state(self, outlet: Outlet) -> None:
        """Put `LogindRead`, changed or not. Raises BusError.

        Between attempts a waiting signal has its turn.
        """
        for _ in range(READ_ATTEMPTS_MAX):
            bus = await self.link.bus()
            async with self.turn:
                found = None
                with trio.move_on_after(bounds.now.logind_look_seconds):
                    found = await reader.read_manager(bus, self.kubelet_lock)
                if found is not None and not self.link.pending:
                    self.preparing, self.grant_ns = found.preparing, found.grant_ns
                    self.kubelet_lock = found.kubelet_lock
                    self.owner = self.link.owner
                    await outlet.put(f.LogindRead(owner=self.owner, **found._asdict()))
                    return
        raise BusError("logind is too slow, or keeps signalling: its state could not be read in between")

    async def report_changes(self, outlet: Outlet) -> None:
        """Read logind and put what has changed. Silent while logind is away.

        Call it with ``turn`` held.
        """
        if not self.link.owner:
            return
        # The owner's change and the connection's end are facts of their own.
        with contextlib.suppress(BusError), trio.move_on_after(bounds.now.logind_look_seconds) as look:
            bus = await self.link.bus()
            preparing, owner = await reader.read_preparing(bus), self.link.owner
            limit: list[Any] = []
            # After the signal the limit and a kubelet's lock are fixed.
            if not preparing and (preparing, owner) == (self.preparing, self.owner):
                kubelet_lock = partial(reader.read_kubelet_lock, self.kubelet_lock)
                limit = await reader.ask_all(bus, reader.read_grant_ns, kubelet_lock)
            look.deadline = math.inf
            if self.link.pending:
                return
            if (preparing, owner) != (self.preparing, self.owner):
                self.preparing, self.owner = preparing, owner
                await outlet.put(f.PreparingRead(preparing=preparing, owner=owner))
            elif limit and limit != [self.grant_ns, self.kubelet_lock]:
                self.grant_ns, self.kubelet_lock = limit
                await outlet.put(
                    f.LogindRead(
                        owner=self.owner,
                        grant_ns=self.grant_ns,
                        preparing=False,
                        kubelet_lock=self.kubelet_lock,
                    )
                )

    async def report_files(self, outlet: Outlet, always: bool = False) -> None:
        """Put changed drop-ins and schedules; the drop-ins also if ``always``."""
        try:
            drop_ins, scheduled = await in_bounded_thread(lambda: (self.files.read(), self.schedule.read()))
        except HungDisk:
            return
        if always or drop_ins != self._drop_ins:
            self._drop_ins = drop_ins
            await outlet.put(drop_ins)
        if scheduled != self._scheduled:
            self._scheduled = scheduled
            await outlet.put(scheduled)


# logind 252 has no reload command: it reads its files again on SIGHUP, some milliseconds later. In a shutdown
# the running timer does not change, so the files stay untouched then.


SIGHUP = 1
#: Between two looks at the property; the first is short because logind is quick.
PAUSES_SECONDS = (0.02, 0.1, 0.2, 0.4, 0.8)
ENDED_PREPARING = Ending("failed", "preparing")


class DelayLimit:
    def __init__(self, reporter: LogindReporter) -> None:
        self._reporter = reporter

    async def write(self, order: d.WriteDropIn, outlet: Outlet) -> Ending:
        """Done when logind shows the limit; failed names a file that wins against ours."""
        needed_ns = order.seconds * NS_PER_SECOND
        files = self._reporter.files
        change = partial(files.write, order.seconds)
        return await self._apply(change, lambda grant_ns: grant_ns >= needed_ns, outlet)

    async def remove(self, order: d.RemoveDropIn, outlet: Outlet) -> Ending:
        """Done when logind shows the other files' limit."""
        files = self._reporter.files
        return await self._apply(files.remove, lambda grant_ns: grant_ns == files.effective_ns(), outlet)

    async def _apply(
        self, change: Callable[[], object], reached: Callable[[int], bool], outlet: Outlet
    ) -> Ending:
        try:
            bus = await self._reporter.link.bus()
            if await reader.read_preparing(bus):
                return ENDED_PREPARING
            # Just before the change: in a shutdown it would move the property and not the timer.
            await in_bounded_thread(change)
            await bus.method(SYSTEMD, "KillUnit", "ssi", LOGIND_UNIT, "all", SIGHUP)
            # As wanted, or after the last look.
            for pause_seconds in PAUSES_SECONDS:
                if reached(await reader.read_grant_ns(bus)):
                    break
                await trio.sleep(pause_seconds)
            grant_ns = await reader.read_grant_ns(bus)
            await self._reporter.report_state(outlet)
            await self._reporter.report_files(outlet, always=True)
            if reached(grant_ns):
                return Ending()
            limit, ours = f"logind's limit is {span(grant_ns)}", self._reporter.files.ours
            overrider = (await in_bounded_thread(self._reporter.files.read)).overridden_by
            if overrider:
                return Ending("failed", f"{limit}: {overrider} is read after {ours}; rename or mask it")
            return Ending("failed", f"{limit}: it did not take up {ours}; see journalctl -u {LOGIND_UNIT}")
        except BusError as error:
            return Ending("failed", str(error))
        except (OSError, HungDisk) as error:
            return Ending("failed", f"cannot change {self._reporter.files.ours}: {error}")


# logind lets the machine go when every duplicate is closed. So descriptors are close-on-exec (a child would
# hold the machine), a new lock is taken before the old one is closed, and ours is closed after the service
# manager has confirmed that its duplicate is gone.


NOT_CONFIRMED = (
    "the service manager did not confirm that it dropped its copy of the lock; "
    "logind may wait until its own limit is over"
)


class DelayLock:
    """``descriptors``: those that the service manager kept."""

    def __init__(self, service: ServiceManager, descriptors: Sequence[int] = ()) -> None:
        self._service = service
        self._descriptors = list(descriptors)
        self._stored = bool(descriptors)

    @property
    def held(self) -> bool:
        return bool(self._descriptors)

    def alive(self) -> bool:
        """Does logind hold the other end of one? Only valid while logind answers on the bus."""
        poll = select.poll()
        for descriptor in self._descriptors:
            poll.register(descriptor, 0)
        return len(poll.poll(0)) < len(self._descriptors)

    async def take(self, descriptor: int) -> None:
        """Hold a new lock, then close the old one."""
        os.set_inheritable(descriptor, False)
        old, self._descriptors = self._descriptors, [descriptor]
        if self._stored:
            await self._service.remove(LOCK_NAME)
        self._stored = await self._service.store(LOCK_NAME, descriptor)
        _close_all(old)

    async def give_back(self) -> str:
        """Close every duplicate; returns why one may be left. Idempotent."""
        confirmed = not self._stored or await self._service.remove(LOCK_NAME)
        self._stored = False
        old, self._descriptors = self._descriptors, []
        _close_all(old)
        return "" if confirmed else NOT_CONFIRMED

    def hand_over(self) -> list[int]:
        """Our own descriptors, for another owner. The service manager's stay."""
        self._stored = False
        gone, self._descriptors = self._descriptors, []
        return gone


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
