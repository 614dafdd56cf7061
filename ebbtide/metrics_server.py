"""Serves the metrics to Prometheus: HTTP/1.1, only ``GET /metrics``, one answer for each connection.

A client costs the daemon a bounded time, and never a shutdown.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

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


async def serve(
    address: str, text: Callable[[], str], hosts: Collection[str] = (), *, task_status: trio.TaskStatus[None]
) -> None:
    """Listen at ``address:port`` until cancelled. Raises OSError.

    ``hosts``: allowed host names in lower case, beside the machine's own and any address.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # At a restart the former process's scrapes are still in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    task_status.started()
    names = {*OWN_NAMES, os.uname().nodename.lower(), *hosts}
    bounds = ClientBounds(CLIENTS_MAX, ANSWER_SECONDS_MAX, PATIENCE_SECONDS)
    await serve_clients(listener, partial(_answer, text, names), bounds)


async def _answer(text: Callable[[], str], names: Collection[str], stream: trio.SocketStream) -> None:
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
    request: h11.Request, text: Callable[[], str], names: Collection[str]
) -> tuple[int, str]:
    # h11 refuses several; a request without one comes from no browser.
    host = dict(request.headers).get(b"host")
    if host is not None and not _is_ours(host.decode("latin-1"), names):
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
