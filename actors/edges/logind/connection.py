"""The connection to logind: its subscriptions, and a filter of the bus's signals.

Only signals from the owner of logind's name, with a valid body, count, each once. (The kubelet matches
without a sender, and once crashed on a wrong body, kubernetes#97951.) The bus filters broadcasts in logind's
name, but any local user may send a signal to us alone.

The tasks of a connection live in the edge's `run`. An effect gets the present connection, or a new one. The
core decides about reconnecting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import trio
from jeepney import HeaderFields, Message

from ebbtide.actors.edges.linux.bus import Bus, BusError, member, sender
from ebbtide.actors.edges.logind.manager import (
    LOGIND_NAME,
    LOGIND_PATH,
    MANAGER_INTERFACE,
    OWNER_CHANGED,
    PREPARE_FOR_SHUTDOWN,
    PREPARE_FOR_SHUTDOWN_WITH_METADATA,
    kind_in_metadata,
)
from ebbtide.events.facts import SignalRejected
from ebbtide.events.values import ShutdownKind

BUS_NAME = "org.freedesktop.DBus"
#: Evidence, but no way to fill our disk.
REJECTED_MAX = 16
#: Of a wrong body.
TEXT_CHARACTERS_MAX = 200


class ShutdownSignal(NamedTuple):
    """The machine goes down, or no longer does."""

    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """Of logind's name; empty: no owner."""

    owner: str


FilteredSignal = ShutdownSignal | OwnerChanged | SignalRejected | None


class SignalFilter:
    """One connection's view, called in the bus's order, so ``owner`` is right for each signal."""

    def __init__(self) -> None:
        #: None: not known yet.
        self.owner: str | None = None
        self._announced: ShutdownSignal | None = None
        self._rejected = 0

    def accept(self, message: Message) -> FilteredSignal:
        """None: irrelevant, or nothing new."""
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
        # Any local user can send a message like logind's, which would end every pod.
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
        # systemd 255 and later sends two signals for one shutdown, first the one with the kind.
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


# Readings and signals take different ways: a property read just before a signal would be reported after it
# and undo it. So the connection counts arrived and reported signals, and a reading counts only while both
# agree (`pending`).


#: Only logind's signals and sixteen rejections get here, so it is never full.
QUEUE_MAX = 1024
#: An order may come a moment before `run`.
RUN_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class ConnectionEnded:
    error: str


ConnectionItem = ShutdownSignal | OwnerChanged | SignalRejected | ConnectionEnded


@dataclass
class LogindConnection:
    """``address`` of the bus."""

    address: str
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
        """logind's unique name on the bus; empty: it is away."""
        return (self._filter.owner or "") if self._bus is not None else ""

    @property
    def pending(self) -> bool:
        """Has logind sent a signal that is not reported yet? Then a reading may be older."""
        return self._arrived != self._handled

    def handle(self) -> None:
        """The oldest item is about to be reported."""
        self._handled += 1

    def _add(self, item: ConnectionItem) -> None:
        self._arrived += 1
        # Without waiting: a waiting reader would hold back the answers of the bus.
        self._put.send_nowait(item)

    def open(self, nursery: trio.Nursery) -> None:
        """From now on connections may be made; their tasks live in ``nursery``."""
        self._nursery = nursery
        self._running.set()

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
        self._bus, self._nursery, self._running = None, None, trio.Event()

    async def bus(self) -> Bus:
        """Subscribed; made if need be. Raises BusError."""
        async with self._connecting:
            if self._bus is None:
                with trio.move_on_after(RUN_SECONDS_MAX):
                    await self._running.wait()
                if self._nursery is None:
                    raise BusError("the logind edge does not run")
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
                self._bus = bus
            return self._bus

    async def _read(self, bus: Bus, signal_filter: SignalFilter) -> None:
        def on_signal(message: Message) -> None:
            item = signal_filter.accept(message)
            if item is not None:
                self._add(item)

        error = await bus.read(on_signal)
        if self._bus is bus:
            self._bus = None
            self._add(ConnectionEnded(error))
