"""The scrape endpoint: one path, one answer per connection, no blocking client."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from ebbtide.metrics_server import serve
from tests.beds.bmc import free_port

GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def served(text: Callable[[], str]) -> AsyncIterator[int]:
    port = free_port(socket.SOCK_STREAM)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, f"127.0.0.1:{port}", text))
        yield port
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        return b"".join([chunk async for chunk in stream])


async def test_one_path_is_answered() -> None:
    async with served(lambda: "up 1\n") as port:
        for request, code in (
            (GOOD, b"200"),
            (GOOD.replace(b"GET", b"HEAD"), b"200"),
            (GOOD.replace(b"GET", b"POST"), b"405"),
            (GOOD.replace(b"/metrics", b"/"), b"404"),
            (b"nonsense\r\n\r\n", b"400"),
        ):
            answer = await ask(port, request)
            assert answer.split(b" ")[1] == code, request
            assert answer.endswith(b"up 1\n") == (request == GOOD)
        openmetrics = GOOD.replace(
            b"\r\n\r\n", b"\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n"
        )
        answer = await ask(port, openmetrics)
        assert b"content-type: application/openmetrics-text;" in answer.lower()
        assert answer.endswith(b"up 1\n# EOF\n")


async def test_a_failure_costs_its_answer_only() -> None:
    """A metrics error costs one answer; the daemon and later answers continue."""
    answers = iter([ValueError("broken"), "up 1\n"])

    def text() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with served(text) as port:
        with suppress(trio.BrokenResourceError):
            assert await ask(port, GOOD) == b""
        assert (await ask(port, GOOD)).endswith(b"up 1\n")
