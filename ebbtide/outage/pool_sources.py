"""The sources of proof for each node, by its pool.

A row of `MACHINE_SOURCES` makes, once a pool, the function from a node to the source that reads its machine's
power (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof_sources.cluster_sources import (
    CONTRADICT,
    STATED,
    KubeletSource,
    StatementsEdge,
    StatementSource,
)
from ebbtide.actors.edges.proof_sources.ec2 import Credentials, Ec2, Ec2Source
from ebbtide.actors.edges.proof_sources.ipmi import Ipmi
from ebbtide.actors.edges.proof_sources.proof_source import (
    Check,
    Machine,
    PowerEdge,
    PowerSwitch,
    ProofSource,
    SourcesEdge,
)
from ebbtide.actors.edges.proof_sources.redfish import Redfish
from ebbtide.actors.edges.proof_sources.remediators import (
    KINDS,
    Machines,
    Remediations,
    Remediator,
    RemediatorSource,
)
from ebbtide.actors.interfaces import Clock, Edge
from ebbtide.outage.configuration import OutageConfiguration, Pool

#: From a node's name to its source, or None.
SourceOf = Callable[[str], ProofSource | None]


def _redfish(pool: Pool) -> SourceOf:
    def source(node: str) -> ProofSource | None:
        said = pool.redfish
        if said is None or not (url := said.address_of(node)):
            return None
        return Redfish(
            url=url,
            username_file=Path(said.username_file),
            password_file=Path(said.password_file),
            system=said.system_of(node),
            ca_file=Path(said.certificate) if said.certificate is not None else None,
            fingerprint=said.fingerprint,
            uuid_order=said.uuid_order,
        )

    return source


def _ipmi(pool: Pool) -> SourceOf:
    def source(node: str) -> ProofSource | None:
        said = pool.ipmi
        if said is None or not (host := said.address_of(node)):
            return None
        return Ipmi(
            host=host,
            port=said.port,
            username_file=Path(said.username_file),
            password_file=Path(said.password_file),
            cipher_suite=said.cipher_suite,
            privilege=said.privilege,
            guid_order=said.guid_order,
        )

    return source


def _ec2(pool: Pool) -> SourceOf:
    said = pool.cloud.ec2 if pool.cloud is not None else None
    if said is None:
        return lambda node: None
    file = Path(said.credentials_file) if said.credentials_file is not None else None
    credentials = Credentials(said.region, file, said.profile)
    # The pool's nodes share requests.
    source = Ec2Source(Ec2(said.region, credentials, said.endpoint, said.certificate))
    return lambda node: source


#: Order of the power switches.
MACHINE_SOURCES: tuple[Callable[[Pool], SourceOf], ...] = (_redfish, _ipmi, _ec2)


def machine_sources(pool: Pool) -> Callable[[str], list[ProofSource]]:
    """By node: the sources of its machine's power."""
    made = [make(pool) for make in MACHINE_SOURCES]
    return lambda node: [source for of in made if (source := of(node)) is not None]


def machine_of(view: ClusterView, node: str, node_uid: str) -> Machine | None:
    """As last read; None without this Node."""
    found = view.of(node).node
    if found is None or found.uid != node_uid:
        return None
    return Machine(found.name, found.uid, found.boot_id, found.system_uuid, found.provider_id)


def pool_of(configuration: OutageConfiguration, view: ClusterView, node: str) -> Pool:
    """By its present labels; a deleted Node has none."""
    found = view.of(node).node
    return configuration.pool_of(found.labels if found is not None else {})


def proof_edges(
    configuration: OutageConfiguration,
    view: ClusterView,
    clock: Clock,
    caller: ApiCaller,
    manager: ApiCaller | None = None,
) -> Callable[[str, str, Check], Sequence[Edge]]:
    """For a node by name and UID, with the check before a power-off. The pool is chosen when the node is
    suspected. ``manager``: the cluster with Cluster API's Machines; None: this one.
    """
    remediators: list[Remediator] = [Remediations(caller, name) for name in KINDS]
    remediators.append(Machines(caller if manager is None else manager, view))
    by_pool = {pool.name: machine_sources(pool) for pool in configuration.pools}

    def edges(node: str, node_uid: str, check: Check) -> Sequence[Edge]:
        pool = pool_of(configuration, view, node)
        stated = [
            StatementSource(each, view, node, node_uid)
            for each in STATED
            if each in pool.believe or each in CONTRADICT
        ]
        machine = by_pool[pool.name](node) if pool.name in by_pool else []
        sources: list[ProofSource] = [*stated, *machine]
        if pool.ask_kubelet:
            sources.append(KubeletSource(view, node))
        if "remediator" in pool.believe:
            sources += [RemediatorSource(each, view, node) for each in remediators]
        return (
            StatementsEdge(stated, view, node, clock),
            SourcesEdge(sources, lambda: machine_of(view, node, node_uid), clock),
            PowerEdge([each for each in machine if isinstance(each, PowerSwitch)], check),
        )

    return edges
