"""Waits for a moment in which the machine does little else: absolute figures are about us, not others."""

from __future__ import annotations

import os
from pathlib import Path

import trio

STAT = Path("/proc/stat")
#: Looked at in windows of this length, until one is idle enough.
WINDOW_SECONDS = 0.2
#: Of all processors together.
IDLE_SHARE_MIN = 0.85
#: After this it is measured all the same: the load stands beside the results.
WAIT_SECONDS_MAX = 10.0


def idle_ticks() -> int:
    return int(STAT.read_text().split(maxsplit=5)[4])


async def quiet() -> bool:
    """Wait for a quiet window; False when none came."""
    ticks_a_second = os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
    with trio.move_on_after(WAIT_SECONDS_MAX):
        while True:
            before, since = idle_ticks(), trio.current_time()
            await trio.sleep(WINDOW_SECONDS)
            share = (idle_ticks() - before) / ((trio.current_time() - since) * ticks_a_second)
            if share >= IDLE_SHARE_MIN:
                return True
    return False
