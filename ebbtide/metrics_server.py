"""Serves the metrics to Prometheus: HTTP/1.1, only ``GET /metrics``, one answer for each connection.

A client costs the daemon a bounded time, and never a shutdown.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import h11
import trio

from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.control import serve_clients
from ebbtide.otel.metric_table import CONTENT_TYPE, OPENMETRICS_TYPE, as_openmetrics

PATH = b"/metrics"

#: Prometheus' default timeout is 10 s.
ANSWER_SECONDS_MAX = 5

#: Two Prometheus servers, and people.
CLIENTS_MAX = 8

#: A request has a line and some headers.
RECEIVE_BYTES = 4096


async def serve(address: str, text: Callable[[], str], *, task_status: trio.TaskStatus[None]) -> None:
    """Listens at ``address:port`` until cancelled. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # At a restart the former process's scrapes are still in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    task_status.started()
    await serve_clients(listener, partial(_answer, text), CLIENTS_MAX, ANSWER_SECONDS_MAX)


async def serve_or_report(address: str, text: Callable[[], str], tell: Tell) -> None:
    """A port in use costs only the metrics."""
    try:
        await serve(address, text, task_status=trio.TASK_STATUS_IGNORED)
    except OSError as error:
        tell(WARNING, f"no metrics at {address}: {error.strerror or error}; see metricsListen")


async def _answer(text: Callable[[], str], stream: trio.SocketStream) -> None:
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
            status, body = 404 if event.target.partition(b"?")[0] != PATH else 405, "GET /metrics\n"
            kind = CONTENT_TYPE
            if status == 405 and event.method in (b"GET", b"HEAD"):
                status, body = 200, text()
                accepted = (value for name, value in event.headers if name == b"accept")
                if any(OPENMETRICS_TYPE.partition(";")[0].encode() in value for value in accepted):
                    kind, body = OPENMETRICS_TYPE, as_openmetrics(body)
            await stream.send_all(_reply(connection, status, body, event.method == b"HEAD", kind))


def _reply(connection: h11.Connection, status: int, body: str, head: bool, kind: str = CONTENT_TYPE) -> bytes:
    data = body.encode()
    headers = [("content-type", kind), ("content-length", str(len(data))), ("connection", "close")]
    parts = [connection.send(h11.Response(status_code=status, headers=headers))]
    if not head:
        parts.append(connection.send(h11.Data(data=data)))
        parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)
