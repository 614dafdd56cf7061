"""Test back ends on loopback: one that keeps acknowledged spans, and several broken ones.

They test our logic; tests/backends uses real back ends.
"""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import h11
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

RECEIVE_BYTES = 65536


class Got(NamedTuple):
    """One request: lower-case headers, uncompressed body."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def spans(self) -> list[WireSpan]:
        request = ExportTraceServiceRequest.FromString(self.body)
        return [
            span
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Reply(NamedTuple):
    """``keeps``: whether the collector stores the spans."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/x-protobuf"),)
    keeps: bool = True


OK = Reply()


class Collector:
    """``answer`` maps a request to a reply; ``spans``: acknowledged ones by trace and span ID."""

    def __init__(self, answer: Callable[[Got], Reply] = lambda got: OK) -> None:
        self.answer = answer
        self.got: list[Got] = []
        self.spans: dict[tuple[bytes, bytes], bytes] = {}
        #: Acknowledged spans whose bytes differed from the first time.
        self.changed: list[tuple[bytes, bytes]] = []
        self.repeated = 0
        self.more = trio.Event()
        self.port = 0
        self.scheme = "http"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"

    def take(self, got: Got) -> Reply:
        self.got.append(got)
        reply = self.answer(got)
        if reply.keeps and 200 <= reply.status < 300:
            self._keep(got)
        self.more.set()
        self.more = trio.Event()
        return reply

    def _keep(self, got: Got) -> None:
        for span in got.spans:
            key, data = (span.trace_id, span.span_id), span.SerializeToString(deterministic=True)
            self.repeated += key in self.spans
            if self.spans.setdefault(key, data) != data:
                self.changed.append(key)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.more.wait()


@asynccontextmanager
async def collecting(collector: Collector, context: ssl.SSLContext | None = None) -> AsyncIterator[Collector]:
    async def serve(stream: trio.abc.Stream) -> None:
        if context is not None:
            stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
            await _serve(collector, stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(_listen, serve)
        collector.port = listeners[0].socket.getsockname()[1]
        collector.scheme = "https" if context is not None else "http"
        yield collector
        nursery.cancel_scope.cancel()


async def _listen(serve: Callable[..., object], task_status: trio.TaskStatus[object]) -> None:
    await trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)  # type: ignore[arg-type]


async def _serve(collector: Collector, stream: trio.abc.Stream) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 16)
    async with stream:
        while True:
            got = await _request(connection, stream)
            if got is None:
                return
            reply = collector.take(got)
            headers = [*reply.headers, ("content-length", str(len(reply.body)))]
            events = (
                h11.Response(status_code=reply.status, headers=headers),
                h11.Data(data=reply.body),
                h11.EndOfMessage(),
            )
            await stream.send_all(b"".join(connection.send(event) or b"" for event in events))
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()


async def _request(connection: h11.Connection, stream: trio.abc.Stream) -> Got | None:
    head, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = bytes(await stream.receive_some(RECEIVE_BYTES))
            if not data and head is None:
                return None
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode() for name, value in head.headers}
            plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
            return Got(head.target.decode(), headers, plain)
        else:
            return None


# --- back ends that are no good

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n"
PAGE = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 22\r\n\r\n<html>It works!</html>"


class NoGood(NamedTuple):
    """Reads so many bytes (None: all), sends these, and hangs up or stays. ``endless``: it sends for ever."""

    reads: int | None = RECEIVE_BYTES
    sends: bytes = b""
    stays: bool = True
    endless: bool = False


NO_GOOD = {
    "mute": NoGood(reads=None),
    "deaf": NoGood(reads=0),
    "nonsense": NoGood(sends=b"\x00\xff SMTP ready? 220 \r\n\r\n" * 40, stays=False),
    "hangs up": NoGood(reads=16, stays=False),
    "welcome page": NoGood(sends=PAGE),
    # The head has 200, but without the whole body no span is acknowledged.
    "cut short": NoGood(sends=HEAD + b"content-length: 10\r\n\r\n", stays=False),
    "stalls": NoGood(sends=HEAD + b"content-length: 10\r\n\r\n"),
    "endless": NoGood(sends=HEAD + b"\r\n", endless=True),
}


@asynccontextmanager
async def no_good(kind: str) -> AsyncIterator[str]:
    """A broken server's endpoint; for ``dead`` there is no server."""
    if kind == "dead":
        with socket.socket() as bound:  # bound and not listening: whoever comes is refused
            bound.bind(("127.0.0.1", 0))
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        return
    bad = NO_GOOD[kind]

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                if bad.reads is None:
                    async for _ in stream:
                        pass
                elif bad.reads:
                    await stream.receive_some(bad.reads)
                await stream.send_all(bad.sends)
                while bad.endless:
                    await stream.send_all(bytes(RECEIVE_BYTES))
                if bad.stays:
                    await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(_listen, serve)
        port = listeners[0].socket.getsockname()[1]
        yield f"http://localhost:{port}"
        nursery.cancel_scope.cancel()
