"""Reads the cluster for `ebbtide.outage.checks`, with a person's rights, and asks the proof sources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes.api_calls import NODES_PATH, ApiNode, JsonObject, Unanswered, for_each
from ebbtide.actors.edges.kubernetes.config_maps import try_create
from ebbtide.actors.edges.kubernetes.known_pods import PodObject
from ebbtide.actors.edges.kubernetes.node_view import NodeView, other_first_uuid, project_node
from ebbtide.actors.edges.kubernetes.work_view import PODS_PATH, VOLUMES_PATH, WorkView
from ebbtide.actors.edges.proof_sources.proof_source import Machine, ProofSource, reading
from ebbtide.actors.edges.proof_sources.remediators import KINDS
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import (
    Cluster,
    Look,
    alive_by,
    decoded,
    leader_of,
    status_text,
)
from ebbtide.outage.checks import LOCAL_KINDS, ClusterCheck, NodeCheck, SourceCheck, VolumeCheck
from ebbtide.outage.configuration import OutageConfiguration
from ebbtide.outage.first_uuids import read_first
from ebbtide.outage.permits import BUDGETS_PATH, BudgetObject, etcd_allows, is_control_plane, project_budget

ACCOUNT = "ebbtide-outage"
OUR_POLICIES = ("ebbtide-outage-only-our-taints", "ebbtide-outage-only-our-journals")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
STORAGE = "/apis/storage.k8s.io/v1"
LEASES_NAMESPACE = "kube-node-lease"
#: RBAC's refusal; a quota's has the same code.
NO_RIGHT = "cannot create resource"


class Right(NamedTuple):
    """One of the controller's requests. ``namespace``: ``""`` everywhere, ``own`` the controller's."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource}{f' {self.name}' if self.name else ''}{where}"


def rights_text(rights: Iterable[Right]) -> tuple[str, ...]:
    """``get, list nodes``, one for each resource."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.what, []).append(right.verb)
    return tuple(f"{', '.join(found)} {what}" for what, found in verbs.items())


def rights(namespace: str) -> list[Right]:
    """The rights in ``deploy/kubernetes/outage/role.yaml``: a test compares them."""
    leases = "coordination.k8s.io"
    return [
        *(Right(verb, "nodes") for verb in ("get", "list", "watch", "patch")),
        *(Right(verb, each) for each in ("pods", "persistentvolumes") for verb in ("list", "watch")),
        *(Right(verb, "volumeattachments", "storage.k8s.io") for verb in ("list", "watch")),
        Right("create", "events"),
        Right("list", "poddisruptionbudgets", "policy"),
        *(Right("get", each, "apps") for each in ("statefulsets", "replicasets")),
        Right("get", "jobs", "batch"),
        Right("get", "replicationcontrollers"),
        *(Right(verb, "leases", leases, LEASES_NAMESPACE) for verb in ("get", "list", "watch")),
        *(Right(verb, "configmaps", "", namespace) for verb in ("get", "list", "create", "delete")),
        Right("create", "leases", leases, namespace),
        *(Right(verb, "leases", leases, namespace, ACCOUNT) for verb in ("get", "update")),
    ]


def remediator_rights(configuration: OutageConfiguration, groups: tuple[str, ...]) -> list[Right]:
    """The needed rights in ``deploy/kubernetes/outage/remediators``: for installed remediators that a pool
    believes. Machines in another cluster are not checked.
    """
    places = [path.split("/") for path, _ in KINDS.values()]
    wanted = [Right("list", plural, group) for _, _, group, _, plural in places]
    if configuration.cluster_api.kubeconfig is None:
        wanted.append(Right("get", "machines", "cluster.x-k8s.io"))
    believed = any("remediator" in pool.believe for pool in configuration.pools)
    return [right for right in wanted if believed and right.group in groups]


async def gather(
    cluster: Cluster, configuration: OutageConfiguration, namespace: str, *, configured: bool
) -> ClusterCheck:
    """Raises Refused if even the Nodes cannot be listed."""
    look = Look(cluster)
    nodes = await cluster.some(NODES_PATH, ApiNode, project_node)
    drivers = dict(await look.some(f"{STORAGE}/csinodes", dict[str, Any], drivers_of))
    # Without a readable CSINode there is no finding.
    unknown = bool(look.unseen)
    first = await look.may(partial(_first_uuids, cluster, namespace)) or {}
    checks = await _nodes(nodes, configuration, None if unknown else drivers, first)
    views = await look.some(PODS_PATH, PodObject, WorkView().project_pod)
    tolerating = tuple(
        f"{pod.namespace}/{pod.name}"
        for pod in views
        if configuration.effect in pod.tolerates and not pod.daemon and not pod.over
    )
    volumes = await look.some(VOLUMES_PATH, dict[str, Any], volume_check)
    attached = dict(await look.some(f"{STORAGE}/csidrivers", dict[str, Any], attachment_of))
    leading = await leader_of(cluster, namespace)
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    before = len(look.unseen)
    policies = [await look.one(f"{path}/{name}") for path in (POLICIES, BINDINGS) for name in OUR_POLICIES]
    policy = None if len(look.unseen) > before else None not in policies
    apis = await look.one("/apis") or {}
    groups = tuple(str(each.get("name")) for each in apis.get("groups") or ())
    version = await look.one("/version") or {}
    budgets = await look.some(BUDGETS_PATH, BudgetObject, project_budget)
    masters = {each.name for each in nodes if is_control_plane(each)}
    # Which node goes is open: no member counts as down.
    members = [replace(each, ready=True) for each in views if each.node in masters]
    return ClusterCheck(
        version=_numbers(version),
        nodes=tuple(checks),
        leader=leading.holder,
        blocked=leading.blocked,
        paused=leading.paused(),
        create=await _create(cluster, look, namespace),
        account=account,
        denied=await _denied(cluster, account, namespace, rights(namespace)),
        unread=await _denied(cluster, account, namespace, remediator_rights(configuration, groups)) or (),
        policy=policy,
        groups=groups,
        tolerating=tolerating,
        volumes=tuple(each for each in volumes if each is not None),
        attached=attached,
        configuration=configuration,
        configured=configured,
        etcd=etcd_allows(budgets, members),
        unseen=tuple(look.unseen),
    )


async def _first_uuids(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Raises Refused."""
    try:
        return (await read_first(cluster.caller, namespace))[1]
    except OSError as error:
        raise Refused(str(error.strerror)) from None


