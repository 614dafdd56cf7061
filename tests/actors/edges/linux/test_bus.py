"""The bus connection: an oversized or malformed message only costs itself.

A plain socket replaces the bus, because a real bus forwards no such message. The end of this file and
`tests/actors/edges/logind/test_flooded.py` use a real bus.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import pytest
import trio
from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.bus_messages import message_bus
from jeepney.io.trio import DBusConnection, open_dbus_connection

from ebbtide.actors.edges.linux.bus import HEADER_BYTES_MAX, Bus, BusError, Incoming, TooLong, member
from tests.actors.edges.logind.conftest import bed
from tests.beds.logind import LogindBed
from tests.waiting import until

__all__ = ["bed"]

SOMEBODY = DBusAddress("/org/example", "org.example", "org.example.Things")


class Peer:
    """The other end, and the received messages."""

    def __init__(self, end: trio.socket.SocketType, heard: list[str]) -> None:
        self.end, self.heard = end, heard
        self.connection = DBusConnection(end, enable_fds=True)

    async def say(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        sent = await self.end.sendmsg([data], rights)
        await trio.SocketStream(self.end).send_all(data[sent:])

    async def last_word(self) -> None:
        """Send a message and wait for it: all earlier ones are processed and the connection lives."""
        await self.say(signal("LastWord"))
        await until(lambda: "LastWord" in self.heard, "the last word is not heard")


@contextlib.asynccontextmanager
async def linked() -> AsyncIterator[tuple[Bus, Peer]]:
    ours, theirs = trio.socket.socketpair()
    bus, heard = Bus(DBusConnection(ours, enable_fds=True)), list[str]()

    def hear(message: Incoming) -> None:
        heard.append(member(message))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bus.read, hear)
        yield bus, Peer(theirs, heard)
        bus.close()
    theirs.close()


def signal(name: str, path: str = "/org/example") -> bytes:
    made: bytes = new_signal(DBusAddress(path, None, "org.example.Things"), name).serialise(serial=1)
    return made


# --- what is not read


STRANGE = signal("Strange")
MEMBER_AT = STRANGE.index(bytes([HeaderFields.member.value]) + b"\x01s")


@pytest.mark.parametrize(
    "data",
    [
        # A header field of a later D-Bus version; readers skip it.
        STRANGE[:MEMBER_AT] + b"\xc8" + STRANGE[MEMBER_AT + 1 :],
        signal("Long", "/" + "x" * HEADER_BYTES_MAX),
        STRANGE[:1] + b"\x4d" + STRANGE[2:],
    ],
    ids=["field", "length", "kind"],
)
async def test_what_is_not_understood_is_passed_over(data: bytes) -> None:
    """The message is dropped, its descriptors are closed, and the next one arrives."""
    async with linked() as (_, peer):
        passed = tuple(os.memfd_create("passed") for _ in range(3))
        before = len(os.listdir("/proc/self/fd"))
        await peer.say(data, passed)
        await peer.last_word()
        assert len(os.listdir("/proc/self/fd")) == before
        assert peer.heard == ["LastWord"]
    for descriptor in passed:
        os.close(descriptor)


# --- answers


async def test_an_answer_that_cannot_be_read_fails_its_call() -> None:
    """The body contradicts its signature; the connection stays usable."""

    async def nonsense(peer: Peer) -> None:
        asked = await peer.connection.receive()
        data = bytearray(new_method_return(asked, "s", ("good",)).serialise(serial=2))
        data[-1] = 7
        await peer.say(bytes(data))

    async with linked() as (bus, peer), trio.open_nursery() as nursery:
        nursery.start_soon(nonsense, peer)
        with pytest.raises(BusError, match=r"^Ask: an answer cannot be read \(AssertionError\)$"):
            await bus.method(SOMEBODY, "Ask")
        await peer.last_word()


@pytest.mark.gate
@pytest.mark.root
async def test_a_long_answer_by_a_real_bus(bed: LogindBed) -> None:
    """An 8 MiB answer fails its call at once; parallel calls are answered."""
    connection = await open_dbus_connection(bed.address)
    async with connection:
        async with connection.router() as router:
            await router.send_and_get_reply(message_bus.RequestName("org.example"))

        async def serve() -> None:
            while True:
                asked: Message = await connection.receive()
                if asked.header.message_type is MessageType.method_call:
                    length = 8 * 1024 * 1024 if member(asked) == "Much" else 4
                    await connection.send(new_method_return(asked, "ay", (bytes(length),)))

        bus = await Bus.open(bed.address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            nursery.start_soon(bus.read, lambda _: None)
            found: dict[str, object] = {}

            async def ask(name: str) -> None:
                try:
                    found[name] = await bus.call(new_method_call(SOMEBODY, name))
                except BusError as error:
                    found[name] = type(error)

            async with trio.open_nursery() as asking:
                for name in ("One", "Much", "Other"):
                    asking.start_soon(ask, name)
            bus.close()
            nursery.cancel_scope.cancel()
    assert found == {"One": (bytes(4),), "Much": TooLong, "Other": (bytes(4),)}


@pytest.mark.gate
@pytest.mark.root
async def test_a_strangers_answer_is_kept_out_by_the_bus(
    bed: LogindBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serials are guessable, but the bus rejects a stranger's answer."""
    bus = await Bus.open(bed.address)
    (ours,) = await bed.connections_of(os.getpid())
    async with bed.client() as asked, trio.open_nursery() as nursery:
        nursery.start_soon(bus.read, lambda _: None)
        silent = DBusAddress("/org/example", asked.unique_name, "org.example.Things")
        stranger = await open_dbus_connection(bed.address)

        forged_all, answers = trio.Event(), list[object]()

        async def ask() -> None:
            answers.append(await bus.call(new_method_call(silent, "Ask")))

        async def forge() -> None:
            for serial in range(1, 50):
                forged = new_method_return(new_method_call(silent, "Ask"), "s", ("forged",))
                forged.header.fields[HeaderFields.reply_serial] = serial
                forged.header.fields[HeaderFields.destination] = ours
                await stranger.send(forged)
            # An answer to this call proves that the bus has processed the others.
            await stranger.send(message_bus.GetId())
            while (await stranger.receive()).header.message_type is not MessageType.method_return:
                pass
            forged_all.set()

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            asking.start_soon(forge)
            await forged_all.wait()
            # Messages are ordered: no forged answer comes after this one.
            await bus.call(message_bus.GetId())
            assert not answers
            asking.cancel_scope.cancel()
        await stranger.aclose()
        bus.close()
