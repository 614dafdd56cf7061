"""A node's proof sources, from its pool and its current state."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.proof_sources.proof_edges import SourcesEdge
from ebbtide.actors.edges.proof_sources.proof_source import Machine
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events.outage_events import PowerOff
from ebbtide.outage.configuration import parse_outage
from ebbtide.outage.pool_sources import machine_of, machine_sources, proof_edges
from tests.actors.edges.proof_sources.test_statements import Clock

HEAD = "apiVersion: ebbtide/v1alpha1\nkind: OutageConfiguration\n"
POOLS = HEAD + (
    "pools:\n- {name: a, nodeSelector: {k: v}, askKubelet: false, believe: [declared]}\n"
    "- {name: b, believe: []}\n"
)
NODE = NodeView("n", "u", "1", "b1", "Unknown", "uuid", "aws:///z/i-1", "none", (), "", {"k": "v"})


class Nobody:
    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        raise AssertionError("nobody is asked")


async def never(order: PowerOff, outlet: Outlet) -> Ending | None:
    raise AssertionError("nothing is switched off")


def view_of(*nodes: NodeView) -> ClusterView:
    view = ClusterView()
    view.nodes.replace(list(nodes), "1")
    return view


@pytest.mark.parametrize(("text", "labels", "expected"), [
    (HEAD, {}, ["peer", "cloud-taint", "certificate", "declared", "kubelet"]),
    (POOLS, {"k": "v"}, ["peer", "declared"]),
    (POOLS, {}, ["peer", "kubelet"]),
    (HEAD + "pools: [{name: a, believe: [remediator]}]", {},
     ["peer", "kubelet", "remediator", "remediator", "remediator"]),
    (HEAD + "pools: [{name: a, believe: [], cloud: {ec2: {region: eu-west-1}}}]", {},
     ["peer", "cloud", "kubelet"]),
])  # fmt: skip
async def test_the_sources_are_those_of_the_nodes_pool(
    text: str, labels: dict[str, str], expected: list[str]
) -> None:
    """By labels. Contradictions count from any source."""
    view = view_of(NODE._replace(labels=labels))
    edges = proof_edges(parse_outage("a.yaml", text.encode()), view, Clock(), Nobody())("n", "u", never)
    (reading,) = [each for each in edges if isinstance(each, SourcesEdge)]
    assert [each.source for each in reading._sources] == expected


CONTROLLERS = HEAD + (
    "pools:\n- name: a\n"
    "  redfish: {address: 'https://{node}-bmc.example',\n"
    "    system: 's-{node}', fingerprint: '" + ":".join(["aB"] * 32) + "', uuidOrder: swapped,\n"
    "    usernameFile: /u, passwordFile: /p}\n"
    "  ipmi: {addresses: {n-1: 'fd00::1'}, port: 624, usernameFile: /u, passwordFile: /p, cipherSuite: 3,\n"
    "    guidOrder: rfc}\n"
)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("n-1", [("redfish", "n-1-bmc.example"), ("ipmi", "[fd00::1]:624")]),
        ("n-3", [("redfish", "n-3-bmc.example")]),
    ],
)
def test_the_management_controllers_are_those_of_the_node(node: str, expected: list[tuple[str, str]]) -> None:
    """By name; without an address none is asked."""
    (pool,) = parse_outage("a.yaml", CONTROLLERS.encode()).pools
    assert [(each.source, each.name) for each in machine_sources(pool)(node)] == expected


async def test_the_machine_is_as_the_node_says_it_now() -> None:
    """A missing or recreated Node has no machine to ask."""
    assert machine_of(view_of(NODE), "n", "u") == Machine("n", "u", "b1", "uuid", "aws:///z/i-1")
    assert machine_of(view_of(NODE), "n", "v") is None
    assert machine_of(view_of(), "n", "u") is None
