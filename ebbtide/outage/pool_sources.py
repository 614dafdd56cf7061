"""Who is asked about a node, and who switches its machine off: the edges of its pool's sources of proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof.cloud import Credentials, Ec2, Ec2Source
from ebbtide.actors.edges.proof.ipmi import Ipmi
from ebbtide.actors.edges.proof.kubelet_source import KubeletSource
from ebbtide.actors.edges.proof.power import Check, PowerEdge
from ebbtide.actors.edges.proof.redfish import Redfish
from ebbtide.actors.edges.proof.remediators import (
    KINDS,
    Machines,
    Remediations,
    Remediator,
    RemediatorSource,
)
from ebbtide.actors.edges.proof.sources import Machine, ProofSource, SourcesEdge
from ebbtide.actors.edges.proof.statements import CONTRADICT, STATED, StatementsEdge, StatementSource
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
    pool: Pool,
    view: ClusterView,
    node: str,
    node_uid: str,
    remediations: Sequence[Remediator],
    ec2: Ec2 | None = None,
) -> tuple[list[StatementSource], list[ProofSource]]:
    """What stands on the Node itself, and who is asked beside it."""
    wanted = [each for each in STATED if each in pool.believe or each in CONTRADICT]
    stated = [StatementSource(each, view, node, node_uid) for each in wanted]
    asked: list[ProofSource] = []
    if pool.ask_kubelet:
        asked.append(KubeletSource(view, node))
    if ec2 is not None:
        asked.append(Ec2Source(ec2))
    if "remediator" in pool.believe:
        asked += [RemediatorSource(each, view, node) for each in remediations]
    return stated, asked


def ec2_of(pool: Pool) -> Ec2 | None:
    """One for all nodes of a pool: they are asked for together."""
    said = pool.cloud.ec2 if pool.cloud is not None else None
    if said is None:
        return None
    file = Path(said.credentials_file) if said.credentials_file is not None else None
    credentials = Credentials(said.region, file, said.profile)
    return Ec2(said.region, credentials, said.endpoint, said.certificate)


def controllers_of(pool: Pool, node: str) -> list[Redfish | Ipmi]:
    """The management controllers that the node's machine has: read from, and switched off by."""
    found: list[Redfish | Ipmi] = []
    if pool.redfish is not None and (url := pool.redfish.address_of(node)):
        said = pool.redfish
        found.append(
            Redfish(
                url=url,
                username_file=Path(said.username_file),
                password_file=Path(said.password_file),
                system=said.system_of(node),
                ca_file=Path(said.certificate) if said.certificate is not None else None,
                fingerprint=said.fingerprint,
                # Of the loopback alone, as the configuration has it.
                insecure=url.startswith("http://"),
                uuid_order=said.uuid_order,
            )
        )
    if pool.ipmi is not None and (address := pool.ipmi.address_of(node)):
        host, port = address
        found.append(
            Ipmi(
                host=host,
                port=port,
                username_file=Path(pool.ipmi.username_file),
                password_file=Path(pool.ipmi.password_file),
                cipher_suite=pool.ipmi.cipher_suite,
                privilege=pool.ipmi.privilege,
                guid_order=pool.ipmi.guid_order,
            )
        )
    return found


def proof_edges(
    configuration: OutageConfiguration,
    view: ClusterView,
    clock: Clock,
    caller: ApiCaller,
    manager: ApiCaller | None = None,
) -> Callable[[str, str, Check], Sequence[Edge]]:
    """For a node by its name and UID, with what reads it again before its machine is switched off. Its pool
    is that of the labels that it has when it is suspected. ``manager``: of the cluster where Cluster API's
    Machines are; None: it is this one.
    """
    remediations: list[Remediator] = [Remediations(caller, name) for name in KINDS]
    remediations.append(Machines(caller if manager is None else manager, view))
    clouds = {pool.name: ec2_of(pool) for pool in configuration.pools}

    def edges(node: str, node_uid: str, check: Check) -> Sequence[Edge]:
        pool = pool_of(configuration, view, node)
        stated, asked = sources_of(pool, view, node, node_uid, remediations, clouds.get(pool.name))
        controllers = controllers_of(pool, node)
        return (
            StatementsEdge(stated, view, node, clock),
            SourcesEdge([*stated, *asked, *controllers], lambda: machine_of(view, node, node_uid), clock),
            PowerEdge(controllers, check),
        )

    return edges
