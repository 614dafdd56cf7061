"""Who is asked about a node: the edges of its pool's sources of proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof.kubelet import KubeletSource
from ebbtide.actors.edges.proof.sources import Machine, ProofSource, SourcesEdge
from ebbtide.actors.edges.proof.statements import STATED, StatementsEdge, StatementSource
from ebbtide.actors.interfaces import Clock, Edge
from ebbtide.outage.configuration import OutageConfiguration, Pool


def machine_of(view: ClusterView, node: str, node_uid: str) -> Machine | None:
    """As it was last read; None: that Node is not there."""
    found = view.of(node).node
    if found is None or found.uid != node_uid:
        return None
    return Machine(found.name, found.uid, found.boot_id, found.system_uuid, found.provider_id)


def pool_of(configuration: OutageConfiguration, view: ClusterView, node: str) -> Pool:
    """By the labels that it has now; of a Node that is gone, by none."""
    found = view.of(node).node
    return configuration.pool_of(found.labels if found is not None else {})


def sources_of(
    pool: Pool, view: ClusterView, node: str, node_uid: str
) -> tuple[list[StatementSource], list[ProofSource]]:
    """What stands on the Node itself, and who is asked beside it."""
    stated = [StatementSource(each, view, node, node_uid) for each in STATED if each in pool.believe]
    asked: list[ProofSource] = []
    if pool.ask_kubelet:
        asked.append(KubeletSource(view, node))
    return stated, asked


def proof_edges(
    configuration: OutageConfiguration, view: ClusterView, clock: Clock
) -> Callable[[str, str], Sequence[Edge]]:
    """For a node by its name and UID. Its pool is that of the labels that it has when it is suspected."""

    def edges(node: str, node_uid: str) -> Sequence[Edge]:
        stated, asked = sources_of(pool_of(configuration, view, node), view, node, node_uid)
        return (
            StatementsEdge(stated, view, node, clock),
            SourcesEdge([*stated, *asked], lambda: machine_of(view, node, node_uid), clock),
        )

    return edges
