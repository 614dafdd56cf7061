"""The link to logind: a bus connection with the right subscriptions, and what is known through it.

Its tasks live in the edge's `run`; an effect that needs the bus asks for it with `bus`, and gets the
connection that is there or a new one. It never re-connects by itself: that is decided, not done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio
from jeepney import Message

from actors.edges.bus import Bus, BusError
from actors.edges.logind.names import INTERFACE, NAME, OWNER_CHANGED, PATH, PLAIN, WITH_METADATA
from actors.edges.logind.sifter import BUS_NAME, Going, OwnerChanged, Sifter
from events.facts import SignalRejected

#: Signals not yet reported. Only logind's own and sixteen rejections get here: this is never reached.
QUEUE_MAX = 1024
#: `run` starts with the daemon; an order that comes before it waits a moment.
RUN_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class Ended:
    """The connection is gone."""

    error: str


@dataclass(frozen=True)
class Nudge:
    """Look again soon."""


Item = Going | OwnerChanged | SignalRejected | Ended | Nudge


@dataclass
class Link:
    """``address`` as D-Bus writes it."""

    address: str
    _bus: Bus | None = None
    _sifter: Sifter = field(default_factory=Sifter)
    _nursery: trio.Nursery | None = None
    _running: trio.Event = field(default_factory=trio.Event)
    _arrived: int = 0
    _handled: int = 0
    _connecting: trio.Lock = field(default_factory=trio.Lock)

    def __post_init__(self) -> None:
        self._put, self.items = trio.open_memory_channel[Item](QUEUE_MAX)

    @property
    def owner(self) -> str:
        """The unique name of logind on the bus; empty when it is not there."""
        return (self._sifter.owner or "") if self._bus is not None else ""

    @property
    def pending(self) -> bool:
        """Has logind said something that is not yet reported? Then what was read may be older."""
        return self._arrived != self._handled

    def handle(self) -> None:
        """The oldest item is about to be reported."""
        self._handled += 1

    def nudge(self) -> None:
        """Something changed that logind does not announce: look again soon."""
        self._add(Nudge())

    def _add(self, item: Item) -> None:
        self._arrived += 1
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
                self._bus = await self._connect()
            return self._bus

    async def _connect(self) -> Bus:
        with trio.move_on_after(RUN_SECONDS_MAX):
            await self._running.wait()
        if self._nursery is None:
            raise BusError("the logind edge does not run")
        bus, self._sifter = await Bus.open(self.address), Sifter()
        self._nursery.start_soon(self._read, bus, self._sifter)
        try:
            await self._subscribe(bus, self._sifter)
        except BaseException:
            bus.close()
            raise
        return bus

    async def _subscribe(self, bus: Bus, sifter: Sifter) -> None:
        """The owner first: when the first signal comes it must be known whose it may be."""
        await bus.subscribe(NAME, sender=BUS_NAME, interface=BUS_NAME, member=OWNER_CHANGED)
        owner = await bus.owner_of(NAME)
        sifter.owner = owner if sifter.owner is None else sifter.owner
        for member in (PLAIN, WITH_METADATA):
            await bus.subscribe(sender=NAME, interface=INTERFACE, path=PATH, member=member)

    async def _read(self, bus: Bus, sifter: Sifter) -> None:
        def on_signal(message: Message) -> None:
            item = sifter.sift(message)
            if item is not None:
                self._add(item)

        error = await bus.read(on_signal)
        if self._bus is bus:
            self._bus = None
            self._add(Ended(error))