async def _create(cluster: Cluster, look: Look, namespace: str) -> str:
    """Why no journal could be created now, in the server's own words."""
    try:
        answer = await try_create(cluster.caller, namespace)
    except Unanswered as error:
        return str(error)
    said = status_text(answer.body)
    if NO_RIGHT in said:
        # Ours, not the controller's.
        look.unseen.append(said)
        return ""
    return "" if answer.ok else f"{answer.code} {said}".rstrip()


def _numbers(version: JsonObject) -> tuple[int, int]:
    """(0, 0) for none."""
    major, minor = (re.match(r"\d+", str(version.get(name, ""))) for name in ("major", "minor"))
    return int(major[0]) if major else 0, int(minor[0]) if minor else 0


async def _denied(
    cluster: Cluster, account: str, namespace: str, asked: list[Right]
) -> tuple[str, ...] | None:
    """The missing rights of the account; None: we may not ask."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]

    async def one(right: Right) -> bool | None:
        what = {each: value for each, value in right._asdict().items() if value}
        spec = {"user": account, "groups": groups, "resourceAttributes": what}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await cluster.call("POST", REVIEWS, body)
        if not answer.ok:
            return None
        return bool(decoded(answer, "review", dict[str, Any])["status"]["allowed"])

    answers = await for_each(asked, one)
    if None in answers:
        return None
    return rights_text(right for right, allowed in zip(asked, answers, strict=True) if not allowed)


def drivers_of(node: JsonObject) -> tuple[str, tuple[str, ...]]:
    """Of a CSINode."""
    return node["metadata"]["name"], tuple(found["name"] for found in node["spec"].get("drivers") or ())


def attachment_of(driver: JsonObject) -> tuple[str, bool]:
    """Of a CSIDriver: does it attach its volumes?"""
    return driver["metadata"]["name"], driver["spec"].get("attachRequired", True)


def volume_check(volume: JsonObject) -> VolumeCheck | None:
    """The checked part of a bound PersistentVolume."""
    if (volume.get("status") or {}).get("phase") != "Bound":
        return None
    spec = volume["spec"]
    kind = next((each for each in (*LOCAL_KINDS, "csi") if each in spec), "other")
    owner = spec.get("claimRef") or {}
    label = f"{owner.get('namespace')}/{owner.get('name')}" if owner else ""
    return VolumeCheck(
        volume["metadata"]["name"], label, kind, spec["csi"]["driver"] if kind == "csi" else ""
    )


async def _nodes(
    nodes: list[NodeView],
    configuration: OutageConfiguration,
    drivers: dict[str, tuple[str, ...]] | None,
    first: dict[str, str],
) -> list[NodeCheck]:
    """Each with the answers of its pool's sources."""
    sources = {pool.name: pool.machine_sources() for pool in configuration.pools}

    async def one(view: NodeView) -> NodeCheck:
        pool = configuration.pool_of(view.labels)
        asked = sources[pool.name](view.name) if pool.name in sources else []
        machine = Machine(view.name, view.uid, view.boot_id, view.system_uuid, view.provider_id)
        return NodeCheck(
            view=view,
            pool=pool,
            drivers=() if drivers is None else drivers.get(view.name),
            alive=alive_by(view),
            first_uuid=other_first_uuid(first, view),
            sources=tuple([await _asked(each, machine) for each in asked]),
        )

    return await for_each(nodes, one)


async def _asked(source: ProofSource, machine: Any) -> SourceCheck:
    """Once: a proof takes two readings, but one shows whether the source answers."""
    if (said := await reading(source, machine)) is None:
        return SourceCheck(source.source, source.name, error="it reports nothing about this node")
    return SourceCheck(
        source.source, source.name, said.verdict, said.identity_kind, said.identity, said.error
    )
