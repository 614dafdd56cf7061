"""``ebbtide outage doctor``: would an outage of each node be recovered?

It reads the cluster with a person's rights, and asks the proof sources from here. `ebbtide.outage.checks`
judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click
from msgspec import Struct
from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes.api_calls import NODES_PATH, ApiNode, JsonObject, Unanswered, for_each
from ebbtide.actors.edges.kubernetes.config_maps import try_create
from ebbtide.actors.edges.kubernetes.known_pods import PodObject
from ebbtide.actors.edges.kubernetes.node_view import NodeView, other_first_uuid, project_node
from ebbtide.actors.edges.kubernetes.work_view import PODS_PATH, VOLUMES_PATH, WorkView
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, reading
from ebbtide.actors.edges.proof_sources.remediators import KINDS
from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import Heading, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.doctor import print_findings
from ebbtide.cli.outage.outage_common import (
    Cluster,
    Look,
    alive_by,
    ask_cluster,
    decoded,
    kubeconfig_option,
    leader_of,
    namespace_option,
    status_text,
)
from ebbtide.doctor.rules import Finding
from ebbtide.events.outage_events import EvidenceRead
from ebbtide.extras import require
from ebbtide.outage.checks import LOCAL_KINDS, ClusterCheck, NodeCheck, VolumeCheck, examine
from ebbtide.outage.configuration import OutageConfiguration, load_outage
from ebbtide.outage.first_uuids import read_first
from ebbtide.outage.permits import BUDGETS_PATHS, BudgetObject, etcd_allows, is_control_plane

EPILOG = """\b
Examples:
  ebbtide outage doctor --config outage.yaml
  ebbtide outage doctor --config outage.yaml -o json | jq '.findings[] | select(.level == "critical")'


Management controllers and clouds are asked from here, with the credentials that the configuration names: run
it where these files are, best in the controller's pod. It changes no object. Exit code 1: a finding is
critical.
"""


class NodeProof(Struct):
    """``proof``: the answers of its sources, such as ``redfish 10.0.0.7: on``."""

    name: Annotated[str, Heading("NODE")]
    pool: Annotated[str, Heading("POOL")]
    ready: Annotated[bool, Heading("READY")]
    proof: Annotated[str, Heading("PROOF")]


class OutageDiagnosis(Struct, kw_only=True, tag_field="kind", tag="OutageDiagnosis"):
    version: int = 1
    recoverable: bool
    findings: list[Finding]
    nodes: list[NodeProof]


def node_proof(node: NodeCheck) -> NodeProof:
    said = [f"{each.source} {each.name}: {each.error or each.verdict}" for each in node.sources]
    believed = ", ".join(node.pool.believe)
    stated = f"only statements on the Node ({believed})" if believed else "none"
    return NodeProof(node.name, node.pool.name, node.ready, "; ".join(said) or stated)


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The controller's OutageConfiguration (docs/outage-configuration.md).",
)
@kubeconfig_option
@namespace_option
@output_option("table", "json")
@click.pass_context
def doctor(
    ctx: click.Context, config: Path | None, kubeconfig: Path | None, namespace: str, output: str
) -> int:
    """Check whether an outage of each node would be recovered, with a cure for each problem."""
    require("node", "outage doctor")
    loaded = OutageConfiguration() if config is None else load_outage(config)
    given = ctx.get_parameter_source("namespace") is click.core.ParameterSource.COMMANDLINE
    where = namespace if given or config is None else loaded.namespace
    seen = ask_cluster(kubeconfig, lambda each: gather(each, loaded, where, configured=config is not None))
    findings = examine(seen)
    found = OutageDiagnosis(
        recoverable=not any(finding.level == "critical" for finding in findings),
        findings=findings,
        nodes=list(map(node_proof, seen.nodes)),
    )
    if output == "json":
        show_json(found)
    else:
        print_findings(findings, "ok: an outage of each node would be recovered")
        if found.nodes:
            show("")
            show(struct_table(found.nodes))
    return DONE if found.recoverable else NOT_SO


ACCOUNT = "ebbtide-outage"
OUR_POLICIES = ("ebbtide-outage-only-our-taints", "ebbtide-outage-only-our-journals")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
STORAGE = "/apis/storage.k8s.io/v1"
LEASES_NAMESPACE = "kube-node-lease"
NOTHING_SAID = "it reports nothing about this node"
#: RBAC's refusal; a quota's has the same code.
NO_RIGHT = "cannot create resource"


class Right(NamedTuple):
    """``namespace``: empty everywhere, ``own`` the controller's."""

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
    """``get, list nodes`` for each resource."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.what, []).append(right.verb)
    return tuple(f"{', '.join(found)} {what}" for what, found in verbs.items())


def rights(namespace: str) -> list[Right]:
    """As in ``deploy/kubernetes/outage/role.yaml``: a test compares them."""
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
    """As in ``deploy/kubernetes/outage/remediators``, for installed remediators that a pool believes.
    Machines in another cluster are not checked.
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
    drivers = dict(
        await look.some(
            f"{STORAGE}/csinodes",
            dict[str, Any],
            lambda node: (_name(node), tuple(map(itemgetter("name"), node["spec"].get("drivers") or ()))),
        )
    )
    # Without a readable CSINode there is no finding.
    unknown = bool(look.unseen)
    try:
        first = (await read_first(cluster.caller, namespace))[1]
    except OSError as error:
        first = {}
        look.unseen.append(str(error.strerror))
    checks = await _nodes(nodes, configuration, None if unknown else drivers, first)
    views = await look.some(PODS_PATH, PodObject, WorkView().project_pod)
    tolerating = tuple(
        f"{pod.namespace}/{pod.name}"
        for pod in views
        if configuration.effect in pod.tolerates and not pod.daemon and not pod.over
    )
    volumes = await look.some(VOLUMES_PATH, dict[str, Any], volume_check)
    attached = await look.some(
        f"{STORAGE}/csidrivers",
        dict[str, Any],
        lambda driver: (_name(driver), driver["spec"].get("attachRequired", True)),
    )
    leading = await leader_of(cluster, namespace)
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    before = len(look.unseen)
    policies = [await look.one(f"{path}/{name}") for path in (POLICIES, BINDINGS) for name in OUR_POLICIES]
    policy = None if len(look.unseen) > before else None not in policies
    apis = await look.one("/apis") or {}
    groups = tuple(str(each.get("name")) for each in apis.get("groups") or ())
    version = await look.one("/version") or {}
    numbers = [re.match(r"\d+", str(version.get(name, ""))) for name in ("major", "minor")]
    major, minor = (int(each[0]) if each else 0 for each in numbers)
    listed = [await look.some(path, BudgetObject, lambda budget: budget) for path in BUDGETS_PATHS]
    masters = {each.name for each in nodes if is_control_plane(each)}
    # Any node may go: no member counts as down.
    members = [replace(each, ready=True) for each in views if each.node in masters]
    return ClusterCheck(
        version=(major, minor),
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
        attached=dict(attached),
        configuration=configuration,
        configured=configured,
        etcd=etcd_allows(chain(*listed), members),
        unseen=tuple(look.unseen),
    )


