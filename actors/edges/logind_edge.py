"""The edge to systemd-logind: its signals and properties as facts, and `LogindActor`'s orders.

A property that was read just before a signal must not be reported after it: an old "does not go down" would
undo the signal. So reports take turns, the connection counts arrived and reported signals, and a reading
counts only while both agree (`pending`).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import trio
from jeepney import HeaderFields, Message

from ebbtide.actors.edges import logind_reading as reader
from ebbtide.actors.edges.linux.bus import (
    Bus,
    BusError,
    BusRefused,
    ask_once,
    bus_socket,
    member,
    sender,
    system_bus_address,
)
from ebbtide.actors.edges.logind_reading import (
    DROP_IN_FOLDER_DEFAULT,
    INHIBIT_WHO,
    INHIBIT_WHY,
    LOGIND_NAME,
    LOGIND_PATH,
    LOGIND_UNIT,
    MANAGER,
    MANAGER_INTERFACE,
    NO_SCHEDULE,
    OPERATION_IN_PROGRESS,
    OWNER_CHANGED,
    PREPARE_FOR_SHUTDOWN,
    PREPARE_FOR_SHUTDOWN_WITH_METADATA,
    DropIns,
    ScheduleFile,
    kind_in_metadata,
)
from ebbtide.actors.edges.service_manager import LOCK_NAME, SYSTEMD, ServiceManager
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, StartState
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.facts import SignalRejected
from ebbtide.events.inotify import FolderWatch
from ebbtide.events.units import span, span_s
from ebbtide.events.values import LockHolder, ShutdownKind

BUS_NAME = "org.freedesktop.DBus"
#: A flood of wrong signals must not fill our disk.
REJECTED_MAX = 16
TEXT_CHARACTERS_MAX = 200


class ShutdownSignal(NamedTuple):
    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """``owner`` empty: logind's name has no owner."""

    owner: str


FilteredSignal = ShutdownSignal | OwnerChanged | SignalRejected | None


class SignalFilter:
    """Accepts valid signals from the owner of logind's name, each once. Any local user may send us a signal;
    the kubelet once crashed on a wrong body (kubernetes#97951).
    """

    def __init__(self) -> None:
        #: None: not known yet.
        self.owner: str | None = None
        self._announced: ShutdownSignal | None = None
        self._rejected = 0

    def accept(self, message: Message) -> FilteredSignal:
        """None: irrelevant, or known."""
        name, fields = member(message), message.header.fields
        if name == OWNER_CHANGED and sender(message) == BUS_NAME:
            body = message.body
            if len(body) != 3 or body[0] != LOGIND_NAME:
                return None
            self.owner, self._announced = str(body[2]), None
            return OwnerChanged(self.owner)
        if (
            name not in (PREPARE_FOR_SHUTDOWN, PREPARE_FOR_SHUTDOWN_WITH_METADATA)
            or fields.get(HeaderFields.path) != LOGIND_PATH
            or fields.get(HeaderFields.interface) != MANAGER_INTERFACE
        ):
            return None
        if not self.owner or sender(message) != self.owner:
            return self._reject(message, f"not sent by logind ({self.owner or 'not on the bus'})")
        try:
            body = message.body
        except BusError as error:
            return self._reject(message, str(error))
        if name == PREPARE_FOR_SHUTDOWN_WITH_METADATA:
            if len(body) != 2 or not isinstance(body[0], bool) or not isinstance(body[1], dict):
                return self._reject(message, f"the body is {body!r}, not a boolean and a dictionary")
            self._announced = ShutdownSignal(body[0], kind_in_metadata(body[1]), sender(message))
            return self._announced
        if len(body) != 1 or not isinstance(body[0], bool):
            return self._reject(message, f"the body is {body!r}, not one boolean")
        # systemd 255 and later sends two signals for one shutdown, the one with the kind first.
        announced, self._announced = self._announced, None
        if announced is not None and announced.active == body[0]:
            return None
        return ShutdownSignal(body[0], "unknown", sender(message))

    def _reject(self, message: Message, reason: str) -> SignalRejected | None:
        self._rejected += 1
        if self._rejected > REJECTED_MAX:
            return None
        reason = reason[:TEXT_CHARACTERS_MAX]
        return SignalRejected(member=member(message), reason=reason, sender=sender(message))


