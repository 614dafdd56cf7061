"""Waiting until nobody uses something any more, so that it can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Idle:
    """Counts users; starts without one."""

    def __init__(self) -> None:
        self._users = 0
        self._free = trio.Event()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """One user more for the time of the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._free.set()
                self._free = trio.Event()

    async def wait(self) -> None:
        """Return when there is no user."""
        while self._users:
            await self._free.wait()
