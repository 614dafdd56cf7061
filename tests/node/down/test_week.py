"""One daemon through several failed shutdowns: its resources do not grow."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.node.bed import Bed
from tests.node.growth import KEPT_DESCRIPTOR, KEPT_TASK
from tests.node.week import Week, week

pytestmark = [pytest.mark.node]
#: A power-off and a reboot warm up both means; the next two would show two leaks.
WARM_UP, SHUTDOWNS = 2, 4
PODS_AT_ONCE = 3
#: A transient object is missing in some looks.
LOOKS = 3
#: Idle threads and connections end within seconds.
BACK_SECONDS_MAX = 20


async def test_nothing_grows(bed: Bed, tmp_path: Path) -> None:
    """Descriptors, tasks and threads by name; the node returns to its former state (`Week.shut_down`)."""
    seed = random.randrange(1 << 32)
    async with week(bed, tmp_path, seed, pods_at_once=PODS_AT_ONCE) as made:
        await through(made, WARM_UP)
        look = await made.observer.look(WARM_UP, LOOKS)
        before, threads = made.observer.named, look.threads
        await through(made, SHUTDOWNS)
        with trio.move_on_after(BACK_SECONDS_MAX):
            while True:
                look = await made.observer.look(SHUTDOWNS, LOOKS)
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
    return Counter({name: count for name, count in named.items() if name not in (KEPT_DESCRIPTOR, KEPT_TASK)})
