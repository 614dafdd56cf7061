"""Serves the metrics to Prometheus: HTTP/1.1, ``GET /metrics`` and nothing else, one answer a connection.

Whatever a client does, it costs the daemon a bounded moment and never a shutdown.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
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
#: The socket's name until it has its mode.
SOCKET_NAME = "socket"


async def serve(address: str, text: Callable[[], str], *, task_status: trio.TaskStatus[None]) -> None:
    """Listen at ``address:port`` or ``unix:PATH`` until cancelled. Raises OSError when that cannot be."""
    path = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    inet = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(inet if path is None else socket.AF_UNIX)
    try:
        if path is None:
            # A restart comes while the scrapes of the process before it are still in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            listener.listen(CLIENTS_MAX)
        else:
            _listen_for_all(listener, path)
    except OSError:
        listener.close()
        raise
    task_status.started()
    room, clients = trio.Semaphore(CLIENTS_MAX), trio.socket.from_stdlib_socket(listener)
    try:
        async with trio.open_nursery() as nursery:
            while True:
                await room.acquire()  # before a descriptor is spent on one more client
                try:
                    client, _ = await clients.accept()
                except OSError:
                    # No descriptor is left just now. Without the pause this would be a busy loop in a process
                    # that needs its descriptors for a shutdown.
                    room.release()
                    await trio.sleep(FULL_SECONDS)
                    continue
                nursery.start_soon(_answer, trio.SocketStream(client), text, room)
    finally:
        clients.close()
        if path is not None:
            path.unlink(missing_ok=True)


def _listen_for_all(listener: socket.socket, path: Path) -> None:
    """Listen at ``path``, for everybody who can reach it, whatever the umask is. Raises OSError."""
    # The mode is set in a folder that is ours alone, reached by its descriptor, and the socket then moves to
    # its name. At the name itself whoever may write to the folder could put a link there between the two,
    # and some other file would be everybody's.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    private, own = f".{path.name}.new", -1
    try:
        _require_room(path, folder)
        with suppress(FileExistsError):  # one that a crash left
            os.mkdir(private, 0o700, dir_fd=folder)
        own = os.open(private, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        found = os.fstat(own)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise OSError(errno.EPERM, f"{path.parent / private} is somebody else's: remove it")
        with suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=own)
        place = f"/proc/self/fd/{own}/{SOCKET_NAME}"
        listener.bind(place)
        os.chmod(place, SOCKET_MODE)
        listener.listen(CLIENTS_MAX)
        os.rename(SOCKET_NAME, path.name, src_dir_fd=own, dst_dir_fd=folder)
    finally:
        if own >= 0:
            os.close(own)
            with suppress(OSError):
                os.rmdir(private, dir_fd=folder)
        os.close(folder)


def _require_room(path: Path, folder: int) -> None:
    """A dead daemon's socket gives way; anything else that stands there is an error, a link too."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EADDRINUSE, f"{path} is in use and no socket: name another in metricsListen")


async def _answer(stream: trio.SocketStream, text: Callable[[], str], room: trio.Semaphore) -> None:
    """Whatever a client does, and whatever is wrong with the metrics, costs this answer only."""
    connection = h11.Connection(h11.SERVER)
    try:
        with suppress(Exception), trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                while (event := connection.next_event()) is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
            except h11.RemoteProtocolError as error:
                await stream.send_all(_reply(connection, error.error_status_hint, "not a request\n", False))
                return
            if not isinstance(event, h11.Request):
                return
            bare = event.target.partition(b"?")[0]
            allowed = event.method in (b"GET", b"HEAD")
            status = 404 if bare != PATH else 200 if allowed else 405
            body = text() if status == 200 else "the metrics are at /metrics\n"
            await stream.send_all(_reply(connection, status, body, event.method == b"HEAD"))
    finally:
        room.release()
        # Not the graceful close: that would wait for a client that may never read.
        await trio.aclose_forcefully(stream)


def _reply(connection: h11.Connection, status: int, body: str, head: bool) -> bytes:
    data = body.encode()
    headers = [("content-type", CONTENT_TYPE), ("content-length", str(len(data))), ("connection", "close")]
    parts = [connection.send(h11.Response(status_code=status, headers=headers))]
    if not head:
        parts.append(connection.send(h11.Data(data=data)))
        parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)
