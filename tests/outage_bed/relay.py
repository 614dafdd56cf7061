"""A port of the machine's loopback, reached from the nodes' network."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import trio

from tests.beds.bmc import LOOPBACK
from tests.node.bed import Bed


@contextlib.asynccontextmanager
async def relayed(bed: Bed, port: int, reachable: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
    """While not ``reachable``, connections close at once."""

    async def relay(outer: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with outer:
                if not reachable():
                    return
                inner = await trio.open_tcp_stream(LOOPBACK, port)
                async with inner, trio.open_nursery() as both:
                    both.start_soon(_pump, outer, inner, both.cancel_scope)
                    both.start_soon(_pump, inner, outer, both.cancel_scope)

    with bed.network():
        listening = trio.socket.socket()
    await listening.bind((LOOPBACK, port))
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, relay, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for piece in source:
            await sink.send_all(piece)
    scope.cancel()
