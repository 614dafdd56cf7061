"""``ebbtide outage explain``: why a pod is still Terminating, from what the API server has now.

No controller has to run, and no journal is read: what is asked for is gathered here, and judged in `reasons`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
from ebbtide.cli.common.output import NarrowTable, pairs, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    NAMESPACE_NAME,
    NODE_NAME,
    POD_NAME,
    Cluster,
    age_seconds,
    ago,
    alive_by,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    leader_of,
    namespace_option,
    ready_text,
)
from ebbtide.cli.outage.reasons import (
    AttachmentScene,
    Cause,
    NodeScene,
    PodScene,
    Scene,
    causes,
    timer_text,
)
from ebbtide.events.messages import plural
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.actors.edges.kubernetes.api_calls import JsonObject
    from ebbtide.actors.edges.kubernetes.node_view import NodeView

T = TypeVar("T")

EXPLANATION_VERSION = 1
#: A node has a hundred pods, and what is told is to fit on one screen: so many causes of one code, and rows.
ALIKE_MAX, ROWS_MAX = 3, 20
#: Beside others these say that all is well.
WELL = ("nothing-hangs",)

EPILOG = """\b
Examples:
  ebbtide outage explain shop/db-0
  ebbtide outage explain worker-2
  ebbtide outage explain shop/db-0 -o json | jq -r '.causes[0].code'


Asks for pods, Nodes, leases, PersistentVolumes and their claims, and VolumeAttachments; what you may not see
is named and left out. Exit code 1: something hangs.
"""


# --- what is there -------------------------------------------------------------------------------------


def pod_scene(pod: JsonObject, *, asked: bool) -> PodScene:
    """Raises ValueError for what is no pod."""
    import msgspec

    from ebbtide.actors.edges.kubernetes.pod_object import PodObject
    from ebbtide.actors.edges.kubernetes.work_view import WorkView

    view = WorkView().project_pod(msgspec.convert(pod, PodObject))
    deleted = pod["metadata"].get("deletionTimestamp")
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return PodScene(
        label=f"{view.namespace}/{view.name}",
        node=view.node,
        owner=view.owner,
        deleted=None if deleted is None else age_seconds(deleted, signed=True),
        finalizers=view.finalizers,
        running=any("running" in (each.get("state") or {}) for each in statuses),
        ready=view.ready,
        waiting=view.waiting,
        tolerates=view.tolerates,
        daemon=view.daemon,
        claims=view.claims,
        asked=asked,
    )


def attachment_scene(
    attachment: JsonObject, volume: JsonObject | None, node: NodeScene | None
) -> AttachmentScene:
    """``volume``: its PersistentVolume. ``node``: the one asked about. Raises ValueError."""
    import msgspec

    from ebbtide.actors.edges.kubernetes.work_view import (
        AttachmentObject,
        VolumeObject,
        WorkView,
        project_volume,
    )

    view = WorkView().project_attachment(msgspec.convert(attachment, AttachmentObject))
    found = project_volume(msgspec.convert(volume, VolumeObject)) if volume is not None else None
    deleted = attachment["metadata"].get("deletionTimestamp")
    said = (attachment.get("status") or {}).get("detachError") or {}
    unique_name = found.unique_name if found is not None else ""
    is_mine = node is not None and node.name == view.node
    return AttachmentScene(
        name=view.name,
        node=view.node,
        volume=view.volume or view.name,
        driver=view.driver,
        claim=found.claim if found is not None else "",
        deleting=None if deleted is None else age_seconds(deleted),
        finalizers=tuple(attachment["metadata"].get("finalizers") or ()),
        error=str(said.get("message") or ""),
        in_use=unique_name in node.volumes_in_use if node is not None and is_mine and unique_name else None,
    )


def not_declared(view: NodeView, lease_mark: str) -> str:
    """Why the statement on this Node does not count, in the controller's words; empty where it may."""
    from ebbtide.actors.outage_proof import OTHER_BOOT, OTHER_MACHINE, OUTLIVED

    said = view.declared
    if said is None:
        return ""
    if said.problem:
        return said.problem
    if said.node_uid != view.uid:
        return OTHER_MACHINE
    if said.boot_id != view.boot_id:
        return OTHER_BOOT
    return "" if said.mark and said.mark == lease_mark else OUTLIVED


