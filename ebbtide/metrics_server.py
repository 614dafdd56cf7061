"""Serves the metrics to Prometheus: HTTP/1.1, ``GET /metrics`` and nothing else, one answer a connection.

Whatever a client does, it costs the daemon a bounded moment and never a shutdown.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h11
import trio

from ebbtide.otel.metrics import CONTENT_TYPE

PATH = b"/metrics"

#: Prometheus gives up after 10 s by default; a client that is slower than this is none.
ANSWER_SECONDS_MAX = 5

#: Two Prometheus servers and a person; more wait in the backlog.
CLIENTS_MAX = 4

#: Out of descriptors: somebody may give one back.
FULL_SECONDS = 0.1

#: A request has a line and some headers.
RECEIVE_BYTES = 4096

#: The socket's file: whoever may reach the folder may read; there is nothing secret in it.
SOCKET_MODE = 0o666


async def serve(address: str, text: Callable[[], str], *, task_status: trio.TaskStatus[None]) -> None:
    """Listen at ``address:port`` or ``unix:PATH`` until cancelled. Raises OSError when that cannot be."""
    listener = _listen(address)
    task_status.started()
    room = trio.Semaphore(CLIENTS_MAX)
    try:
        async with trio.open_nursery() as nursery:
            while True:
                await room.acquire()  # before a descriptor is spent on one more client
                nursery.start_soon(_answer, await _accept(listener), text, room)
    finally:
        listener.close()
        if address.startswith("unix:"):
            Path(address.removeprefix("unix:")).unlink(missing_ok=True)


def _listen(address: str) -> trio.socket.SocketType:
    if address.startswith("unix:"):
        return _listen_unix(Path(address.removeprefix("unix:")))
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    return trio.socket.from_stdlib_socket(listener)


def _listen_unix(path: Path) -> trio.socket.SocketType:
    """A dead daemon's socket gives way; anything else that stands there is an error."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    return trio.socket.from_stdlib_socket(listener)


async def _accept(listener: trio.socket.SocketType) -> trio.SocketStream:
    """The next client, also when there is no descriptor for it just now."""
    while True:
        try:
            return trio.SocketStream((await listener.accept())[0])
        except OSError:
            await trio.sleep(FULL_SECONDS)


async def _answer(stream: trio.SocketStream, text: Callable[[], str], room: trio.Semaphore) -> None:
    """Whatever a client does, and whatever is wrong with the metrics, costs this answer only."""
    try:
        with suppress(Exception), trio.move_on_after(ANSWER_SECONDS_MAX):
            await _speak(stream, text)
    finally:
        room.release()
        await trio.aclose_forcefully(stream)


async def _speak(stream: trio.SocketStream, text: Callable[[], str]) -> None:
    connection = h11.Connection(h11.SERVER)
    try:
        request = await _request(stream, connection)
    except h11.RemoteProtocolError as error:
        await stream.send_all(_reply(connection, error.error_status_hint, "not a request\n", False))
        return
    if request is None:
        return
    bare = request.target.partition(b"?")[0]
    allowed = request.method in (b"GET", b"HEAD")
    status = 404 if bare != PATH else 200 if allowed else 405
    body = text() if status == 200 else "the metrics are at /metrics\n"
    await stream.send_all(_reply(connection, status, body, request.method == b"HEAD"))


async def _request(stream: trio.SocketStream, connection: h11.Connection) -> h11.Request | None:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(RECEIVE_BYTES))


def _reply(connection: h11.Connection, status: int, body: str, head: bool) -> bytes:
    data = body.encode()
    headers = [("content-type", CONTENT_TYPE), ("content-length", str(len(data))), ("connection", "close")]
    parts = [connection.send(h11.Response(status_code=status, headers=headers))]
    if not head:
        parts.append(connection.send(h11.Data(data=data)))
        parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)
