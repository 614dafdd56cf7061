"""A D-Bus connection: bounded calls, and signals in order.

jeepney's router drops signals from a full queue, and cannot report that an idle bus went away. So one task
reads: replies go to their callers, signals to a plain function.

Any local user may send us signals of up to 32 MiB, and jeepney needs seconds to parse one. So long messages
are thrown away as they come, and a body is parsed only on demand.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio
from jeepney import DBusAddress, Header, HeaderFields, Message, MessageType, Properties, new_method_call
from jeepney.auth import BEGIN, Authenticator
from jeepney.bus import get_connectable_addresses
from jeepney.bus_messages import MatchRule, message_bus
from jeepney.fds import FileDescriptor, NoFDError, fds_buf_size
from jeepney.io.trio import DBusConnection

from ebbtide.events import bounds
from ebbtide.events.units import span_s

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"

#: Byte order, kind, lengths.
FIXED_BYTES = 16
#: D-Bus's own limit.
MESSAGE_BYTES_MAX = 2**27
#: Five names of at most 255 bytes, a path and a signature. Parsing takes at most 5 ms.
HEADER_BYTES_MAX = 2048
#: The longest answer lists locks: 500 fit, parsed within 20 ms.
BODY_BYTES_MAX = 64 * 1024
#: Other tasks run between two such pieces.
SKIPPED_BYTES = 64 * 1024
BYTE_ORDERS = {b"l": "<", b"B": ">"}

AnswerT = TypeVar("AnswerT")


class BusError(Exception):
    """The text is one line for people."""


class TooLong(BusError):
    """A body above `BODY_BYTES_MAX` was not read."""


class BusRefused(BusError):
    """The other side's error; ``name`` is its D-Bus name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}" if text else name)
        self.name = name


def system_bus_address() -> str:
    return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or SYSTEM_BUS


UNIX_PREFIX = "unix:path="


def bus_socket(address: str) -> Path | None:
    """None: another kind of address."""
    first = address.split(";")[0].split(",")[0]
    return Path(first.removeprefix(UNIX_PREFIX)) if first.startswith(UNIX_PREFIX) else None


def sender(message: Message) -> str:
    """The bus sets this unique name; empty without a bus."""
    return str(message.header.fields.get(HeaderFields.sender, ""))


def member(message: Message) -> str:
    return str(message.header.fields.get(HeaderFields.member, ""))


class Incoming(Message):  # type: ignore[misc]  # jeepney has no types
    """``data``: all of it; None: it was too long. `close` closes the ``descriptors`` that no caller took."""

    def __init__(self, header: Header, data: bytes | None, descriptors: list[FileDescriptor]) -> None:
        self.header = header
        self._data, self._descriptors = data, descriptors

    @property
    def body(self) -> tuple[Any, ...]:
        """Raises BusError."""
        if self._data is None:
            raise TooLong(f"{member(self) or 'an answer'} of {self.header.body_length} bytes is too long")
        try:
            return tuple(Message.from_buffer(self._data, self._descriptors).body)
        except Exception as error:
            # Parsing raises many kinds.
            raise BusError(f"{member(self) or 'an answer'} cannot be read ({type(error).__name__})") from None

    def close(self) -> None:
        for descriptor in self._descriptors:
            with contextlib.suppress(NoFDError):
                descriptor.close()


OnSignal = Callable[[Incoming], None]


