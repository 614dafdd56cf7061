"""Wait for another process or task, without bounds of seconds: the machine may be slow.

A wait ends with its condition, or by the watchdog.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import trio

#: The end of every wait in a gate test: only a defect takes longer.
WATCHDOG_SECONDS = 300.0
POLL_SECONDS = 0.01


async def until(holds: Callable[[], Any], what: str | Callable[[], str]) -> Any:
    """Poll ``holds`` (sync or async) and return its first true answer.

    Raises AssertionError with ``what`` at the watchdog's end.
    """
    with trio.move_on_after(WATCHDOG_SECONDS):
        while True:
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await trio.sleep(POLL_SECONDS)
    raise AssertionError(f"waited {WATCHDOG_SECONDS:.0f} s: {what if isinstance(what, str) else what()}")


def until_sync(holds: Callable[[], Any], what: str | Callable[[], str]) -> Any:
    """Like `until`, in a test without Trio."""
    end = time.monotonic() + WATCHDOG_SECONDS
    while time.monotonic() < end:
        if answer := holds():
            return answer
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"waited {WATCHDOG_SECONDS:.0f} s: {what if isinstance(what, str) else what()}")