async def _create(cluster: Cluster, look: Look, namespace: str) -> str:
    """Why no journal could be created now, in the server's own words."""
    try:
        answer = await try_create(cluster.caller, namespace)
    except Unanswered as error:
        return str(error)
    said = status_text(answer.body)
    if NO_RIGHT in said:
        # Our right is missing, not the controller's.
        look.unseen.append(said)
        return ""
    return "" if answer.ok else f"{answer.code} {said}".rstrip()


async def _denied(
    cluster: Cluster, account: str, namespace: str, asked: list[Right]
) -> tuple[str, ...] | None:
    """None: we may not ask."""
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


def _name(found: JsonObject) -> str:
    return str(found["metadata"]["name"])


def volume_check(volume: JsonObject) -> VolumeCheck | None:
    """None: not bound."""
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
    """One reading of each source of a node's pool shows whether it answers; a proof takes two."""
    sources = {pool.name: pool.machine_sources() for pool in configuration.pools}

    async def one(view: NodeView) -> NodeCheck:
        pool = configuration.pool_of(view.labels)
        machine = Machine(view.name, view.uid, view.boot_id, view.system_uuid, view.provider_id)
        answers = list[EvidenceRead]()
        for each in sources[pool.name](view.name) if pool.name in sources else ():
            said = await reading(each, machine) or Said("unknown", error=NOTHING_SAID)
            answers.append(EvidenceRead(source=each.source, name=each.name, begun_ns=0, **said._asdict()))
        return NodeCheck(
            view=view,
            pool=pool,
            drivers=() if drivers is None else drivers.get(view.name),
            alive=alive_by(view),
            first_uuid=other_first_uuid(first, view),
            sources=tuple(answers),
        )

    return await for_each(nodes, one)
