"""The scene for `ebbtide outage explain`: the live objects about a pod or a node, as far as a person may see
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import Cluster, Look, age_seconds, ago, alive_by, leader_of, see_node
from ebbtide.cli.outage.reasons import AttachmentScene, NodeScene, PodScene, Scene

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import JsonObject
    from ebbtide.actors.edges.kubernetes.node_view import NodeView


def pod_scene(pod: JsonObject, *, asked: bool) -> PodScene:
    """Raises ValueError if the object is not a pod."""
    import msgspec

    from ebbtide.actors.edges.kubernetes.known_pods import PodObject
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
    from ebbtide.actors.edges.kubernetes.node_view import OUT_OF_SERVICE

    seen = await see_node(cluster, name)
    if seen is None:
        return NodeScene(name, there=False)
    view = seen.view
    objection = not_declared(view, seen.mark)
    said = view.declared if not objection else None
    taints = seen.node.spec.taints
    effects = [str(each.get("effect")) for each in taints if each.get("key") == OUT_OF_SERVICE]
    return NodeScene(
        name,
        ready=seen.ready,
        heard=ago(seen.mark) if seen.mark else "",
        taint=view.taint,
        effect=effects[0] if effects else "",
        declared=said.by if said is not None else "",
        declared_seconds=said.seconds if said is not None else 0,
        not_declared=objection,
        alive=alive_by(view),
        volumes_in_use=view.volumes_in_use,
    )


async def gather(cluster: Cluster, subject: str, namespace: str) -> Scene:
    """Of a Node by its name, or of ``namespace/pod``. Raises Refused."""
    from urllib.parse import quote

    from ebbtide.actors.edges.kubernetes.api_calls import pod_path
    from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, PODS_PATH, VOLUMES_PATH

    look = Look(cluster)
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
    return Scene(subject, node, tuple(scenes), tuple(found), leader, tuple(look.unseen))


async def _volumes_of(look: Look, pods: list[PodScene]) -> dict[str, JsonObject | None]:
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
