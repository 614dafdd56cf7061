"""Serves a listening socket's clients: so many at once, each for so long, and never the daemon's end."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

#: Out of descriptors: somebody may give one back. Without the pause this would be a busy loop in a process
#: that has a shutdown to do.
FULL_SECONDS = 0.1


class ClientBounds(NamedTuple):
    """``clients_max`` are served at once, each for ``seconds_max``. Where one more waits, whoever has been
    served for ``patience_seconds`` makes room.
    """

    clients_max: int
    seconds_max: float
    patience_seconds: float


async def serve_clients(
    listener: socket.socket, answer: Callable[[trio.SocketStream], Awaitable[None]], bounds: ClientBounds
) -> None:
    """Until cancelled; closes the socket. ``answer`` raises nothing, and may be cancelled at any await."""
    clients, room = trio.socket.from_stdlib_socket(listener), trio.Semaphore(bounds.clients_max)
    # The oldest first.
    served: dict[trio.CancelScope, float] = {}

    async def serve(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await answer(stream)
        finally:
            del served[scope]
            room.release()
            # Not the graceful close: that would wait for a client that may never read.
            await trio.aclose_forcefully(stream)

    async def make_room() -> None:
        try:
            room.acquire_nowait()
        except trio.WouldBlock:
            oldest, began = next(iter(served.items()))
            with trio.move_on_at(began + bounds.patience_seconds):
                await room.acquire()
                return
            oldest.cancel()
            await room.acquire()

    try:
        async with trio.open_nursery() as nursery:
            while True:
                # Room before a descriptor is spent on one more client, and nobody goes before there is one.
                await trio.lowlevel.wait_readable(clients)
                await make_room()
                try:
                    client, _ = await clients.accept()
                except OSError:
                    room.release()
                    await trio.sleep(FULL_SECONDS)
                    continue
                now = trio.current_time()
                scope = trio.CancelScope(deadline=now + bounds.seconds_max)
                served[scope] = now
                nursery.start_soon(serve, trio.SocketStream(client), scope)
    finally:
        clients.close()
