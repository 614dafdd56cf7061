"""How long the journal waits for a disk."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

import trio

#: A disk that has not taken a write for so long is given up: the page cache answers in microseconds.
HANG_SECONDS = 1.0
#: A sync may wait for all that others wrote; records are written meanwhile, and no effect waits for long.
#: The next location is likely to be lost with the boot, so a slow disk is the better place for evidence.
SYNC_HANG_SECONDS = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def bounded(
    function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, seconds: float = HANG_SECONDS
) -> T:
    """Await ``function(*args)``. Raises OSError (ETIMEDOUT) when it does not end in time."""
    with trio.move_on_after(seconds):
        return await function(*args)
    raise OSError(errno.ETIMEDOUT, f"the disk did not answer within {seconds:g} s")
