"""Serves a listening socket's clients, with bounds on their number and their time."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

#: Pause after running out of descriptors: without it, a busy loop would take time from a shutdown.
FULL_SECONDS = 0.1


class ClientBounds(NamedTuple):
    """``clients_max`` at once, each for ``seconds_max``. While another one waits, a client of more than
    ``patience_seconds`` is closed.
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
            # Not the graceful close, which waits for a client that may never read.
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
                # Make room before the accept uses a descriptor, and close no client before one waits.
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
