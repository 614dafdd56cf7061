"""How many calls for pods are out at once: few to a server that answers at once, more to a slow one."""

from __future__ import annotations

import pytest
import trio

from actors.edges.kubernetes.writes.many import AT_ONCE_MAX, QUICK_MAX, QUICK_SECONDS, of_each


@pytest.mark.parametrize(
    ("seconds", "most"),
    [(QUICK_SECONDS / 10, QUICK_MAX), (QUICK_SECONDS * 100, AT_ONCE_MAX)],
    ids=["fast", "slow"],
)
async def test_how_many_at_once(autojump_clock: trio.testing.MockClock, seconds: float, most: int) -> None:
    """The results come in the order of the items, however long each takes."""
    out, peak = 0, 0

    async def work(item: int) -> int:
        nonlocal out, peak
        out += 1
        peak = max(peak, out)
        await trio.sleep(seconds * (1 + item % 2))
        out -= 1
        return item * 2

    assert await of_each(range(100), work) == [item * 2 for item in range(100)]
    assert peak == most


async def test_work_that_raises(autojump_clock: trio.testing.MockClock) -> None:
    """Its error comes out, as a group, and the others are given up."""

    async def work(item: int) -> int:
        if item == 3:
            raise KeyError(item)
        await trio.sleep_forever()
        return item

    with pytest.raises(ExceptionGroup) as caught:
        await of_each(range(4), work)
    assert caught.group_contains(KeyError)
