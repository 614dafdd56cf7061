"""Socket input: the bus, clients of the control socket and of the metrics."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from jeepney import DBusAddress, Endianness, HeaderFields, Message, MessageType, new_method_call, new_signal
from jeepney.io.trio import DBusConnection

from ebbtide import control, metrics_server
from ebbtide.actors.edges.linux.bus import Bus, BusError
from ebbtide.actors.edges.logind_edge import BUS_NAME, SignalFilter
from ebbtide.actors.edges.logind_reading import (
    INHIBITORS,
    LOGIND_NAME,
    MANAGER,
    OWNER_CHANGED,
    PREPARE_FOR_SHUTDOWN,
    PREPARE_FOR_SHUTDOWN_WITH_METADATA,
    read_grant_ns,
    read_kind,
    read_kubelet_lock,
    read_preparing,
)
from tests.beds.logind import manager_signal

#: The bus names of logind and of a stranger.
LOGIND, STRANGER = ":1.1", ":1.66"

#: In serial order from 1.
QUESTIONS: tuple[Callable[[Bus], Awaitable[object]], ...] = (
    read_preparing,
    read_grant_ns,
    read_kind,
    partial(read_kubelet_lock, False),
)


# --- the bus


def bus(data: bytes) -> None:
    """Signals, answers to calls, and an end."""
    trio.run(_bus, data)


async def _bus(data: bytes) -> None:
    ours, theirs = trio.socket.socketpair()
    connection, signals = Bus(DBusConnection(ours, enable_fds=True)), SignalFilter()
    signals.owner = LOGIND

    async def ask(question: Callable[[Bus], Awaitable[object]]) -> None:
        with suppress(BusError):
            await question(connection)

    with theirs:
        async with trio.open_nursery() as nursery:
            for question in QUESTIONS:
                nursery.start_soon(ask, question)
                # Fixed serials: each call takes its own at its first step.
                await trio.lowlevel.checkpoint()
            await trio.SocketStream(theirs).send_all(data)
            theirs.shutdown(socket.SHUT_WR)
            lost = await connection.read(signals.accept)
    # Any other error is unforeseen.
    assert lost == "the bus connection ended (BusError)", lost


def bus_messages() -> Iterator[bytes]:
    """One kind of message each, then all in a row."""
    made = list(_messages())
    yield from made
    yield b"".join(made)


def _messages() -> Iterator[bytes]:
    metadata = {"type": ("s", "reboot"), "uid": ("u", 7)}
    yield _sent(manager_signal(PREPARE_FOR_SHUTDOWN, "b", True))
    yield _sent(manager_signal(PREPARE_FOR_SHUTDOWN, "b", True), STRANGER)
    yield _sent(manager_signal(PREPARE_FOR_SHUTDOWN_WITH_METADATA, "ba{sv}", True, metadata))
    address = DBusAddress("/org/freedesktop/DBus", None, BUS_NAME)
    yield _sent(new_signal(address, OWNER_CHANGED, "sss", (LOGIND_NAME, LOGIND, STRANGER)), BUS_NAME)
    yield _sent(new_method_call(MANAGER, "PowerOff", "b", (True,)))
    yield _answer(1, "v", ("b", True))
    yield _answer(2, "v", ("t", 5_000_000), Endianness.big)
    yield _answer(3, "v", ("a{sv}", metadata))
    yield _answer(4, INHIBITORS, [("shutdown", "kubelet", "why", "delay", 0, 7)])
    refused = _reply(3, "s", "no such property")
    refused.header.message_type = MessageType.error
    refused.header.fields[HeaderFields.error_name] = "org.freedesktop.DBus.Error.UnknownProperty"
    yield _sent(refused)


def _reply(serial: int, signature: str, value: Any, order: Endianness = Endianness.little) -> Message:
    made = new_method_call(MANAGER, "Get", signature, (value,))
    made.header.message_type, made.header.endianness = MessageType.method_return, order
    made.header.fields[HeaderFields.reply_serial] = serial
    return made


def _answer(serial: int, signature: str, value: Any, order: Endianness = Endianness.little) -> bytes:
    return _sent(_reply(serial, signature, value, order))


def _sent(message: Message, sender: str = LOGIND) -> bytes:
    message.header.fields[HeaderFields.sender] = sender
    data: bytes = message.serialise(serial=9)
    return data


# --- clients


def control_request(data: bytes) -> None:
    """One line of JSON, or no bytes after the client left; no verb fails."""
    said: list[str] = []

    async def echo(request: control.Request, uid: int) -> object:
        return {"pod": request.pod, "uid": uid}

    verbs = {"status": echo, "hurry": echo}
    answered = trio.run(_served, partial(control._answer, verbs, lambda level, line: said.append(line)), data)
    assert said == []
    assert not answered or isinstance(json.loads(answered)["ok"], bool)


def control_requests() -> Iterator[bytes]:
    yield b'{"verb": "status"}\n'
    yield b'{"verb": "hurry", "pod": "shop/web-0"}\n'
    yield '{"verb": "hurry", "pod": "\\ud800\\u0000é"}\n'.encode()
    yield b'{"verb": "release", "pod": 7}'


def scrape(data: bytes) -> None:
    """An answer of HTTP, or none."""
    answered = trio.run(_served, partial(metrics_server._answer, lambda: "up 1\n"), data)
    assert not answered or answered.startswith(b"HTTP/1.1 ")
    assert b"up 1" not in answered or answered.startswith(b"HTTP/1.1 200 ")


def scrapes() -> Iterator[bytes]:
    yield b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
    yield b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"
    yield b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"


async def _served(answer: Callable[[trio.SocketStream], Awaitable[None]], data: bytes) -> bytes:
    """The answer to these bytes, after which the client is silent."""
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    async with ours, theirs:
        await theirs.send_all(data)
        await theirs.send_eof()
        await answer(ours)
        await ours.aclose()
        with suppress(trio.BrokenResourceError):
            return b"".join([part async for part in theirs])
    return b""
