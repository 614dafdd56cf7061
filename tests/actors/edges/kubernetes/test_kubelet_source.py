"""A real kubelet, asked whether it is there, by what its own Node says."""

from __future__ import annotations

import pytest
import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof_sources.kubelet_source import KubeletSource
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from tests.actors.edges.kubernetes.rig import NODE, linked
from tests.actors.edges.kubernetes.rights import CLUSTER_RULES, LEASE_RULES, granted
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-outage-kubelet"
LISTED_SECONDS_MAX = 20.0


async def test_a_real_kubelet_is_there(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its address and its port; at a port where nobody listens, nobody says anything."""
    # The bed's node has a network of its own, and this process is not in it.
    monkeypatch.setattr(trio, "open_tcp_stream", bed.connect)
    rights = await granted(bed, ACCOUNT, [], CLUSTER_RULES, {"kube-node-lease": LEASE_RULES})
    async with linked(rights) as link, trio.open_nursery() as nursery:
        view = ClusterView()
        nursery.start_soon(view.run, link)
        with trio.fail_after(LISTED_SECONDS_MAX):
            await view.listed()
        nursery.cancel_scope.cancel()
    node = view.of(NODE).node
    assert node is not None
    machine = Machine(NODE, node.uid, node.boot_id, node.system_uuid, node.provider_id)
    source = KubeletSource(view, NODE)
    assert await source.read(machine) == Said("on", "nodeUID", node.uid)
    view.nodes.put(node._replace(port=1, version=str(int(node.version) + 10**6)))
    said = await source.read(machine)
    assert said is not None
    assert said.verdict == "unknown"
    assert "refused" in said.error
