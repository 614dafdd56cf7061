"""Why a pod is still Terminating, or its volume still attached, and the cures: `causes`, a pure function of a
`Scene`. `gather` makes the scene of the live objects about a pod or a node, as far as a person may see them.

`actors.hang` has the rules that the controller shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ebbtide.actors.hang import TEXTS, detach_hang, pod_hang
from ebbtide.actors.outage_proof import taint_is_final
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import Cluster, Look, age_seconds, ago, alive_by, leader_of, see_node
from ebbtide.cli.outage.outage_summary import newest_outage, summary_of
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import JsonObject
    from ebbtide.actors.edges.kubernetes.node_view import NodeView

#: The attach-detach controller's maxWaitForUnmountDuration, which no flag changes.
TIMER_SECONDS = 360.0
#: Two rounds of the pod collector (20 s).
COLLECTOR_SECONDS = 40.0
CLOUD_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class NodeScene(Struct, frozen=True, rename="camel"):
    """``ready``: ``Ready``, ``NotReady``, ``Unknown``, or its other condition. ``heard``: the age of its last
    lease renewal. ``taint``: none, ours or other, with its ``effect``. ``declared``: the person who declared
    it off, for ``declared_seconds`` (0: the controller's default). ``not_declared``: why such a statement
    does not count. ``alive``: the person who declared that this boot runs. ``cloud_off``: the cloud has set
    its shutdown taint, and sets it only in a final state.
    """

    name: str
    uid: str = ""
    there: bool = True
    ready: str = "Ready"
    heard: str = ""
    taint: Literal["none", "ours", "other"] = "none"
    effect: str = ""
    declared: str = ""
    declared_seconds: int = 0
    not_declared: str = ""
    alive: str = ""
    cloud_off: bool = False
    volumes_in_use: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        return self.there and self.ready in ("NotReady", "Unknown")


class PodScene(Struct, frozen=True, rename="camel"):
    """``deleted``: seconds since its deletion was due (negative: within its grace); None: not Terminating.
    ``running``: its statuses report a running container. ``asked``: the user asked about it.
    """

    label: str
    node: str = ""
    owner: str = ""
    deleted: float | None = None
    finalizers: tuple[str, ...] = ()
    running: bool = False
    ready: bool = False
    waiting: str = ""
    tolerates: tuple[str, ...] = ()
    daemon: bool = False
    claims: tuple[str, ...] = ()
    asked: bool = True


class AttachmentScene(Struct, frozen=True, rename="camel"):
    """``attached``: its driver has attached it. ``deleting``: seconds since its detach was asked for; None:
    it was not. ``error``: the driver's own text on the detach or the attach. ``in_use``: the kubelet's last
    report. ``claim``: ``namespace/name`` of its volume's claim. ``node_there``: its Node exists. ``timer``:
    `timer_text`.
    """

    name: str
    node: str
    volume: str
    driver: str
    claim: str = ""
    attached: bool = True
    node_there: bool = True
    deleting: float | None = None
    finalizers: tuple[str, ...] = ()
    error: str = ""
    in_use: bool | None = None
    timer: str = ""


class ControllersWord(Struct, frozen=True, rename="camel"):
    """The record of the node's open outage: the ``proof`` that counts, what it ``waits_for``, that cause's
    code and cure.
    """

    proof: str = ""
    waits_for: str = ""
    cause: str = ""
    do: str = ""


class Scene(Struct, frozen=True, rename="camel"):
    """``node``: the node asked about, or the pod's; None: the pod has none. ``leader``: the holder of the
    controller's Lease; empty: none, None: it may not be read. ``blocked``: its own words on why it stores no
    record. ``word``: its record. ``unseen``: what could not be read.
    """

    subject: str
    node: NodeScene | None
    pods: tuple[PodScene, ...] = ()
    attachments: tuple[AttachmentScene, ...] = ()
    leader: str | None = None
    unseen: tuple[str, ...] = ()
    blocked: str = ""
    word: ControllersWord = ControllersWord()

    @property
    def asked(self) -> tuple[PodScene, ...]:
        return tuple(pod for pod in self.pods if pod.asked)

    def users(self, attachment: AttachmentScene) -> list[PodScene]:
        """Pods on its node that use its volume."""
        return [pod for pod in self.pods if pod.node == attachment.node and attachment.claim in pod.claims]


class Cause(Struct, frozen=True, rename="camel"):
    """``code`` is stable. ``do``: the cures, in order."""

    code: str
    text: str
    do: tuple[str, ...] = ()


#: The cures of each cause but `node_down`.
CURES: dict[str, str] = {
    "node-gone": "wait a minute; after that look at kube-controller-manager, which deletes them",
    "finalizers": "look at the controller that set them; removing them yourself skips its work",
    "within-grace": "wait",
    "kubelet-late": "look at the kubelet and the container runtime of {node}",
    "collector-round": "wait",
    "collector-late": "look at kube-controller-manager: does it run, is it 1.26 or newer",
    "tolerates": "delete it yourself: kubectl delete pod -n {pod}",
    "no-schedule": "delete it yourself: kubectl delete pod -n {pod}",
    "not-evicted": "wait some seconds; after that look at kube-controller-manager",
    "detaching": "wait",
    "driver-refuses": "look at the attacher's log of {driver}; it tries again by itself",
    "attacher-silent": "look at the controller pod of {driver}: does it run, was it on {node}",
    "attachment-finalizers": "look at the controller that set them",
    "attached-elsewhere": "ebbtide outage explain {node}",
    "attach-refused": "look at the attacher's log of {driver}; it tries again by itself",
    "attaching": "look at the attacher's log of {driver} if it takes minutes",
    "detach-late": "wait some seconds; after that look at kube-controller-manager",
}


def _cause(code: str, text: str, **names: str) -> Cause:
    return Cause(code, text, (CURES[code].format_map(names),))


#: The node's part of a volume's place.
GONE = "{}, a Node that does not exist any more"


def _gone(attachment: AttachmentScene, code: str, text: str) -> Cause:
    """Without the Node, no kubelet confirms an unmount, and no taint helps."""
    sure = f"make sure that the machine {attachment.node} is gone: its console, its cloud"
    name, driver = attachment.name, attachment.driver
    if code == "attached-to-gone":
        do = (
            "wait until six minutes after its last pod there was deleted: then the attach-detach controller's"
            " timer detaches it, unless disable-force-detach-on-timeout is set",
            f"later than that: {sure}; then ask for the detach: kubectl delete volumeattachment {name}",
        )
    else:
        finalizers = '{"metadata":{"finalizers":null}}'
        do = (
            f"look at the attacher's log of {driver}: only the driver can end this detach, and it must accept"
            " that the machine is gone; it tries again by itself",
            f"or {sure}, and that the volume is free there; then give the attachment up:"
            f" kubectl patch volumeattachment {name} --type=merge -p '{finalizers}'",
        )
    return Cause(code, text, do)


def _names(labels: list[str]) -> str:
    shown = ", ".join(labels[:3])
    return f"{shown} and {len(labels) - 3} more" if len(labels) > 3 else shown


def node_down(scene: Scene) -> Iterator[Cause]:
    """It is not out of service, so Kubernetes moves no pod and no volume."""
    node = scene.node
    if node is not None and not node.there:
        text = f"Node {node.name} is gone: the pod collector deletes its pods within a minute"
        yield _cause("node-gone", text)
    if node is None or not node.is_down or node.taint != "none":
        return
    heard = f", its last heartbeat was {node.heard}" if node.heard else ""
    # Kubernetes sets Unknown within a minute of silence, so NotReady is the kubelet's own report.
    reports = node.ready == "NotReady"
    confirms = "reports it, and has not confirmed" if reports else "cannot confirm"
    text = (
        f"{node.name} is {node.ready}{heard}, and it is not out of service: its kubelet {confirms}"
        " that the pods have ended, so Kubernetes keeps them and their volumes"
    )
    do = []
    see = f"see what the controller waits for: ebbtide outage status {node.name}"
    if node.cloud_off and not node.alive:
        text += f"; the cloud's taint {CLOUD_SHUTDOWN} is a proof already that the machine is off"
    if reports:
        do.append(
            f"see why its kubelet reports it: kubectl describe node {node.name}; a machine that is off"
            " becomes Unknown within a minute"
        )
    # Behind a record that is not written any more, the controller may see something else.
    word = scene.word if scene.leader != "" and not scene.blocked else ControllersWord()
    if scene.blocked:
        text += f"; {scene.leader or 'the controller'} leads, and {scene.blocked}"
        do.append("give the controller its journal back: 'ebbtide outage doctor' names what refuses it")
    elif word.waits_for:
        proved = f"has proved it off by {word.proof}, and " if word.proof else ""
        text += f"; the controller {proved}waits: {word.waits_for}"
    if node.alive:
        text += f"; {node.alive} has declared that it is alive, so no proof counts while that is in force"
        withdraw = f"ebbtide outage declare {node.name} --alive --withdraw"
        do.append(f"ask {node.alive}, or check it yourself; if it is not alive, withdraw that: {withdraw}")
    elif word.proof or word.cause not in ("", "not-proved"):
        do.append(word.do or see)
    elif node.cloud_off or node.declared:
        do += [see] if scene.leader != "" else []
    elif not scene.blocked:
        do.append("make sure that the machine is off: its console, its management controller, its cloud")
        do.append(f"then declare it: ebbtide outage declare {node.name} --off")
    if scene.leader == "" or scene.blocked:
        start = "no outage controller leads here: start it (deploy/kubernetes/outage), "
        taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        is_proved = node.cloud_off and not node.alive
        do.append(
            f"{'' if scene.blocked else start}or set the taint by hand"
            f"{'' if is_proved else ' once the machine is off'}: kubectl taint node {node.name} {taint};"
            " remove it when it is back"
        )
    do.append("or bring the node back: then its kubelet ends them")
    yield Cause("node-down", text, tuple(do))


def pods(scene: Scene) -> Iterator[Cause]:
    """Pods that hang for another reason than a node without the taint."""
    node = scene.node
    for pod in scene.asked:
        if node is not None and node.there and not node.is_down and (pod.deleted or 0) < 0:
            grace = short_span(-(pod.deleted or 0))
            yield _cause("within-grace", f"{pod.label} is in its grace period, for {grace} more")
            continue
        effect = node.effect if node is not None and node.taint != "none" and pod.node == node.name else ""
        code = pod_hang(
            terminating=pod.deleted is not None,
            finalizers=pod.finalizers,
            tolerates=effect in pod.tolerates,
            effect=effect,
        )
        hangs = f"{pod.label}: {TEXTS[code].format(finalizers=', '.join(pod.finalizers))}"
        if code == "finalizers" or (pod.deleted is None and code != "node-down" and not pod.daemon):
            yield _cause(code, hangs, pod=pod.label.replace("/", " "))
        elif pod.deleted is None or node is None or not node.there:
            continue
        elif not node.is_down:
            late = short_span(pod.deleted)
            text = (
                f"{node.name} is {node.ready}: its kubelet has not ended {pod.label} {late} after its grace"
            )
            yield _cause("kubelet-late", text, node=node.name)
        elif effect and not pod.daemon:
            yield _cause("collector-round" if pod.deleted < COLLECTOR_SECONDS else "collector-late", hangs)


def taint_left(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is None or node.taint == "none" or node.ready != "Ready":
        return
    cure = (
        f"see what the controller waits for: ebbtide outage status {node.name}"
        if node.taint == "ours"
        else f"its owner must remove it: kubectl taint node {node.name} {OUT_OF_SERVICE}-"
    )
    yield Cause("taint-left", f"{node.name} is Ready but out of service: attachments to it hang", (cure,))


def volumes(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    for each in scene.attachments:
        names = {"driver": each.driver, "node": each.node}
        # A Ready pod on another node waits for no volume: several nodes may share one.
        wanted = [
            pod
            for pod in scene.asked
            if each.claim in pod.claims
            and (pod.node == each.node or not pod.ready or pod.deleted is not None)
        ]
        place = each.node if each.node_there else GONE.format(each.node)
        is_here = each.node_there and any(pod.node == each.node for pod in wanted)
        if each.deleting is not None:
            code = detach_hang(each.finalizers, refused=bool(each.error), seconds=int(each.deleting))
            finalizers, error = ", ".join(each.finalizers), f": {each.error}"
            why = TEXTS[code].format(finalizers=finalizers, error=error, **names)
            text = f"{each.volume}, being detached for {short_span(each.deleting)} from {place}: {why}"
            fresh = code == "detaching"
            yield _cause(code, text, **names) if each.node_there or fresh else _gone(each, code, text)
        elif not each.attached and (is_here or not wanted):
            error = f": {each.error}" if each.error else ""
            text = f"{each.volume} is not attached to {place} yet{error}"
            yield _cause("attach-refused" if error else "attaching", text, **names)
        elif not is_here and (wanted or not each.node_there):
            label = next((pod.label for pod in wanted if pod.node != each.node), "")
            waits = f"{label} waits for {each.volume}, which is" if label else f"{each.volume} is"
            text = f"{waits} {'still' if each.attached else 'being'} attached to {place}"
            if each.node_there:
                yield _cause("attached-elsewhere", text, **names)
            else:
                yield _gone(each, "attached-to-gone", text)
        elif node is not None and node.is_down and node.taint != "none" and not scene.users(each):
            yield _cause(
                "detach-late", f"no pod on {each.node} uses {each.volume}, and its detach has not begun"
            )


def not_terminating(scene: Scene) -> Iterator[Cause]:
    """On a node that is down, without the taint."""
    node = scene.node
    if node is None or not node.is_down or node.taint != "none":
        return
    left = [
        pod.label for pod in scene.asked if pod.deleted is None and not pod.daemon and pod.node == node.name
    ]
    if left:
        text = (
            f"{_names(left)}: not Terminating yet; Kubernetes deletes pods that do not tolerate"
            " node.kubernetes.io/unreachable, by default 5 minutes after the node became unreachable"
        )
        yield Cause("not-deleted", text)


def nothing(scene: Scene) -> Iterator[Cause]:
    """The subject does not hang."""
    node = scene.node
    if node is not None and node.there and not node.is_down:
        well = [pod for pod in scene.asked if pod.deleted is None and pod.ready]
        if well or not scene.asked:
            what = f"{scene.subject} is Ready" if "/" in scene.subject else f"{node.name} is {node.ready}"
            yield Cause("nothing-hangs", f"{what}, and nothing of it hangs")
    left = [pod for pod in scene.asked if not pod.daemon]
    if node is not None and node.is_down and node.taint != "none" and not left and not scene.attachments:
        yield Cause("nothing-hangs", f"{node.name} is out of service, and nothing of it hangs any more")
    for pod in scene.asked:
        if pod.deleted is None and not pod.ready and (node is None or not node.is_down) and not pod.daemon:
            where = f"on {pod.node}" if pod.node else "on no node yet"
            yield Cause("not-ready", f"{pod.label} is not Terminating: {pod.waiting or 'it starts'}, {where}")


#: In this order: the first cause is the cause.
RULES: tuple[Callable[[Scene], Iterator[Cause]], ...] = (
    node_down,
    pods,
    taint_left,
    volumes,
    not_terminating,
    nothing,
)


def causes(scene: Scene) -> list[Cause]:
    """The cause first, then what else holds."""
    found = [cause for rule in RULES for cause in rule(scene)]
    return [each for each in found if each.code != "nothing-hangs"] or found


def timer_text(scene: Scene, attachment: AttachmentScene) -> str:
    """The state of a volume's six-minute timer; empty: the timer does not apply."""
    node = scene.node
    if attachment.deleting is not None or not attachment.attached:
        return ""
    if not attachment.node_there:
        return "detaches it six minutes after its last pod there was deleted; no object says when"
    if node is None or not node.is_down or node.name != attachment.node or node.taint != "none":
        return ""
    users = scene.users(attachment)
    staying = [pod.label for pod in users if pod.deleted is None]
    running = [pod.label for pod in users if pod.deleted is not None and pod.running]
    if staying:
        return f"has not begun: {_names(staying)} uses it and is not Terminating"
    if running:
        return f"never begins: the statuses of {_names(running)} say Running for ever (kubernetes#65392)"
    ended = [pod.deleted for pod in users if pod.deleted is not None]
    if not ended:
        return "began when its last pod was gone; no object says when"
    left = TIMER_SECONDS - min(ended)
    return (
        f"detaches it in {short_span(left)} at the earliest"
        if left > 0
        else f"should have detached it {short_span(-left)} ago"
    )


# --- the scene -----------------------------------------------------------------------------------


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
    attachment: JsonObject, volume: JsonObject | None, node: NodeScene | None, *, node_there: bool
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
    status = attachment.get("status") or {}
    said = status.get("attachError" if deleted is None else "detachError") or {}
    unique_name = found.unique_name if found is not None else ""
    is_mine = node is not None and node.name == view.node
    return AttachmentScene(
        name=view.name,
        node=view.node,
        volume=view.volume or view.name,
        driver=view.driver,
        claim=found.claim if found is not None else "",
        attached=status.get("attached") is True,
        node_there=node_there,
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
        uid=view.uid,
        ready=seen.ready,
        heard=ago(seen.mark) if seen.mark else "",
        taint=view.taint,
        effect=effects[0] if effects else "",
        declared=said.by if said is not None else "",
        declared_seconds=said.seconds if said is not None else 0,
        not_declared=objection,
        alive=alive_by(view),
        cloud_off=view.cloud_off and taint_is_final(view.provider_id),
        volumes_in_use=view.volumes_in_use,
    )


async def controllers_word(cluster: Cluster, namespace: str, node: NodeScene) -> ControllersWord | None:
    """Of the node's open outage. Raises Refused."""
    if not node.is_down:
        return None
    found = await newest_outage(cluster, namespace, node.name, node.uid)
    open_ones = [summary for summary in map(summary_of, found.records) if summary.is_open]
    return next(
        (ControllersWord(each.proof, each.waits_for, each.cause, each.do) for each in open_ones), None
    )


async def gather(cluster: Cluster, subject: str, namespace: str) -> Scene:
    """Of a Node by its name, or of ``namespace/pod``. Raises Refused."""
    from urllib.parse import quote

    from ebbtide.actors.edges.kubernetes.api_calls import node_path, pod_path
    from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, PODS_PATH, VOLUMES_PATH

    async def is_there(name: str) -> bool:
        return await cluster.one(node_path(name), dict[str, Any]) is not None

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
    if asked is not None:
        pods = [each for each in pods if each["metadata"]["uid"] != asked["metadata"]["uid"]]
    scenes = [pod_scene(each, asked=not is_pod) for each in pods]
    scenes += [pod_scene(asked, asked=True)] if asked is not None else []
    attachments = await look.some(ATTACHMENTS_PATH)
    left = any(each["spec"].get("nodeName") == node_name for each in attachments)
    if node is not None and not node.there and not is_pod and not pods and not left:
        raise Refused(f"there is no Node {subject}, and no pod or volume on it: a pod is named NAMESPACE/POD")
    # The PersistentVolumes of the asked pods' claims, by name.
    volumes: dict[str, JsonObject | None] = {}
    for claim in dict.fromkeys(claim for pod in scenes if pod.asked and is_pod for claim in pod.claims):
        claim_namespace, _, name = claim.partition("/")
        path = f"/api/v1/namespaces/{quote(claim_namespace)}/persistentvolumeclaims/{quote(name)}"
        bound = await look.one(path)
        if bound and (volume := bound["spec"].get("volumeName")):
            volumes[volume] = await look.one(f"{VOLUMES_PATH}/{quote(volume)}")
    found = []
    there = {node_name: node is not None and node.there}
    for each in attachments:
        name = (each["spec"].get("source") or {}).get("persistentVolumeName") or ""
        if name in volumes or (not is_pod and each["spec"].get("nodeName") == node_name):
            if name and name not in volumes:
                volumes[name] = await look.one(f"{VOLUMES_PATH}/{quote(name)}")
            where = each["spec"].get("nodeName") or ""
            if where not in there:
                # A Node that may not be read counts as there.
                there[where] = await look.may(partial(is_there, where)) is not False
            found.append(attachment_scene(each, volumes.get(name), node, node_there=there[where]))
    leading = await leader_of(cluster, namespace)
    word = await look.may(partial(controllers_word, cluster, namespace, node)) if node is not None else None
    return Scene(
        subject=subject,
        node=node,
        pods=tuple(scenes),
        attachments=tuple(found),
        leader=leading.holder,
        blocked=leading.blocked,
        word=word or ControllersWord(),
        unseen=tuple(look.unseen),
    )
