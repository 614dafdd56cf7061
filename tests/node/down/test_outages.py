"""An API server that refuses or is slow during a shutdown, and a runtime that hangs at the signal.

`tests.node.matrix` has the other parts that die or hang.
"""

from __future__ import annotations

import pytest
import trio

from ebbtide.actors.kubelet import RUNTIME_LOST_REASON
from ebbtide.events.bounds import Bounds
from ebbtide.events.decisions import DeletePod, HandedOver
from tests.node.faults import Target, hung
from tests.node.going import Going
from tests.node.witness import NS, TICK_NS, Witness

pytestmark = [pytest.mark.node]
WAVES = ((1000, 8), (3000, 8))
#: Each answer's delay. In mode api longer than a mark may take, but shorter than a delete may.
MARK_SECONDS, DELETE_SECONDS = Bounds().mark_seconds, Bounds().delete_seconds
LATE_SECONDS = {"cri": 1.0, "api": MARK_SECONDS + (DELETE_SECONDS - 2 * MARK_SECONDS) / 2}


def two(witness: Witness) -> list[dict[str, object]]:
    """One pod in each of two waves; both obey, the first slowly."""
    return [
        witness.pod("low", ends_after=2, hook=True, priorityClassName="low"),
        witness.pod("high", ends_after=0.3, hook=True, priorityClassName="high"),
    ]


def in_time(node: Going, asked_ns: int, over_ns: int) -> None:
    """Both waves in order, each hook once, no wasted wave."""
    node.in_order("low", "high")
    assert [len(node.witness.times(name, "hook")) for name in ("low", "high")] == [1, 1]
    assert node.outcomes() == {"low": "graceful", "high": "graceful"}
    assert over_ns - asked_ns < 18 * NS


async def test_storm(node: Going) -> None:
    """The API server refuses all changes; the pods still go down in time."""
    weather = await node.under_weather()
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    weather.becomes(answer=500, methods=["DELETE", "PATCH", "PUT", "POST"], retry_after=1)
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "api":
        assert len(node.daemon.events(HandedOver)) == 1


async def test_passing_storm(by_api: Going) -> None:
    """Refusals for a second: deletes are retried, without a hand-over."""
    weather = await by_api.under_weather()
    await by_api.run(*two(by_api.witness))
    await by_api.arm(*WAVES)
    weather.becomes(answer=429, methods=["DELETE"], retry_after=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_api.down)
        await by_api.daemon.until(lambda: by_api.daemon.events(DeletePod), "it deletes nothing")
        await trio.sleep(0.5)
        weather.becomes()
    assert by_api.outcomes() == {"low": "graceful", "high": "graceful"}
    assert not by_api.daemon.events(HandedOver)
    assert by_api.witness.times("low", "ended")[0] <= by_api.witness.times("high", "signal")[0] + TICK_NS


async def test_slow_api(node: Going) -> None:
    """In mode cri slow answers delay no stop signal and no wave. In mode api they lose the mark, but not
    the delete.
    """
    weather = await node.under_weather()
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    weather.becomes(delay_seconds=LATE_SECONDS[node.mode])
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "cri":
        assert node.witness.times("low", "hook")[0] - asked_ns < NS


async def test_a_runtime_that_hangs_at_the_signal(by_api: Going) -> None:
    """The pods are taken over at once: a pod that needs 2 s of its 5 s ends by itself."""
    await by_api.run(by_api.witness.pod("web", ends_after=2))
    await by_api.arm((0, 5))
    async with hung("containerd")(Target(by_api.bed, by_api.member, by_api.daemon, None)):
        await by_api.down()
        assert by_api.outcomes() == {"web": "graceful"}
    (over,) = by_api.daemon.events(HandedOver)
    assert over.reason == RUNTIME_LOST_REASON
    assert len(by_api.witness.times("web", "signal")) == 1
