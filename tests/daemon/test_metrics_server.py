"""The scrape endpoint: one path, one answer a connection, and no client that holds the daemon up."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio

from ebbtide.metrics_server import serve

Dial = Callable[[], Awaitable[trio.SocketStream]]

#: Where each gets an answer of megabytes.
FEW = 8
GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def served(text: str = "up 1\n", hosts: tuple[str, ...] = ()) -> AsyncIterator[Dial]:
    """A server on loopback, and how to reach it."""
    port = free_port()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, f"127.0.0.1:{port}", lambda: text, hosts))
        yield lambda: trio.open_tcp_stream("127.0.0.1", port)
        nursery.cancel_scope.cancel()


async def ask(dial: Dial, request: bytes) -> bytes:
    """What is answered until the server closes."""
    async with await dial() as stream:
        await stream.send_all(request)
        return b"".join([chunk async for chunk in stream])


OURS = [
    "localhost", "LOCALHOST.:9464", "127.0.0.1:9464", "10.0.0.7", "[::1]:9464", "[fe80::1]",
    os.uname().nodename, "node-1.example:9464",
]  # fmt: skip
STRANGERS = [
    "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "[evil.example]",
    "[::1].evil.example", "[::1]x:80", "", "\u00b2",
]  # fmt: skip


async def test_under_a_strangers_name_nothing_is_told() -> None:
    """A page can have its own name mean this machine: what a browser then asks for is refused by its Host."""
    async with served(hosts=("node-1.example",)) as dial:
        for host in (*OURS, *STRANGERS):
            request = b"GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode("latin-1")
            answer = await ask(dial, request)
            assert answer.split(b" ")[1] == (b"200" if host in OURS else b"421"), host
            assert (b"up 1" in answer) is (host in OURS)
        # Who says no name is no browser.
        assert (await ask(dial, b"GET /metrics HTTP/1.0\r\n\r\n")).endswith(b"up 1\n")


async def slow_nothing(stream: trio.SocketStream) -> None:
    """Connected, and silent."""


async def slow_reader(stream: trio.SocketStream) -> None:
    """A request, and no reading of its answer."""
    await stream.send_all(GOOD)


@pytest.mark.parametrize("slow", [slow_nothing, slow_reader])
async def test_slow_clients_do_not_delay_a_scrape(
    slow: Callable[[trio.SocketStream], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as many as are served at once, and none of them goes by itself: the oldest makes room."""
    monkeypatch.setattr("ebbtide.metrics_server.CLIENTS_MAX", FEW)
    monkeypatch.setattr("ebbtide.metrics_server.ANSWER_SECONDS_MAX", math.inf)
    # More than the socket's buffers hold.
    text = "x" * 8_000_000
    async with served(text) as dial, AsyncExitStack() as clients, trio.open_nursery() as nursery:
        for _ in range(3 * FEW):
            nursery.start_soon(slow, await clients.enter_async_context(await dial()))
        stream = await clients.enter_async_context(await dial())
        await stream.send_all(GOOD)
        assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel()


async def test_a_failure_costs_its_answer_only() -> None:
    """Whatever is wrong with the metrics, the daemon lives, and so does the next answer."""
    answers = iter([ValueError("broken"), "up 1\n"])

    def text() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    port = free_port()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, f"127.0.0.1:{port}", text))
        dial = partial(trio.open_tcp_stream, "127.0.0.1", port)
        with suppress(trio.BrokenResourceError):
            assert await ask(dial, GOOD) == b""
        assert (await ask(dial, GOOD)).endswith(b"up 1\n")
        nursery.cancel_scope.cancel()
