"""The connection to logind: the right subscriptions, and which of the bus's signals count.

Only signals from the owner of logind's name, with the right body, count, each once. (The kubelet matches
without a sender and once crashed on a wrong body, kubernetes#97951.) A broadcast in logind's name is
filtered by the bus; a signal sent to us alone is not, and any local user may send one.

The tasks of a connection live in the edge's `run`; an effect that needs the bus asks for it, and gets the
connection that is there or a new one. It never re-connects by itself: that is decided, not done.
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
#: Rejections on record a connection: evidence, but no way to fill our disk.
REJECTED_MAX = 16
#: Of a body that is not as it should be, the beginning is evidence enough.
TEXT_CHARACTERS_MAX = 200


class ShutdownSignal(NamedTuple):
    """logind says that the machine goes down, or that it does not."""

    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """logind's name has another owner; empty: nobody."""

    owner: str


FilteredSignal = ShutdownSignal | OwnerChanged | SignalRejected | None


class SignalFilter:
    """One connection's view. Called in the order of the bus, so ``owner`` is right for each signal."""

    def __init__(self) -> None:
        #: None until it was asked for, or seen to change.
        self.owner: str | None = None
        self._announced: ShutdownSignal | None = None
        self._rejected = 0

    def accept(self, message: Message) -> FilteredSignal:
        """What the message says; None: nothing that concerns us, or nothing new."""
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
        # Any local user can send us a message that looks like logind's, and one would end every pod.
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
        # From systemd 255 on both signals come for one shutdown, the one with the kind first.
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


# What was read of logind and what it signals come by different ways: a property read just before a signal
# would be reported after it, and undo it. So the connection counts what has arrived and what was reported,
# and a reading is only good while the two agree (`pending`).


#: Signals not yet reported. Only logind's own and sixteen rejections get here: this is never reached.
QUEUE_MAX = 1024
#: `run` starts with the daemon; an order that comes before it waits a moment.
RUN_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class ConnectionEnded:
    """The connection is gone."""

    error: str


@dataclass(frozen=True)
class LookAgain:
    """Look again soon."""


ConnectionItem = ShutdownSignal | OwnerChanged | SignalRejected | ConnectionEnded | LookAgain


@dataclass
class LogindConnection:
    """``address`` as D-Bus writes it."""

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
        """The unique name of logind on the bus; empty when it is not there."""
        return (self._filter.owner or "") if self._bus is not None else ""

    @property
    def pending(self) -> bool:
        """Has logind said something that is not yet reported? Then what was read may be older."""
        return self._arrived != self._handled

    def handle(self) -> None:
        """The oldest item is about to be reported."""
        self._handled += 1

    def nudge(self) -> None:
        """Something changed that logind does not announce: look again soon."""
        self._add(LookAgain())

    def _add(self, item: ConnectionItem) -> None:
        self._arrived += 1
        # Without waiting, in the task that reads the bus: a reader that waits would hold back the answers
        # that an order waits for.
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
        """The connection, subscribed; made when there is none. Raises BusError."""
        async with self._connecting:
            if self._bus is None:
                with trio.move_on_after(RUN_SECONDS_MAX):
                    await self._running.wait()
                if self._nursery is None:
                    raise BusError("the logind edge does not run")
                bus, self._filter = await Bus.open(self.address), SignalFilter()
                self._nursery.start_soon(self._read, bus, self._filter)
                try:
                    # The owner first: when the first signal comes it must be known whose it may be.
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