#: Never full: it gets only logind's signals and sixteen rejections.
QUEUE_MAX = 1024
#: An order may come a moment before `run`.
RUN_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class ConnectionEnded:
    error: str


ConnectionItem = ShutdownSignal | OwnerChanged | SignalRejected | ConnectionEnded


@dataclass
class LogindConnection:
    """Its tasks live in the edge's `run`. The core decides about reconnecting."""

    address: str
    #: A connection was tried, and there is none.
    failed: bool = False
    _bus: Bus | None = None
    _filter: SignalFilter = field(default_factory=SignalFilter)
    _nursery: trio.Nursery | None = None
    _running: trio.Event = field(default_factory=trio.Event)
    _arrived: int = 0
    _handled: int = 0
    _connecting: trio.Lock = field(default_factory=trio.Lock)

    def __post_init__(self) -> None:
        self._put, self.items = trio.open_memory_channel[ConnectionItem](QUEUE_MAX)

    @property
    def owner(self) -> str:
        """logind's unique name; empty: it is away."""
        return (self._filter.owner or "") if self._bus is not None else ""

    @property
    def pending(self) -> bool:
        """Is a signal not reported yet? Then a reading may be older."""
        return self._arrived != self._handled

    def handle(self) -> None:
        self._handled += 1

    def _add(self, item: ConnectionItem) -> None:
        self._arrived += 1
        # A waiting reader would hold back the bus's answers.
        self._put.send_nowait(item)

    def open(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._running.set()

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
        self._bus, self._nursery, self._running = None, None, trio.Event()

    async def bus(self) -> Bus:
        """The subscribed connection. Raises BusError."""
        async with self._connecting:
            if self._bus is None:
                with trio.move_on_after(RUN_SECONDS_MAX):
                    await self._running.wait()
                if self._nursery is None:
                    raise BusError("the logind edge does not run")
                self.failed = True
                bus, self._filter = await Bus.open(self.address), SignalFilter()
                self._nursery.start_soon(self._read, bus, self._filter)
                try:
                    # The owner first: the first signal needs it.
                    await bus.subscribe(
                        LOGIND_NAME, sender=BUS_NAME, interface=BUS_NAME, member=OWNER_CHANGED
                    )
                    owner = await bus.owner_of(LOGIND_NAME)
                    self._filter.owner = owner if self._filter.owner is None else self._filter.owner
                    for signal in (PREPARE_FOR_SHUTDOWN, PREPARE_FOR_SHUTDOWN_WITH_METADATA):
                        await bus.subscribe(
                            sender=LOGIND_NAME, interface=MANAGER_INTERFACE, path=LOGIND_PATH, member=signal
                        )
                except BaseException:
                    bus.close()
                    raise
                self._bus, self.failed = bus, False
            return self._bus

    async def _read(self, bus: Bus, signal_filter: SignalFilter) -> None:
        def on_signal(message: Message) -> None:
            item = signal_filter.accept(message)
            if item is not None:
                self._add(item)

        error = await bus.read(on_signal)
        if self._bus is bus:
            self._bus, self.failed = None, True
            self._add(ConnectionEnded(error))


class LogindEdge(Edge):
    """``lock_fds``: locks from the service manager's store. ``root``: of logind's files. Raises ValueError
    for a ``drop_in_folder`` that logind does not read.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        service: ServiceManager | None = None,
        lock_fds: Sequence[int] = (),
        root: Path = Path("/"),
        drop_in_folder: str = DROP_IN_FOLDER_DEFAULT,
    ) -> None:
        self._lock = DelayLock(service or ServiceManager(""), lock_fds)
        self._link = LogindConnection(address or system_bus_address())
        self._files = DropIns(root, drop_in_folder)
        schedule = ScheduleFile(root)
        self._reporter = LogindReporter(self._link, self._lock, self._files, schedule)
        self._folders: tuple[Path, ...] = (*self._files.folders, schedule.folder, root / INHIBIT_FOLDER)
        if (bus := bus_socket(self._link.address)) is not None:
            self._folders = (*self._folders, bus.parent)
        self.effects: Mapping[type[Order], Effect] = {
            d.Arm: self._arm,
            d.Disarm: self._give_back,
            d.ReleaseLock: self._give_back,
            d.WriteDropIn: self._change_drop_in,
            d.RemoveDropIn: self._change_drop_in,
        }

    @property
    def lock_held(self) -> bool:
        return self._lock.held

    async def run(self, outlet: Outlet) -> None:
        """Its end releases no lock."""
        try:
            async with trio.open_nursery() as nursery:
                self._link.open(nursery)
                nursery.start_soon(self._reporter.follow_files, self._folders, outlet)
                await self._reporter.listen(outlet)
        finally:
            self._link.close()

    async def read_start_state(self) -> StartState:
        """For `DaemonStarted`; bounded."""
        with trio.move_on_after(bounds.now.logind_start_seconds):
            try:
                found = await ask_once(self._link.address, reader.read_manager)
                return StartState(found.preparing, found.kind, found.grant_ns)
            except BusError:
                pass
        return StartState()

    def detach(self) -> None:
        """The service manager keeps its copy of the lock."""
        self.hand_over()

    def hand_over(self) -> list[int]:
        """The lock's descriptors, for a program that replaces us or closes them."""
        return self._lock.hand_over()

    async def _arm(self, order: d.Arm, outlet: Outlet) -> Ending:
        # AddMatch, then Inhibit, then PreparingForShutdown: a shutdown that begins in between is seen in the
        # property or as a signal.
        try:
            bus = await self._link.bus()
            refused = await self._take_lock(bus) if order.lock else ""
            await self._reporter.report_state(outlet)
        except BusError as error:
            return Ending("failed", str(error))
        await self._reporter.report_files(outlet, always=True)
        return Ending("failed", refused) if refused else Ending()

    async def _take_lock(self, bus: Bus) -> str:
        """Empty: held; else the name of logind's refusal."""
        if self._lock.held:
            # An answer proves that logind has started, and has reopened its locks.
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
            # The old lock is dead.
            await self._lock.give_back()
            return OPERATION_IN_PROGRESS.rpartition(".")[2]
        await self._lock.take(lock.to_raw_fd())
        return ""

    async def _give_back(self, order: d.Disarm | d.ReleaseLock, outlet: Outlet) -> Ending:
        reason = await self._lock.give_back()
        return Ending("failed", reason) if reason else Ending()

    async def _change_drop_in(self, order: d.WriteDropIn | d.RemoveDropIn, outlet: Outlet) -> Ending:
        """Done when logind shows the limit. logind 252 has no reload command: it reads its files again some
        milliseconds after SIGHUP. In a shutdown its timer would not change: the files stay.
        """
        change: Callable[[], object] = self._files.remove
        if isinstance(order, d.WriteDropIn):
            change = partial(self._files.write, order.seconds)

        def reached(grant_ns: int) -> bool:
            if isinstance(order, d.WriteDropIn):
                return grant_ns >= order.seconds * NS_PER_SECOND
            return grant_ns == self._files.effective_ns()

        try:
            bus = await self._link.bus()
            if await reader.read_preparing(bus):
                return ENDED_PREPARING
            await in_bounded_thread(change)
            await bus.method(SYSTEMD, "KillUnit", "ssi", LOGIND_UNIT, "all", SIGHUP)
            for pause_seconds in PAUSES_SECONDS:
                if reached(await reader.read_grant_ns(bus)):
                    break
                await trio.sleep(pause_seconds)
            grant_ns = await reader.read_grant_ns(bus)
            await self._reporter.report_state(outlet)
            await self._reporter.report_files(outlet, always=True)
            if reached(grant_ns):
                return Ending()
            limit, ours = f"logind's limit is {span(grant_ns)}", self._files.ours
            overrider = (await in_bounded_thread(self._files.read)).overridden_by
            if overrider:
                return Ending("failed", f"{limit}: {overrider} is read after {ours}; rename or mask it")
            return Ending("failed", f"{limit}: it did not take up {ours}; see journalctl -u {LOGIND_UNIT}")
        except BusError as error:
            return Ending("failed", str(error))
        except (OSError, HungDisk) as error:
            return Ending("failed", f"cannot change {self._files.ours}: {error}")


#: In a shutdown: perhaps only the property shows a cancel.
PREPARING_SECONDS = 1.0
#: Outside a shutdown: for a lost signal, a changed limit, a kubelet's lock.
IDLE_SECONDS = 10.0
INHIBIT_FOLDER = "run/systemd/inhibit"


ResultT = TypeVar("ResultT")

READ_ATTEMPTS_MAX = 5
#: In one shutdown: any user may take and release locks in a loop.
HOLDER_REPORTS_MAX = 64


class HungDisk(Exception):
    """Raised for a disk that does not answer in time."""


async def in_bounded_thread(work: Callable[[], ResultT]) -> ResultT:
    """Raises HungDisk, and the errors of ``work``."""
    with trio.move_on_after(bounds.now.file_seconds):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    raise HungDisk(f"the disk did not answer within {span_s(bounds.now.file_seconds)}")


class LogindReporter:
    """Reports take turns (``turn``)."""

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
        #: None: not read yet in this shutdown.
        self._holders: tuple[LockHolder, ...] | None = None
        self._reports_left = HOLDER_REPORTS_MAX
        self._drop_ins: f.DropInsRead | None = None
        self._scheduled = NO_SCHEDULE

    async def listen(self, outlet: Outlet) -> None:
        while True:
            item: ConnectionItem | None = None
            with trio.move_on_after(PREPARING_SECONDS if self.preparing else IDLE_SECONDS):
                item = await self.link.items.receive()
            async with self.turn:
                if item is not None:
                    self.link.handle()
                await self._report(item, outlet)
            if item is None:
                await self.report_files(outlet)

    async def _report(self, item: ConnectionItem | None, outlet: Outlet) -> None:
        match item:
            case ShutdownSignal():
                # The fact's step chooses the termination mode by the kind.
                kind = item.kind if item.kind != "unknown" or not item.active else await self._ask_kind()
                self.preparing, self.owner = item.active, item.owner
                await outlet.put(
                    f.PrepareForShutdown(
                        active=item.active,
                        kind=kind,
                        grant_ns=self.grant_ns,
                        lock_held=self.lock.held and self.lock.alive(),
                        owner=item.owner,
                        kubelet_lock=self.kubelet_lock,
                    )
                )
                # After the fact: no reading delays the waves.
                await self.report_holders(outlet)
            case f.SignalRejected():
                await outlet.put(item)
            case ConnectionEnded(error):
                await outlet.put(f.BusLost(error=error))
            case OwnerChanged(""):
                await outlet.put(f.BusLost(error="logind left the bus"))
            case _:
                await self.report_changes(outlet)
                await self.report_holders(outlet)

    async def _ask_kind(self) -> ShutdownKind:
        try:
            with trio.move_on_after(bounds.now.logind_kind_seconds):
                bus = await self.link.bus()
                kind: ShutdownKind
                kind, grant_ns = await reader.ask_all(bus, reader.read_scheduled_kind, reader.read_grant_ns)
                self.grant_ns = grant_ns
                return kind
        except BusError:
            pass
        return "unknown"

    async def follow_files(self, paths: Iterable[Path], outlet: Outlet) -> None:
        """Without inotify, `listen` looks."""
        try:
            folders = FolderWatch(paths)
        except OSError:
            return
        with contextlib.closing(folders):
            while True:
                await folders.changed()
                await self.report_files(outlet)
                # Perhaps the bus is back: watch logind's name before the next arming.
                if self.link.failed:
                    with contextlib.suppress(BusError):
                        await self.link.bus()
                # Such as a kubelet's new lock.
                async with self.turn:
                    await self.report_changes(outlet)
                    await self.report_holders(outlet)

    async def report_state(self, outlet: Outlet) -> None:
        """Put `LogindRead`, changed or not; a waiting signal first. Raises BusError."""
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
        """Needs ``turn``."""
        if not self.link.owner:
            return
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

    async def report_holders(self, outlet: Outlet) -> None:
        """In a shutdown: other programs' locks. An empty first reading counts too: no other program holds the
        machine. Needs ``turn``.
        """
        if not self.preparing:
            self._holders, self._reports_left = None, HOLDER_REPORTS_MAX
            return
        rows = None
        # Not on a lost bus: the core decides about reconnecting.
        if not self.link.owner:
            return
        with contextlib.suppress(BusError), trio.move_on_after(bounds.now.logind_look_seconds):
            rows = await reader.read_inhibitors(await self.link.bus())
        holders = self._holders if rows is None else reader.other_holders(rows)
        if holders is not None and holders != self._holders and self._reports_left:
            self._holders = holders
            self._reports_left -= 1
            await outlet.put(f.LockHoldersRead(holders=holders))

    async def report_files(self, outlet: Outlet, always: bool = False) -> None:
        """``always``: unchanged drop-ins too."""
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


SIGHUP = 1
#: Between two looks at the property; logind is usually quick.
PAUSES_SECONDS = (0.02, 0.1, 0.2, 0.4, 0.8)
ENDED_PREPARING = Ending("failed", "preparing")


NOT_CONFIRMED = (
    "the service manager did not confirm that it dropped its copy of the lock; "
    "logind may wait until its own limit is over"
)


class DelayLock:
    """``descriptors``: from the service manager's store.

    logind's wait ends when every duplicate is closed. So they are close-on-exec, a new lock is taken before
    the old one is closed, and the service manager's duplicate is closed before ours.
    """

    def __init__(self, service: ServiceManager, descriptors: Sequence[int] = ()) -> None:
        self._service = service
        self._descriptors = list(descriptors)
        self._stored = bool(descriptors)

    @property
    def held(self) -> bool:
        return bool(self._descriptors)

    def alive(self) -> bool:
        """Does logind hold the other end? Only valid while logind answers on the bus."""
        poll = select.poll()
        for descriptor in self._descriptors:
            poll.register(descriptor, 0)
        return len(poll.poll(0)) < len(self._descriptors)

    async def take(self, descriptor: int) -> None:
        """Closes the old lock last."""
        os.set_inheritable(descriptor, False)
        old, self._descriptors = self._descriptors, [descriptor]
        if self._stored:
            await self._service.remove(LOCK_NAME)
        self._stored = await self._service.store(LOCK_NAME, descriptor)
        _close_all(old)

    async def give_back(self) -> str:
        """Returns why a duplicate may be left."""
        confirmed = not self._stored or await self._service.remove(LOCK_NAME)
        self._stored = False
        old, self._descriptors = self._descriptors, []
        _close_all(old)
        return "" if confirmed else NOT_CONFIRMED

    def hand_over(self) -> list[int]:
        """The service manager's duplicates stay."""
        self._stored = False
        gone, self._descriptors = self._descriptors, []
        return gone


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
