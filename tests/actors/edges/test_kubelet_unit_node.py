"""A real kubelet, stopped and started as a unit by the edge that a daemon has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges import kubelet as edge_module
from ebbtide.actors.edges.kubelet import KubeletEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import CheckMounts, StartKubelet, StopKubelet
from ebbtide.events.facts import KubeletRead, MountsRead
from tests.actors.edges.process.process_bed import Outbox
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.client import condition
from tests.node.serving import served

pytestmark = [pytest.mark.node, pytest.mark.root]


@pytest.fixture(scope="module")
def opened() -> Iterator[Bed]:
    with served(bring_up) as made:
        yield made


class Rig:
    """The edge for the bed's one kubelet."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.member, self.outbox = bed, bed.members["node-1"], Outbox()
        table = Path(f"/proc/{bed.pid}/mountinfo")
        root = self.member.state / "kubelet"
        self.edge = KubeletEdge(self.member.unit, root, address=bed.logind.address, mount_table=table)

    async def do(self, order: Order) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        assert not isinstance(ending, Ending)
        return await ending

    async def alive(self) -> bool:
        return "kubelet-node-1" in await self.bed.inside.do("alive")


async def test_a_kubelet_is_stopped_and_started(opened: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has gone when the order is done, it is Ready again after the other; what changes is on record."""
    monkeypatch.setattr(edge_module, "LOOK_SECONDS", 0.1)
    rig = Rig(opened)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        await rig.outbox.wait_for(KubeletRead, active=True)
        assert await rig.do(StopKubelet(key="s")) == Ending()
        assert not await rig.alive()
        assert await rig.do(CheckMounts(key="c")) == Ending()
        assert rig.outbox.of(MountsRead) == [MountsRead(key="c")]
        assert await rig.do(StartKubelet(key="t")) == Ending()
        assert await rig.alive()
        await opened.node_ready(rig.member)
        await opened.stop("kubelet-node-1")
        await rig.outbox.wait_for(KubeletRead, 2, active=False)
        assert await rig.do(StartKubelet(key="t")) == Ending()
        nursery.cancel_scope.cancel()
    assert [fact.active for fact in rig.outbox.of(KubeletRead)] == [True, False, True, False, True]
    node = await opened.api.get("/api/v1/nodes/node-1")
    assert condition(node, "Ready") == "True"


async def test_a_kubelet_that_does_not_end(opened: Bed) -> None:
    """Nobody waits for it longer than the bound: it is killed, and that is said."""
    rig = Rig(opened)
    await opened.logind.do("stuck", unit=rig.member.unit, stuck=True)
    try:
        with trio.fail_after(5):
            ending = await rig.do(StopKubelet(key="s"))
    finally:
        await opened.logind.do("stuck", unit=rig.member.unit, stuck=False)
    assert ending == Ending("done", "killed: it had not ended after 2 s")
    assert not await rig.alive()
    assert [fact.active for fact in rig.outbox.of(KubeletRead)] == [False]