async def node_scene(cluster: Cluster, name: str) -> NodeScene:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path
    from ebbtide.actors.edges.kubernetes.node_view import (
        OUT_OF_SERVICE,
        ApiLease,
        lease_path,
        project_lease,
        project_node,
    )

    node = await cluster.one(node_path(name), ApiNode)
    if node is None:
        return NodeScene(name, there=False)
    view = project_node(node)
    lease = await cluster.one(lease_path(name), ApiLease)
    mark = project_lease(lease).mark if lease is not None else ""
    objection = not_declared(view, mark)
    said = view.declared if not objection else None
    effects = [str(each.get("effect")) for each in node.spec.taints if each.get("key") == OUT_OF_SERVICE]
    return NodeScene(
        name,
        ready=ready_text(node.status.conditions),
        heard=ago(mark) if mark else "",
        taint=view.taint,
        effect=effects[0] if effects else "",
        declared=said.by if said is not None else "",
        declared_seconds=said.seconds if said is not None else 0,
        not_declared=objection,
        alive=alive_by(view),
        volumes_in_use=view.volumes_in_use,
    )


class _Look:
    """Gathers; what may not be seen is remembered, and taken for nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.unseen: list[str] = []

    async def some(self, path: str, **fields: object) -> list[JsonObject]:
        try:
            return await self.cluster.some(path, dict[str, Any], **fields)
        except Refused as error:
            self.unseen.append(error.message)
            return []

    async def one(self, path: str) -> JsonObject | None:
        try:
            return await self.cluster.one(path, dict[str, Any])
        except Refused as error:
            self.unseen.append(error.message)
            return None


async def gather(cluster: Cluster, subject: str, namespace: str) -> Scene:
    """Of a Node by its name, or of ``namespace/pod``. Raises Refused."""
    from urllib.parse import quote

    from ebbtide.actors.edges.kubernetes.api_calls import pod_path
    from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, PODS_PATH, VOLUMES_PATH

    look = _Look(cluster)
    pod_namespace, is_pod, pod_name = subject.partition("/")
    asked: JsonObject | None = None
    node_name = subject
    if is_pod:
        asked = await cluster.one(pod_path(pod_namespace, pod_name), dict[str, Any])
        if asked is None:
            raise Refused(f"there is no pod {subject}: 'kubectl get pods -n {pod_namespace}' lists them")
        node_name = (asked.get("spec") or {}).get("nodeName") or ""
    node = await node_scene(cluster, node_name) if node_name else None
    pods = await look.some(PODS_PATH, fieldSelector=f"spec.nodeName={node_name}") if node_name else []
    if node is not None and not node.there and not is_pod and not pods:
        raise Refused(f"there is no Node {subject}, and no pod on it: a pod is named NAMESPACE/POD")
    if asked is not None:
        pods = [each for each in pods if each["metadata"]["uid"] != asked["metadata"]["uid"]]
    scenes = [pod_scene(each, asked=not is_pod) for each in pods]
    scenes += [pod_scene(asked, asked=True)] if asked is not None else []
    attachments = await look.some(ATTACHMENTS_PATH)
    volumes = await _volumes_of(look, [each for each in scenes if each.asked] if is_pod else [])
    found = []
    for each in attachments:
        name = (each["spec"].get("source") or {}).get("persistentVolumeName") or ""
        if name in volumes or (not is_pod and each["spec"].get("nodeName") == node_name):
            if name and name not in volumes:
                volumes[name] = await look.one(f"{VOLUMES_PATH}/{quote(name)}")
            found.append(attachment_scene(each, volumes.get(name), node))
    leader = await leader_of(cluster, namespace)
    return Scene(subject, node, tuple(scenes), tuple(found), leader, tuple(dict.fromkeys(look.unseen)))


async def _volumes_of(look: _Look, pods: list[PodScene]) -> dict[str, JsonObject | None]:
    """The PersistentVolumes of these pods' claims, by name."""
    from urllib.parse import quote

    from ebbtide.actors.edges.kubernetes.work_view import VOLUMES_PATH

    names = []
    for bound in dict.fromkeys(claim for pod in pods for claim in pod.claims):
        namespace, _, name = bound.partition("/")
        path = f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}"
        found = await look.one(path)
        names += [found["spec"]["volumeName"]] if found and found["spec"].get("volumeName") else []
    return {name: await look.one(f"{VOLUMES_PATH}/{quote(name)}") for name in names}


# --- how it is told ------------------------------------------------------------------------------------


def pod_text(pod: PodScene) -> str:
    """What its object says, in a word or two."""
    if pod.deleted is None:
        return "Ready" if pod.ready else pod.waiting or "not Ready"
    parts = [
        f"Terminating for {short_span(pod.deleted)}" if pod.deleted >= 0 else "Terminating, in its grace"
    ]
    parts += [f"finalizers: {', '.join(pod.finalizers)}"] if pod.finalizers else []
    parts += [f"tolerates {', '.join(pod.tolerates)}"] if pod.tolerates else []
    return "; ".join(parts)


