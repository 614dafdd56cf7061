"""Modes auto and observe on a real node: the choice of means, and a kubelet with its own graceful
shutdown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import OrderEnded
from tests.node.bed import Bed
from tests.node.client import condition
from tests.node.contenders import OFF
from tests.node.going import Going, going, tainted
from tests.node.pods import PODS

pytestmark = [pytest.mark.node]

#: The kubelet's graceful shutdown, as long as ours; it ends with the pods.
ON = {"shutdownGracePeriod": "600s", "shutdownGracePeriodCriticalPods": "300s"}
OURS = (d.SendSignal, d.KillContainer, d.DeletePod, d.StopKubelet)


@pytest.fixture
async def by_auto(bed: Bed, tmp_path: Path) -> AsyncIterator[Going]:
    async with going(bed, "auto", tmp_path) as made:
        yield made


@pytest.fixture(params=["auto", "observe"])
async def beside(bed: Bed, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Going]:
    """A kubelet with its own graceful shutdown and lock."""
    try:
        async with going(bed, request.param, tmp_path) as made:
            await bed.start_over(**ON)
            await bed.locks(1)
            yield made
    finally:
        await bed.start_over(**OFF)


@pytest.mark.gate
async def test_the_kubelet_is_left_to_it(beside: Going) -> None:
    """Ebbtide gives no order, records each outcome, and holds the lock until the API server has all."""
    witness = beside.witness
    await beside.run(
        witness.pod("web", ends_after=1, terminationGracePeriodSeconds=600),
        witness.pod("deaf", slow=True, terminationGracePeriodSeconds=3),
        witness.pod(
            "critical",
            ends_after=0.5,
            priorityClassName="system-node-critical",
            terminationGracePeriodSeconds=600,
        ),
    )
    await beside.arm(**ON)
    await beside.down()
    assert beside.means() == "observe"
    assert not [each for kind in OURS for each in beside.daemon.events(kind)]
    assert beside.outcomes() == {"web": "graceful", "deaf": "killed", "critical": "graceful"}
    await beside.final("web", "deaf", "critical")
    order = beside.daemon.events(d.AwaitStatuses)[0]
    ended = [each for each in beside.daemon.events(OrderEnded) if each.key == order.key]
    assert [each.result for each in ended] == ["done"]
    assert not beside.daemon.events(d.LeftUndone)
    assert not tainted(await beside.node())


@pytest.mark.gate
async def test_a_reboot_keeps_the_pods(by_auto: Going) -> None:
    """Stops through the runtime without the kubelet: a returning pod gets no terminal phase.

    The pod ends after it left its Services: an earlier end may leave it Ready.
    """
    await by_auto.run(by_auto.witness.pod("web", waits=True, terminationGracePeriodSeconds=600))
    await by_auto.arm((0, 600))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_auto.down, "reboot")
        await by_auto.bed.api.until(f"{PODS}/web", lambda pod: condition(pod, "Ready") == "False")
        by_auto.witness.lets_end("web")
    assert by_auto.means() == "cri"
    assert by_auto.daemon.events(d.StopKubelet)
    assert not by_auto.daemon.events(d.StartKubelet)
    found = await by_auto.object("web")
    assert found is not None
    assert found["status"]["phase"] == "Running"
    assert condition(found, "Ready") == "False"
