"""Serves the metrics to Prometheus: HTTP/1.1, only ``GET /metrics``, one answer for each connection.

A client costs the daemon a bounded time, and never a shutdown.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

import h11
import trio

from ebbtide.clients import ClientBounds, serve_clients
from ebbtide.otel.metric_table import CONTENT_TYPE

PATH = b"/metrics"

#: Prometheus' default timeout is 10 s.
ANSWER_SECONDS_MAX = 5

#: While others wait, a client without its answer by now is closed, the oldest first: a request follows its
#: connection at once, and its answer takes some milliseconds.
PATIENCE_SECONDS = 0.05

#: Two Prometheus servers, and people. With the patience it bounds a flood of connections: 1 280 a second.
CLIENTS_MAX = 64

#: A backlog full of silent connections delays a scrape by 0.4 s. The kernel refuses further connections,
#: and their clients retry a second later.
BACKLOG = 512

#: Host names that a page of this machine may use, beside the configured ones.
OWN_NAMES = ("localhost",)

#: Misdirected Request (421).
MISDIRECTED = 421

#: A request has a line and some headers.
RECEIVE_BYTES = 4096

#: The socket's file: every user of the folder may read; it has no secrets.
SOCKET_MODE = 0o666
#: The socket's name until it has its mode.
SOCKET_NAME = "socket"


async def serve(
    address: str, text: Callable[[], str], hosts: Collection[str] = (), *, task_status: trio.TaskStatus[None]
) -> None:
    """Listen at ``address:port`` or ``unix:PATH`` until cancelled. Raises OSError.

    ``hosts``: allowed host names in lower case, beside the machine's own and any address.
    """
    path = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    inet = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(inet if path is None else socket.AF_UNIX)
    try:
        if path is None:
            # At a restart the former process's scrapes are still in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            listener.listen(BACKLOG)
        else:
            _listen_for_all(listener, path)
    except OSError:
        listener.close()
        raise
    task_status.started()
    # A web page cannot make a browser connect to a file.
    names = {*OWN_NAMES, os.uname().nodename.lower(), *hosts} if path is None else None
    bounds = ClientBounds(CLIENTS_MAX, ANSWER_SECONDS_MAX, PATIENCE_SECONDS)
    try:
        await serve_clients(listener, partial(_answer, text, names), bounds)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def _listen_for_all(listener: socket.socket, path: Path) -> None:
    """Listen at ``path``, for every user who can reach it, with any umask. Raises OSError."""
    # Set the mode in a private folder, through its descriptor, and then move the socket to its name. At the
    # name itself, another user of the folder could put a link between the two steps, and the mode would
    # apply to another file.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    private, own = f".{path.name}.new", -1
    try:
        _require_room(path, folder)
        with suppress(FileExistsError):  # one that a crash left
            os.mkdir(private, 0o700, dir_fd=folder)
        own = os.open(private, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        found = os.fstat(own)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise OSError(errno.EPERM, f"{path.parent / private} belongs to another program: remove it")
        with suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=own)
        place = f"/proc/self/fd/{own}/{SOCKET_NAME}"
        listener.bind(place)
        os.chmod(place, SOCKET_MODE)
        listener.listen(BACKLOG)
        os.rename(SOCKET_NAME, path.name, src_dir_fd=own, dst_dir_fd=folder)
    finally:
        if own >= 0:
            os.close(own)
            with suppress(OSError):
                os.rmdir(private, dir_fd=folder)
        os.close(folder)


def _require_room(path: Path, folder: int) -> None:
    """Removes a dead daemon's socket. Any other file, also a link, is an error."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EADDRINUSE, f"{path} is in use and no socket: name another in metricsListen")


async def _answer(text: Callable[[], str], names: Collection[str] | None, stream: trio.SocketStream) -> None:
    """A failing client or a defect in the metrics costs only this answer."""
    connection = h11.Connection(h11.SERVER)
    with suppress(Exception):
        try:
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
        except h11.RemoteProtocolError as error:
            await stream.send_all(_reply(connection, error.error_status_hint, "not a request\n", False))
            return
        if isinstance(event, h11.Request):
            status, body = _status_and_body(event, text, names)
            await stream.send_all(_reply(connection, status, body, event.method == b"HEAD"))


def _status_and_body(
    request: h11.Request, text: Callable[[], str], names: Collection[str] | None
) -> tuple[int, str]:
    # h11 refuses several; a request without one comes from no browser.
    host = dict(request.headers).get(b"host")
    if host is not None and names is not None and not _is_ours(host.decode("latin-1"), names):
        return MISDIRECTED, "not asked for by that name: ask by address, or name it in metricsHosts\n"
    if request.target.partition(b"?")[0] != PATH:
        return 404, "the metrics are at /metrics\n"
    if request.method not in (b"GET", b"HEAD"):
        return 405, "the metrics are at /metrics\n"
    return 200, text()


def _is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header has an address in it, or one of ``names``.

    The owner of a name can point it at this machine's address; a web page from that name could then read
    the metrics through a browser here. An address cannot be redirected like that.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name, _, port = name[1:].partition("]")
        if port and not port.startswith(":"):
            return False
    else:
        name = name.rpartition(":")[0] or name
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.removesuffix(".") in names
    return True


def _reply(connection: h11.Connection, status: int, body: str, head: bool) -> bytes:
    data = body.encode()
    headers = [("content-type", CONTENT_TYPE), ("content-length", str(len(data))), ("connection", "close")]
    parts = [connection.send(h11.Response(status_code=status, headers=headers))]
    if not head:
        parts.append(connection.send(h11.Data(data=data)))
        parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)