def attachment_text(attachment: AttachmentScene) -> str:
    """The same of an attachment."""
    if attachment.deleting is None:
        state = "attached"
    else:
        state = f"being detached for {short_span(attachment.deleting)}"
    used = {True: "; the kubelet said that it is mounted", False: "; the kubelet has unmounted it", None: ""}
    return f"{state}{used[attachment.in_use]}"


def lines(scene: Scene, found: list[Cause]) -> Iterator[RenderableType]:
    """All that is shown: the cause, what can be done, what else holds, and what there is."""
    shown: Counter[str] = Counter()
    for at, cause in enumerate(found):
        shown[cause.code] += 1
        if shown[cause.code] > ALIKE_MAX:
            continue
        yield pairs([("also" if at else "cause", cause.text)])
        if cause.do:
            yield pairs((f"  {number}.  ", step) for number, step in enumerate(cause.do, 1))
    for code, count in shown.items():
        if count > ALIKE_MAX:
            yield f"and {count - ALIKE_MAX} more of {code}: see them all with -o json"
    yield ""
    node = scene.node
    if node is not None:
        taint = f"out-of-service taint: {node.taint}" + (f" ({node.effect})" if node.effect else "")
        rows = [("node", f"{node.name}: {node.ready if node.there else 'gone'}; {taint}")]
        counts = f", for {short_span(node.declared_seconds)}" if node.declared_seconds else ""
        told = f"off, by {node.declared}{counts} from when the controller has read it"
        rows += [("declared", told)] if node.declared else []
        rows += [("not declared", f"what stands there does not count: {node.not_declared}")] * bool(
            node.not_declared
        )
        rows += [("declared", f"alive, by {node.alive}")] if node.alive else []
        leader = {None: "cannot be seen", "": "nobody leads"}.get(scene.leader, scene.leader)
        rows.append(("controller", str(leader)))
        yield pairs([*rows, *(("not seen", each) for each in scene.unseen)])
    pods = [each for each in scene.asked if each.deleted is not None or "/" in scene.subject]
    if pods:
        yield ""
        listed = [(each.label, each.owner, pod_text(each)) for each in pods[:ROWS_MAX]]
        yield NarrowTable(("POD", "OWNER", "IS"), listed)
        if pods[ROWS_MAX:]:
            yield f"and {plural(len(pods) - ROWS_MAX, 'pod')} more: see them all with -o json"
    if scene.attachments:
        yield ""
        rows_of = [
            (each.volume, each.node, each.driver, attachment_text(each), timer_text(scene, each))
            for each in scene.attachments[:ROWS_MAX]
        ]
        yield NarrowTable(("VOLUME", "ATTACHED TO", "DRIVER", "IS", "SIX-MINUTE TIMER"), rows_of)
        if scene.attachments[ROWS_MAX:]:
            yield f"and {plural(len(scene.attachments) - ROWS_MAX, 'volume')} more: see them all with -o json"
        if any(row[-1] for row in rows_of):
            yield "whether the timer is disabled (disable-force-detach-on-timeout) no API says"


def document(scene: Scene, found: list[Cause]) -> dict[str, Any]:
    """``kind: OutageExplanation``."""
    return {
        "kind": "OutageExplanation",
        "version": EXPLANATION_VERSION,
        "subject": scene.subject,
        "causes": [{"code": each.code, "text": each.text, "do": list(each.do)} for each in found],
        "node": None if scene.node is None else scene.node._asdict(),
        "pods": [each._asdict() for each in scene.asked],
        "attachments": [{**each._asdict(), "timer": timer_text(scene, each)} for each in scene.attachments],
        "leader": scene.leader,
        "unseen": list(scene.unseen),
    }


class Subject(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``NODE`` or ``NAMESPACE/POD``."""

    name = "subject"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        namespace, slash, name = str(value).partition("/")
        if not slash:
            return NODE_NAME.convert(value, param, ctx)
        return f"{NAMESPACE_NAME.convert(namespace, param, ctx)}/{POD_NAME.convert(name, param, ctx)}"


@click.command(epilog=EPILOG)
@click.argument("subject", type=Subject(), metavar="NODE|NAMESPACE/POD")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def explain(subject: str, kubeconfig: str | None, namespace: str, output: str) -> int:
    """Say why a pod is still Terminating, or what of a node still hangs: the cause first, then what to do."""
    scene = ask_cluster(chosen_kubeconfig(kubeconfig), lambda each: gather(each, subject, namespace))
    found = causes(scene)
    if output == "json":
        show_json(document(scene, found))
    else:
        for each in lines(scene, found):
            show(each)
    return NOT_SO if any(each.code not in WELL for each in found) else DONE
