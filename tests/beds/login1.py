"""A fake owner of logind's name, for messages that a healthy logind 252 never sends.

Wrong bodies, the metadata signal of systemd 255, a silent owner: our logic on a real bus.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import trio
from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.trio import DBusConnection, open_dbus_connection

from ebbtide.actors.edges.logind_reading import LOGIND_NAME, LOGIND_PATH, MANAGER_INTERFACE


class FakeLogin1:
    """``properties`` are (signature, value); ``silent`` methods get no answer. ``odd``: fixed answers
    (signature, body) for a method or property.
    """

    def __init__(self, connection: DBusConnection) -> None:
        self._connection = connection
        self.properties: dict[str, tuple[str, Any]] = {
            "PreparingForShutdown": ("b", False),
            "InhibitDelayMaxUSec": ("t", 5_000_000),
            "ScheduledShutdown": ("(st)", ("", 2**64 - 1)),
        }
        self.silent: set[str] = set()
        self.odd: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self.asked: list[str] = []

    async def serve(self) -> None:
        with contextlib.suppress(trio.EndOfChannel, trio.ClosedResourceError, trio.BrokenResourceError):
            while True:
                message = await self._connection.receive()
                if message.header.message_type is MessageType.method_call:
                    await self._answer(message)

    async def _answer(self, message: Message) -> None:
        member = message.header.fields[HeaderFields.member]
        what = message.body[1] if member == "Get" else member
        self.asked.append(what)
        if what in self.silent:
            return
        if what in self.odd:
            await self._connection.send(new_method_return(message, *self.odd[what]))
        elif member == "Inhibit":
            await self._inhibit(message)
        elif member == "ListInhibitors":
            await self._connection.send(new_method_return(message, "a(ssssuu)", ([],)))
        elif what in self.properties:
            await self._connection.send(new_method_return(message, "v", (self.properties[what],)))
        else:
            await self._connection.send(new_error(message, "org.freedesktop.DBus.Error.UnknownProperty"))

    async def _inhibit(self, message: Message) -> None:
        ours, theirs = os.pipe()
        with open(ours), open(theirs, "w") as passed:
            await self._connection.send(new_method_return(message, "h", (passed,)))

    async def emit(self, member: str, signature: str, *body: Any) -> None:
        manager = DBusAddress(LOGIND_PATH, None, MANAGER_INTERFACE)
        await self._connection.send(new_signal(manager, member, signature or None, body))


@contextlib.asynccontextmanager
async def fake_login1(address: str) -> AsyncIterator[FakeLogin1]:
    """Own the name on the bus at ``address`` (without logind) for the block."""
    connection = await open_dbus_connection(address, enable_fds=True)
    async with connection:
        async with connection.router() as router:
            reply = await router.send_and_get_reply(message_bus.RequestName(LOGIND_NAME))
        assert reply.body == (1,), "somebody else owns logind's name"
        fake = FakeLogin1(connection)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fake.serve)
            try:
                yield fake
            finally:
                nursery.cancel_scope.cancel()