class Bus:
    """`read` must run while calls wait. A call raises BusRefused, or BusError without an answer in time."""

    def __init__(self, connection: DBusConnection) -> None:
        self._connection = connection
        self._waiting: dict[int, tuple[trio.Event, list[Incoming]]] = {}
        self.lost = ""

    @classmethod
    async def open(cls, address: str, hello: bool = True) -> Bus:
        """Raises BusError."""
        try:
            with trio.fail_after(bounds.now.bus_connect_seconds):
                # Say hello on a bus, not on a private socket.
                stream = await trio.open_unix_socket(next(get_connectable_addresses(address)))
                try:
                    authenticator = Authenticator(enable_fds=True)
                    for request in authenticator:
                        await stream.send_all(request)
                        answer = await stream.receive_some()
                        if not answer:
                            raise EOFError("it closed the connection")
                        authenticator.feed(answer)
                    await stream.send_all(BEGIN)
                    bus = cls(DBusConnection(stream.socket, enable_fds=True))
                    if hello:
                        await bus._connection.send(message_bus.Hello())
                        # The first message is hello's answer.
                        await bus._receive()
                except BaseException:
                    stream.socket.close()
                    raise
                return bus
        except trio.TooSlowError as error:
            raise BusError(
                f"the bus at {address} does not answer within {span_s(bounds.now.bus_connect_seconds)}"
            ) from error
        except Exception as error:
            raise BusError(f"cannot reach the bus at {address}: {error}; is dbus running?") from error

    async def read(self, on_signal: OnSignal) -> str:
        """Reads until the connection ends; returns why. Waiting callers then get BusError."""
        try:
            while True:
                message = await self._receive()
                if message is None:
                    continue
                kind, waiting = message.header.message_type, None
                if kind is MessageType.signal:
                    on_signal(message)
                elif kind in (MessageType.method_return, MessageType.error):
                    waiting = self._waiting.pop(message.header.fields.get(HeaderFields.reply_serial, 0), None)
                # Else its caller has given up, or it is a call, which we do not take.
                if waiting is not None:
                    waiting[1].append(message)
                    waiting[0].set()
                else:
                    message.close()
        except Exception as error:
            # The connection's owner decides what follows.
            self.lost = f"the bus connection ended ({type(error).__name__})"
        finally:
            self.close()
        return self.lost

    async def _receive(self) -> Incoming | None:
        """None: a message with an unreadable header."""
        descriptors: list[FileDescriptor] = []
        message = None
        try:
            fixed = await self._read(FIXED_BYTES, descriptors)
            order = BYTE_ORDERS.get(fixed[:1])
            if order is None:
                raise BusError("what comes is no D-Bus message")
            body_bytes, fields_bytes = struct.unpack(f"{order}4xI4xI", fixed)
            header_bytes = FIXED_BYTES + fields_bytes + -fields_bytes % 8
            if header_bytes + body_bytes > MESSAGE_BYTES_MAX:
                raise BusError("what comes is longer than a D-Bus message can be")
            if header_bytes > HEADER_BYTES_MAX:
                await self._skip(header_bytes - FIXED_BYTES + body_bytes, descriptors)
                return None
            whole = body_bytes <= BODY_BYTES_MAX
            rest = header_bytes - FIXED_BYTES + (body_bytes if whole else 0)
            data = fixed + await self._read(rest, descriptors)
            if not whole:
                await self._skip(body_bytes, descriptors)
            # Unknown fields or kinds do no harm: the begin of the next message is known.
            with contextlib.suppress(Exception):
                header = Header.from_buffer(data[:header_bytes])[0]
                message = Incoming(header, data if whole else None, descriptors)
            return message
        finally:
            if message is None:
                for descriptor in descriptors:
                    descriptor.close()

    async def _read(self, length: int, descriptors: list[FileDescriptor]) -> bytes:
        """Appends the descriptors that come with the bytes."""
        parts = []
        while length:
            # Not beyond this message: descriptors come with a message's first bytes.
            data, ancillary, _, _ = await self._connection.socket.recvmsg(
                length, fds_buf_size(), socket.MSG_CMSG_CLOEXEC
            )
            descriptors += FileDescriptor.from_ancdata(ancillary)
            if not data:
                raise BusError("the other side closed it")
            parts.append(data)
            length -= len(data)
        return b"".join(parts)

    async def _skip(self, length: int, descriptors: list[FileDescriptor]) -> None:
        while length:
            length -= len(await self._read(min(length, SKIPPED_BYTES), descriptors))

    def close(self) -> None:
        self.lost = self.lost or "the bus connection was closed"
        self._connection.socket.close()
        waiting, self._waiting = self._waiting, {}
        for answered, _ in waiting.values():
            answered.set()

    async def call(self, message: Message, *, answer: str | None = None) -> tuple[Any, ...]:
        """Returns the body. ``answer``: its expected signature."""
        if self.lost:
            raise BusError(self.lost)
        serial = next(self._connection.outgoing_serial)
        # Before the send: the answer may be read while the sending task still waits.
        answered, replies = self._waiting[serial] = (trio.Event(), [])
        try:
            with trio.fail_after(seconds := bounds.now.bus_call_seconds):
                await self._connection.send(message, serial=serial)
                await answered.wait()
        except trio.TooSlowError as error:
            # An open lock in a late answer would hold the machine.
            for late in replies:
                late.close()
            raise BusError(f"no answer to {member(message)} within {span_s(seconds)}") from error
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BusError(f"the bus connection broke ({type(error).__name__})") from error
        finally:
            self._waiting.pop(serial, None)
        if not replies:
            raise BusError(self.lost)
        (reply,) = replies
        try:
            body, found = reply.body, reply.header.fields.get(HeaderFields.signature, "")
            if reply.header.message_type is MessageType.error:
                name = reply.header.fields.get(HeaderFields.error_name, "unnamed error")
                raise BusRefused(str(name), " ".join(str(part) for part in body))
            if answer is not None and found != answer:
                # Callers need not check the body's parts.
                raise BusError(f"answered with {found!r} where {answer!r} was expected")
            return body
        except BusRefused:
            reply.close()
            raise
        except BusError as error:
            reply.close()
            raise type(error)(f"{member(message)}: {error}") from None

    async def method(
        self, target: DBusAddress, name: str, signature: str = "", *body: Any, answer: str | None = None
    ) -> tuple[Any, ...]:
        return await self.call(new_method_call(target, name, signature or None, body), answer=answer)

    async def get(self, target: DBusAddress, name: str) -> Any:
        return (await self.call(Properties(target).get(name), answer="v"))[0][1]

    async def subscribe(self, first_argument: str = "", **fields: str) -> None:
        """``fields`` as in `jeepney.MatchRule`."""
        rule = MatchRule(type="signal", **fields)
        if first_argument:
            rule.add_arg_condition(0, first_argument)
        await self.call(message_bus.AddMatch(rule))

    async def owner_of(self, name: str) -> str:
        """The unique name; empty: no owner."""
        with contextlib.suppress(BusRefused):
            return str((await self.call(message_bus.GetNameOwner(name), answer="s"))[0])
        return ""


async def ask_once(address: str, work: Callable[[Bus], Awaitable[AnswerT]], hello: bool = True) -> AnswerT:
    """Raises BusError."""
    bus = await Bus.open(address, hello)
    failure: BusError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bus.read, lambda _: None)
        try:
            answer = await work(bus)
        except BusError as error:
            failure = error
        finally:
            bus.close()
    if failure is not None:
        raise failure
    return answer


async def side_by_side(failure: type[Exception], *questions: Callable[[], Awaitable[Any]]) -> list[Any]:
    """The answers in order. Raises the first ``failure`` after all have ended."""
    answers: list[Any] = [None] * len(questions)
    failures: list[Exception] = []

    async def run(index: int, question: Callable[[], Awaitable[Any]]) -> None:
        try:
            answers[index] = await question()
        except failure as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for index, question in enumerate(questions):
            nursery.start_soon(run, index, question)
    if failures:
        raise failures[0]
    return answers
