"""One daemon through several shutdowns that do not come off: it holds afterwards what it held before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.node.bed import Bed
from tests.node.week import Week, week

pytestmark = [pytest.mark.node, pytest.mark.slow]
WARM_UP, SHUTDOWNS = 2, 6
#: Idle threads and connections go within seconds, where nothing needs them again.
BACK_SECONDS_MAX = 20
#: Connections to the API server are kept for a minute, as many as calls were under way at once. Each is a
#: descriptor and a task.
KEPT = ("socket: tcp", "task _io_task")


async def test_nothing_grows(bed: Bed, tmp_path: Path) -> None:
    """Descriptors, tasks and threads, by name; and the node is each time as before: see `Week.shut_down`."""
    seed = random.randrange(1 << 32)
    async with week(bed, tmp_path, seed) as made:
        await through(made, WARM_UP)
        look = await made.observer.look(WARM_UP)
        before, threads = made.observer.named, look.threads
        await through(made, SHUTDOWNS)
        with trio.move_on_after(BACK_SECONDS_MAX):
            while True:
                look = await made.observer.look(SHUTDOWNS)
                more = lasting(made.observer.named) - lasting(before)
                if not more and look.threads <= threads:
                    break
        made.judge()
        assert (made.broken, dict(more)) == ([], {}), f"seed {seed}"
        assert look.threads <= threads
        assert (look.marks, look.leases) == (0, 0)


async def through(made: Week, shutdowns: int) -> None:
    while made.done < shutdowns:
        await made.shut_down()


def lasting(named: Counter[str]) -> Counter[str]:
    return Counter({name: count for name, count in named.items() if name not in KEPT})
