"""Two streams as one connection."""

from __future__ import annotations

import contextlib

import trio


async def joined(one: trio.abc.Stream, other: trio.abc.Stream) -> None:
    """Copies both ways until either stream ends."""
    async with trio.open_nursery() as both:

        async def copy(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while piece := await source.receive_some():
                    await sink.send_all(piece)
            both.cancel_scope.cancel()

        both.start_soon(copy, one, other)
        both.start_soon(copy, other, one)
