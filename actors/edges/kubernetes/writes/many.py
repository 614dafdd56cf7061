"""Calls for many pods: a bounded number of them at a time, each with its own word at the end.

Each call that is out needs a connection of its own, and a new one costs both sides more of the processor than
the call (TLS), just when the pods' ends need it. So few go out together while the server answers at once, and
more where it is slow, when waiting is all that it costs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

#: As many calls at once as the caller keeps connections.
AT_ONCE_MAX = 32
#: Of these, such as are answered at once: an answer takes milliseconds, so a wave is out in some tens.
QUICK_MAX = 8
#: One that is out for longer waits for the server, and another may go out beside it.
QUICK_SECONDS = 0.05

#: A server that has answered, and is slow, gets a whole wave at once: the connections of one session.
WIDE_MAX = 110

T = TypeVar("T")
R = TypeVar("R")


class Places:
    """For whatever goes out at the same time."""

    def __init__(self) -> None:
        self._all, self._quick = trio.Semaphore(AT_ONCE_MAX), trio.Semaphore(QUICK_MAX)
        self._wide = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the time of the block. What it raises comes in a group."""
        async with self._all:
            await self._quick.acquire()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._make_room)
                yield
                nursery.cancel_scope.cancel()

    def widen(self) -> None:
        """From now on there is a place for everybody."""
        if not self._wide:
            for each in (self._all, self._quick):
                for _ in range(WIDE_MAX):
                    each.release()
        self._wide = True

    async def _make_room(self) -> None:
        """Give the quick place back: when the work is done, which cancels this, or when it is slow."""
        try:
            await trio.sleep(QUICK_SECONDS)
        finally:
            self._quick.release()


async def of_each(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results in the order of the items."""
    places, given = Places(), list(items)
    results: dict[int, R] = {}

    async def one(at: int, item: T) -> None:
        async with places.one():
            results[at] = await work(item)

    async with trio.open_nursery() as nursery:
        for at, item in enumerate(given):
            nursery.start_soon(one, at, item)
    return [results[at] for at in range(len(given))]
