"""The disk as one life reaches it: a dead daemon writes no byte, and may die at each access."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any, Protocol

import trio

#: The daemon may die after these too.
WRITES = ("write", "sync", "create", "put")


class Touching(Protocol):
    def touch(self) -> bool: ...


class Gated:
    """A location (`events.disk.Storage`), or a segment file (`events.disk.SegmentFile`)."""

    def __init__(self, life: Touching, inner: Any) -> None:
        self._life, self._inner = life, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not iscoroutinefunction(found):
            return found

        async def call(*args: Any) -> Any:
            await self._pass()
            made = await found(*args)
            if name in WRITES:
                await self._pass()
            return Gated(self._life, made) if name == "create" else made

        return call

    async def _pass(self) -> None:
        """A dead daemon waits here for its cancel."""
        if not self._life.touch():
            await trio.sleep_forever()
