"""The warm watch against a real API server: it follows, it goes on, and it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes.rig import NODE, Rig, running
from tests.node.bed import Bed
from tests.node.pods import pod
from tests.node.pods import running as pods_running
from tests.waiting import until

pytestmark = [pytest.mark.node]


async def reachable(rig: Rig) -> None:
    await rig.outbox.wait_for(ApiRead, reachable=True)


async def test_a_server_that_is_killed(bed: Bed, tmp_path: Path) -> None:
    """A server that is gone for long is said to be, the pods stay known, and its return is noticed soon."""
    await pods_running(bed, pod("one", NODE))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"], "the pods are known")
        await reachable(rig)  # said after the list, when the rights are known too
        await bed.stop("kube-apiserver")
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, reachable=False)
        assert 2.9 <= trio.current_time() - began <= 6
        assert rig.names() == ["one"]
        await bed.start_api()
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, count=2, reachable=True)
        print(f"noticed {trio.current_time() - began:.2f} s after it was ready")
        await pods_running(bed, pod("two", NODE))
        await until(lambda: rig.names() == ["one", "two"], "the pods are known")
    assert [each.reachable for each in rig.outbox.of(ApiRead)] == [True, False, True]
    assert rig.outbox.of(ApiRead)[1].error.startswith("GET /api/v1/pods: ")


async def test_without_the_server_from_the_start(bed: Bed, tmp_path: Path) -> None:
    """What was known before is known again, with the API server gone from the start."""
    (made,) = await pods_running(bed, pod("one", NODE, priorityClassName="system-node-critical"))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"], "the pods are known")
    await bed.stop("kube-apiserver")
    async with running(bed.kubeconfig, tmp_path) as rig:
        known = await until(lambda: rig.edge.pods.find(made["metadata"]["uid"]), "the pod is known")
        assert known.priority == 2_000_001_000
        await rig.outbox.wait_for(ApiRead, reachable=False)
        await bed.start_api()
        await reachable(rig)
        assert rig.names() == ["one"]
