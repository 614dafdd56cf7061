"""``ebbtide outage explain``: why a pod is still Terminating, or its volume still attached, and the cures.

It needs no controller and no journal: `gather` makes a `Scene` of the live objects that a person may read,
and `causes` is a pure function of it. `actors.hang` has the rules that the controller shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rich.console import RenderableType

from ebbtide.actors.edges.kubernetes import work_view as work
from ebbtide.actors.edges.kubernetes.api_calls import JsonObject, node_path, pod_path
from ebbtide.actors.edges.kubernetes.known_pods import PodObject
from ebbtide.actors.edges.kubernetes.node_view import CLOUD_SHUTDOWN, OUT_OF_SERVICE
from ebbtide.actors.hang import TEXTS, detach_hang, pod_hang
from ebbtide.actors.outage_proof import OTHER_BOOT, OTHER_MACHINE, OUTLIVED, taint_is_final
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
from ebbtide.cli.common.output import NarrowTable, first_of_each, pairs, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    NAMESPACE_NAME,
    NODE_NAME,
    POD_NAME,
    Cluster,
    Look,
    age_seconds,
    ago,
    alive_by,
    ask_cluster,
    kubeconfig_option,
    leader_of,
    namespace_option,
    see_node,
)
from ebbtide.cli.outage.outage_status import OutageSummary, newest_outage, summary_of
from ebbtide.events.messages import plural, shortened_list
from ebbtide.events.units import short_span

#: The attach-detach controller's maxWaitForUnmountDuration, which no flag changes.
TIMER_SECONDS = 360.0
#: A node whose lease is older is Unknown soon (node-monitor-grace-period).
UNKNOWN_SECONDS = 50.0
#: Two rounds of the pod collector (20 s).
COLLECTOR_SECONDS = 40.0
NAMED_MAX = 3
UNREACHABLE = "node.kubernetes.io/unreachable"


class NodeScene(Struct, frozen=True, rename="camel"):
    """``ready``: ``Ready``, ``NotReady``, ``Unknown``, or its other condition. ``heard``: the age of its last
    lease renewal. ``taint``: none, ours or other, with its ``effect``. ``declared``: the person who declared
    it off, for ``declared_seconds`` (0: the controller's default). ``not_declared``: why a declaration does
    not count. ``alive``: the person who declared that this boot runs. ``cloud_off``: the cloud's shutdown
    taint is set, and the cloud sets it only in a final state; ``cloud_taint``: it is set. Ages in seconds,
    None where no object has the time. ``deleting``: the age of the Node's deletion, which ``finalizers`` hold
    up.
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
    cloud_taint: bool = False
    volumes_in_use: tuple[str, ...] = ()
    heard_seconds: float | None = None
    taint_seconds: float | None = None
    unreachable_seconds: float | None = None
    deleting: float | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        return self.there and self.ready in ("NotReady", "Unknown")


class PodScene(Struct, frozen=True, rename="camel"):
    """``deleted``: seconds since its deletion was due (negative: within its grace); None: not Terminating.
    ``running``: its statuses report a running container. ``asked``: the user asked about it. ``deleted_for``:
    seconds since the delete. ``evicted_after``: how long it tolerates node.kubernetes.io/unreachable, and
    ``out_after`` the out-of-service taint; None: for ever.
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
    deleted_for: float | None = None
    evicted_after: float | None = 300.0
    out_after: float | None = 0.0


class AttachmentScene(Struct, frozen=True, rename="camel"):
    """``deleting``: seconds since its detach was asked for; None: it was not. ``error``: the driver's text on
    the detach or the attach. ``in_use``: the kubelet's last report. ``claim``: ``namespace/name`` of its
    volume's claim. ``timer``: `timer_text`.
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


class Scene(Struct, frozen=True, rename="camel"):
    """``node``: the node asked about, or the pod's. ``leader``: the holder of the controller's Lease; empty:
    none, None: it may not be read. ``blocked``: why the leader stores no record. ``word``: its record of the
    node's open outage, if it writes. ``unseen``: what could not be read.
    """

    subject: str
    node: NodeScene | None
    pods: tuple[PodScene, ...] = ()
    attachments: tuple[AttachmentScene, ...] = ()
    leader: str | None = None
    unseen: tuple[str, ...] = ()
    blocked: str = ""
    paused: str = ""
    word: OutageSummary | None = None

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


#: All but those of `node_down`.
CURES: dict[str, str] = {
    "node-gone": "wait a minute; after that look at kube-controller-manager, which deletes them",
    "finalizers": "look at the controller that set them; removing them yourself skips its work",
    "within-grace": "wait: the kubelet of {node} ends it by then",
    "kubelet-late": "look at the kubelet and the container runtime of {node}",
    "collector-round": "wait: kube-controller-manager's pod collector deletes it within 40 s",
    "collector-late": "look at kube-controller-manager: does it run, is it 1.26 or newer",
    "not-deleted": "wait for kube-controller-manager, or delete it yourself: kubectl delete pod -n {pod}",
    "tolerates": "delete it yourself: kubectl delete pod -n {pod}",
    "no-schedule": "delete it yourself: kubectl delete pod -n {pod}",
    "not-evicted": "wait some seconds; after that look at kube-controller-manager",
    "detaching": "wait: the attacher of {driver} answers within 90 s",
    "driver-refuses": "look at the attacher's log of {driver}; it tries again by itself",
    "attacher-silent": "look at the controller pod of {driver}: does it run, was it on {node}",
    "attachment-finalizers": "look at the controller that set them",
    "attached-elsewhere": "ebbtide outage explain {node}",
    "attach-refused": "look at the attacher's log of {driver}; it tries again by itself",
    "attaching": "look at the attacher's log of {driver} if it takes minutes",
    "detach-late": "wait some seconds; after that look at kube-controller-manager",
    "unmount-late": "look at the kubelet of {node}: it has not unmounted it",
}


def _cause(code: str, text: str, **names: str) -> Cause:
    return Cause(code, text, (CURES[code].format_map(names),))


PLACE = (
    "its volume can be used in one zone, or on one node: bring a node there back, start a new one in that"
    " zone, or restore its data to another volume"
)
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


def node_down(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is not None and not node.there:
        if scene.pods:
            pods = "kube-controller-manager's pod collector deletes its pods within a minute"
            yield _cause("node-gone", f"Node {node.name} is gone: {pods}")
        elif scene.attachments:
            yield Cause("node-gone", f"Node {node.name} is gone, and its pods are")
    if node is None or not node.is_down or node.taint != "none":
        return
    heard = f", its last heartbeat was {node.heard}" if node.heard else ""
    # After a minute of silence Kubernetes sets Unknown, so NotReady is the kubelet's own report.
    reports = node.ready == "NotReady"
    confirms = "reports it, and has not confirmed" if reports else "cannot confirm"
    text = (
        f"{node.name} is {node.ready}{heard}, and it is not out of service: its kubelet {confirms}"
        " that the pods have ended, so Kubernetes keeps them and their volumes"
    )
    do = []
    see = f"see what the controller waits for: ebbtide outage status {node.name}"
    if node.cloud_off and not node.alive:
        text += f"; the cloud's taint {CLOUD_SHUTDOWN} is a proof if a leading controller saw it being set"
    elif node.cloud_taint:
        text += (
            f"; the cloud's taint {CLOUD_SHUTDOWN} is set already, but this cloud may set it before the"
            " machine is off, so that alone is no proof: ask the cloud"
        )
    # A machine that is off is silent, and a declaration about a lease that is renewed is refused.
    lives = reports and node.heard_seconds is not None and node.heard_seconds < UNKNOWN_SECONDS
    if reports:
        do.append(
            f"see why its kubelet reports it: kubectl describe node {node.name}; a machine that is off"
            " becomes Unknown within a minute"
        )
    sure = "make sure that the machine is off: its console, its management controller, its cloud"
    word = scene.word
    if scene.blocked:
        text += f"; {scene.leader or 'the controller'} leads, and {scene.blocked}"
        do.append("give the controller its journal back: 'ebbtide outage doctor' names what refuses it")
    elif word is not None:
        proved = f"has proved it off by {word.proof}, and " if word.proof else ""
        text += f"; the controller {proved}waits: {word.waits_for}"
    if node.alive:
        text += f"; {node.alive} has declared that it is alive, so no proof counts while that is in force"
        withdraw = f"ebbtide outage declare {node.name} --alive --withdraw"
        do.append(f"ask {node.alive}, or check it yourself; if it is not alive, withdraw that: {withdraw}")
    elif word is not None and (word.proof or word.cause not in ("", "not-proved")):
        do.append(word.do or see)
    elif node.declared:
        do += [see] if scene.leader != "" else []
    elif not scene.blocked and not lives:
        do += [see] if node.cloud_off and scene.leader != "" else []
        do.append(sure)
        do.append(f"then declare it: ebbtide outage declare {node.name} --off")
    if (scene.leader == "" or scene.blocked) and not lives:
        start = "no outage controller leads here: start it (deploy/kubernetes/outage), "
        taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        if sure not in do:
            do.append(sure)
        do.append(
            f"{'' if scene.blocked else start}or set the taint by hand once the machine is off:"
            f" kubectl taint node {node.name} {taint}; remove it when it is back"
        )
    do.append("or bring the node back: then its kubelet ends them")
    yield Cause("node-down", text, tuple(do))


def node_deleting(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is None or not node.there or node.deleting is None:
        return
    held = ", ".join(node.finalizers) or "no finalizer"
    text = (
        f"Node {node.name} is in deletion for {short_span(node.deleting)}, and {held} holds it up: until it"
        " is gone, Kubernetes treats it as a node that exists"
    )
    do = [f"look at the log of the controller that set {held}: it removes that when it has done its work"]
    if node.is_down and node.taint == "none":
        do.insert(0, "first put the node out of service, as above: it may wait for its work")
    yield Cause("node-deleting", text, tuple(do))


def pods(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    for pod in scene.asked:
        if node is not None and node.there and not node.is_down and (pod.deleted or 0) < 0:
            grace = short_span(-(pod.deleted or 0))
            text = f"{pod.label} is in its grace period, for {grace} more"
            yield _cause("within-grace", text, node=node.name)
            continue
        if node is not None and node.ready == "Ready" and pod.ready and pod.tolerates:
            continue  # it runs, and nothing waits for it
        effect = node.effect if node is not None and node.taint != "none" and pod.node == node.name else ""
        code = pod_hang(
            terminating=pod.deleted is not None,
            finalizers=pod.finalizers,
            tolerates=effect in pod.tolerates,
            effect=effect,
        )
        hangs = f"{pod.label}: {TEXTS[code].format(finalizers=', '.join(pod.finalizers))}"
        if code == "not-evicted" and pod.out_after and node is not None and node.taint_seconds is not None:
            left = pod.out_after - node.taint_seconds
            hangs += f"; it tolerates the taint for {short_span(pod.out_after)}, {_due(left)}"
            code = "tolerates" if left > 0 else code
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
            # The collector waits for no grace: only for the delete, and for the taint.
            ages = [age for age in (node.taint_seconds, pod.deleted_for) if age is not None]
            waited = min(ages) if ages else pod.deleted
            if pod.deleted < 0:
                hangs += (
                    f"; its grace of {short_span(-pod.deleted)} more does not count on a node that is down"
                )
            yield _cause("collector-round" if waited < COLLECTOR_SECONDS else "collector-late", hangs)


def taint_left(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is None or node.taint == "none" or node.ready != "Ready":
        return
    remove = f"kubectl taint node {node.name} {OUT_OF_SERVICE}-"
    if node.taint == "other":
        cure = f"its owner must remove it: {remove}"
    elif scene.leader == "":
        cure = (
            "no outage controller leads here: start it (deploy/kubernetes/outage), which removes it; or check"
            f" that no volume of the node is in use elsewhere, then remove it: {remove}"
        )
    else:
        cure = f"see what the controller waits for: ebbtide outage status {node.name}"
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
        elif node is not None and node.name == each.node and not scene.users(each):
            unused = f"no pod on {each.node} uses {each.volume}"
            if node.taint != "none" and node.is_down:
                yield _cause("detach-late", f"{unused}, and its detach has not begun", **names)
            elif node.ready == "Ready" and each.in_use:
                yield _cause("unmount-late", f"{unused}, and its kubelet reports it in use", **names)
            elif node.ready == "Ready" and each.claim:
                yield _cause("detach-late", f"{unused}, and its detach has not begun", **names)
            elif node.ready == "Ready":
                text = f"{each.volume} is attached to {each.node}, and no claim has that volume any more"
                ask = f"ask for the detach: kubectl delete volumeattachment {each.name}"
                yield Cause("attached-unused", text, (ask,))


def _due(seconds: float) -> str:
    return (
        f"which ends in {short_span(seconds)}" if seconds > 0 else f"which ended {short_span(-seconds)} ago"
    )


def not_terminating(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is None or not node.is_down or node.taint != "none":
        return
    for pod in scene.asked:
        if pod.deleted is not None or pod.daemon or pod.node != node.name:
            continue
        label, text = pod.label.replace("/", " "), f"{pod.label}: not Terminating yet"
        if pod.evicted_after is None:
            text += f"; it tolerates {UNREACHABLE} for ever, so no component deletes it"
            yield Cause("not-deleted", text, (f"delete it yourself: kubectl delete pod -n {label}",))
            continue
        text += f"; it tolerates {UNREACHABLE} for {short_span(pod.evicted_after)}"
        if node.unreachable_seconds is not None:
            text += f", {_due(pod.evicted_after - node.unreachable_seconds)}"
        yield _cause("not-deleted", f"{text}; then kube-controller-manager deletes it", pod=label)


def nothing(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is not None and not node.there and not scene.pods and not scene.attachments:
        yield Cause("nothing-hangs", f"Node {node.name} is gone, and nothing of it hangs any more")
    if node is not None and node.there and not node.is_down:
        well = [pod for pod in scene.asked if pod.deleted is None and pod.ready]
        if well or not scene.asked:
            what = f"{scene.subject} is Ready" if "/" in scene.subject else f"{node.name} is {node.ready}"
            yield Cause("nothing-hangs", f"{what}, and nothing of it hangs")
    left = [pod for pod in scene.asked if not pod.daemon]
    if node is not None and node.is_down and node.taint != "none" and not left and not scene.attachments:
        yield Cause("nothing-hangs", f"{node.name} is out of service, and nothing of it hangs any more")
    for pod in scene.asked:
        here = node is None or (node.there and not node.is_down)
        if pod.deleted is None and not pod.ready and here and not pod.daemon:
            where = f"on {pod.node}" if pod.node else "on no node yet"
            who = f"the kubelet of {pod.node} starts it" if pod.node else "the scheduler places it"
            describe = f"{who}, and says why not: kubectl describe pod -n {pod.label.replace('/', ' ')}"
            if pod.claims and "/" not in scene.subject:
                # Its volume may still be attached to another node.
                describe = f"ebbtide outage explain {pod.label}"
            text = f"{pod.label} is not Terminating: {pod.waiting or 'it starts'}, {where}"
            # Two of the scheduler's texts name a volume's place.
            bound = any(each in pod.waiting for each in work.SCHEDULER_TEXTS[:2])
            yield Cause("not-ready", text, (PLACE if bound else describe,))


#: In this order: the first cause is the cause.
RULES: tuple[Callable[[Scene], Iterator[Cause]], ...] = (
    node_down,
    node_deleting,
    pods,
    taint_left,
    volumes,
    not_terminating,
    nothing,
)


def causes(scene: Scene) -> list[Cause]:
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
    named = shortened_list(staying or running, NAMED_MAX)
    if staying:
        return f"has not begun: {named} uses it and is not Terminating"
    if running:
        return f"never begins: the statuses of {named} say Running for ever (kubernetes#65392)"
    ended = [pod.deleted for pod in users if pod.deleted is not None]
    if not ended:
        return "began when its last pod was gone; no object says when"
    left = TIMER_SECONDS - min(ended)
    return (
        f"detaches it in {short_span(left)} at the earliest"
        if left > 0
        else f"should have detached it {short_span(-left)} ago"
    )


def pod_scene(pod: JsonObject, *, asked: bool) -> PodScene:
    """Raises ValueError if the object is not a pod."""
    view = work.WorkView().project_pod(msgspec.convert(pod, PodObject))
    deleted = pod["metadata"].get("deletionTimestamp")
    due = None if deleted is None else age_seconds(deleted, signed=True)
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return PodScene(
        label=f"{view.namespace}/{view.name}",
        node=view.node,
        owner=view.owner,
        deleted=due,
        deleted_for=None if due is None else due + grace,
        evicted_after=tolerated_seconds(tolerations, UNREACHABLE),
        out_after=tolerated_seconds(tolerations, OUT_OF_SERVICE),
        finalizers=view.finalizers,
        running=any("running" in (each.get("state") or {}) for each in statuses),
        ready=view.ready,
        waiting=view.waiting,
        tolerates=view.tolerates,
        daemon=view.daemon,
        claims=view.claims,
        asked=asked,
    )


def tolerated_seconds(tolerations: list[JsonObject], key: str) -> float | None:
    """As the taint eviction controller counts for an effect of NoExecute; None: for ever."""
    times = [
        each.get("tolerationSeconds")
        for each in tolerations
        if each.get("effect") in (None, "", "NoExecute")
        and (each.get("key") == key or (not each.get("key") and each.get("operator") == "Exists"))
    ]
    limited = [max(0.0, float(each)) for each in times if each is not None]
    return min(limited) if limited else None if times else 0.0


def attachment_scene(
    attachment: JsonObject, volume: JsonObject | None, node: NodeScene | None, *, node_there: bool
) -> AttachmentScene:
    """``node``: the node in the user's question. Raises ValueError."""
    view = work.WorkView().project_attachment(msgspec.convert(attachment, work.AttachmentObject))
    found = work.project_volume(msgspec.convert(volume, work.VolumeObject)) if volume is not None else None
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
        in_use=unique_name in node.volumes_in_use
        if node is not None and node.there and is_mine and unique_name
        else None,
    )


async def node_scene(cluster: Cluster, name: str) -> NodeScene:
    """Raises Refused."""
    seen = await see_node(cluster, name)
    if seen is None:
        return NodeScene(name, there=False)
    view = seen.view
    said, objection = view.declared, ""
    if said is not None:
        # In the controller's words.
        objections = {
            said.problem: bool(said.problem),
            OTHER_MACHINE: said.node_uid != view.uid,
            OTHER_BOOT: said.boot_id != view.boot_id,
            OUTLIVED: not said.mark or said.mark != seen.mark,
        }
        objection = next((why for why, holds in objections.items() if holds), "")
    said = None if objection else said
    taints, meta, finalizers = seen.node.spec.taints, seen.node.metadata, tuple[str, ...]()
    if meta.deletion_timestamp is not None:
        found = await cluster.one(node_path(name), dict[str, Any]) or {}
        finalizers = tuple((found.get("metadata") or {}).get("finalizers") or ())
    added = {str(each.get("key")): age_seconds(each.get("timeAdded")) for each in taints}
    ages = {key: age for key, age in added.items() if not math.isnan(age)}
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
        cloud_taint=view.cloud_off,
        volumes_in_use=view.volumes_in_use,
        heard_seconds=age_seconds(seen.mark) if seen.mark else None,
        taint_seconds=ages.get(OUT_OF_SERVICE),
        unreachable_seconds=ages.get(UNREACHABLE),
        deleting=None if meta.deletion_timestamp is None else age_seconds(meta.deletion_timestamp),
        finalizers=finalizers,
    )


async def gather(cluster: Cluster, subject: str, namespace: str) -> Scene:
    """Of a Node by its name, or of ``namespace/pod``. Raises Refused."""

    async def is_there(name: str) -> bool:
        return await cluster.one(node_path(name), dict[str, Any]) is not None

    async def last_outage(node: NodeScene) -> OutageSummary | None:
        found = await newest_outage(cluster, namespace, node.name, node.uid)
        return next(map(summary_of, found.records), None)

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

    def scene_of(pod: JsonObject) -> PodScene | None:
        is_asked = asked is not None and pod["metadata"]["uid"] == asked["metadata"]["uid"]
        return None if is_asked else pod_scene(pod, asked=not is_pod)

    here = f"spec.nodeName={node_name}"
    pods = await look.some(work.PODS_PATH, dict[str, Any], scene_of, fieldSelector=here) if node_name else []
    scenes = [each for each in pods if each is not None]
    scenes += [pod_scene(asked, asked=True)] if asked is not None else []
    attachments = await look.some(work.ATTACHMENTS_PATH, dict[str, Any], lambda each: each)
    left = pods or any(each["spec"].get("nodeName") == node_name for each in attachments)
    is_gone = not is_pod and not left and node is not None and not node.there
    if node is not None and is_gone and not await look.may(partial(last_outage, node)):
        raise Refused(f"there is no Node {subject}, and no pod or volume on it: a pod is named NAMESPACE/POD")
    volumes: dict[str, JsonObject | None] = {}
    for claim in dict.fromkeys(claim for pod in scenes if pod.asked and is_pod for claim in pod.claims):
        claim_namespace, _, name = claim.partition("/")
        path = f"/api/v1/namespaces/{quote(claim_namespace)}/persistentvolumeclaims/{quote(name)}"
        bound = await look.one(path)
        if bound and (volume := bound["spec"].get("volumeName")):
            volumes[volume] = await look.one(f"{work.VOLUMES_PATH}/{quote(volume)}")
    found = []
    there = {node_name: node is not None and node.there}
    for each in attachments:
        name = (each["spec"].get("source") or {}).get("persistentVolumeName") or ""
        if name in volumes or (not is_pod and each["spec"].get("nodeName") == node_name):
            if name and name not in volumes:
                volumes[name] = await look.one(f"{work.VOLUMES_PATH}/{quote(name)}")
            where = each["spec"].get("nodeName") or ""
            modes = ((volumes.get(name) or {}).get("spec") or {}).get("accessModes") or ()
            if is_pod and where != node_name and ("ReadWriteMany" in modes or "ReadOnlyMany" in modes):
                continue  # several nodes may have it: no pod waits for another node
            if where not in there:
                # A Node that may not be read counts as there.
                there[where] = await look.may(partial(is_there, where)) is not False
            found.append(attachment_scene(each, volumes.get(name), node, node_there=there[where]))
    leading = await leader_of(cluster, namespace)
    word = None
    # A blocked controller may know more than its record.
    if node is not None and node.is_down and leading.holder != "" and not leading.blocked:
        word = await look.may(partial(last_outage, node))
        word = word if word is not None and word.is_open else None
    return Scene(
        subject=subject,
        node=node,
        pods=tuple(scenes),
        attachments=tuple(found),
        leader=leading.holder,
        blocked=leading.blocked,
        paused=leading.paused(node.name) if node is not None else "",
        word=word,
        unseen=tuple(look.unseen),
    )


#: A node has a hundred pods: the output must fit on a screen.
ROWS_MAX = 20

EPILOG = """\b
Examples:
  ebbtide outage explain shop/db-0
  ebbtide outage explain worker-2
  ebbtide outage explain shop/db-0 -o json | jq -r '.causes[0].code'


Reads pods, Nodes, leases, PersistentVolumes and their claims, and VolumeAttachments; names objects that you
may not read. Exit code 1: an object hangs.
"""


class Explanation(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageExplanation"):
    version: int = 1
    subject: str
    causes: list[Cause]
    node: NodeScene | None
    pods: tuple[PodScene, ...]
    attachments: tuple[AttachmentScene, ...]
    leader: str | None
    paused: str
    unseen: tuple[str, ...]


def explanation(scene: Scene) -> Explanation:
    return Explanation(
        subject=scene.subject,
        causes=causes(scene),
        node=scene.node,
        pods=scene.asked,
        attachments=tuple(replace(each, timer=timer_text(scene, each)) for each in scene.attachments),
        leader=scene.leader,
        paused=scene.paused,
        unseen=scene.unseen,
    )


def pod_text(pod: PodScene) -> str:
    if pod.deleted is None:
        return "Ready" if pod.ready else pod.waiting or "not Ready"
    parts = [
        f"Terminating for {short_span(pod.deleted)}" if pod.deleted >= 0 else "Terminating, in its grace"
    ]
    parts += [f"finalizers: {', '.join(pod.finalizers)}"] if pod.finalizers else []
    parts += [f"tolerates {', '.join(pod.tolerates)}"] if pod.tolerates else []
    return "; ".join(parts)


def attachment_text(attachment: AttachmentScene) -> str:
    deleting = attachment.deleting
    state = "attached" if attachment.attached else "not attached yet"
    if deleting is not None:
        state = f"being detached for {short_span(deleting)}"
    elif not attachment.attached:
        return f"{state}: {attachment.error}" if attachment.error else state
    used = {True: "; the kubelet said that it is mounted", False: "; the kubelet has unmounted it", None: ""}
    return f"{state}{used[attachment.in_use]}"


def lines(found: Explanation) -> Iterator[RenderableType]:
    for cause, beyond in first_of_each(found.causes, lambda each: each.code):
        yield pairs([("cause" if cause is found.causes[0] else "also", cause.text)])
        if cause.do:
            yield pairs((f"  {number}.  ", step) for number, step in enumerate(cause.do, 1))
        if beyond:
            yield f"and {beyond} more of {cause.code}: see them all with -o json"
    yield ""
    node = found.node
    if node is not None:
        taint = f"out-of-service taint: {node.taint}" + (f" ({node.effect})" if node.effect else "")
        counts = f", for {short_span(node.declared_seconds)}" if node.declared_seconds else ""
        off = f"off, by {node.declared}{counts} from when the controller has read it"
        why = f"its statement does not count: {node.not_declared}"
        leader = {None: "cannot be seen", "": "no leader"}.get(found.leader, found.leader)
        rows = [
            ("node", f"{node.name}: {node.ready if node.there else 'gone'}; {taint}"),
            ("declared", off if node.declared else ""),
            ("not declared", why if node.not_declared else ""),
            ("declared", f"alive, by {node.alive}" if node.alive else ""),
            ("controller", str(leader)),
            ("paused", found.paused),
        ]
        yield pairs([*rows, *(("not seen", each) for each in found.unseen)])
    pods = [each for each in found.pods if each.deleted is not None or "/" in found.subject]
    if pods:
        yield ""
        listed = [(each.label, each.owner, pod_text(each)) for each in pods[:ROWS_MAX]]
        yield NarrowTable(("POD", "OWNER", "IS"), listed)
        if pods[ROWS_MAX:]:
            yield f"and {plural(len(pods) - ROWS_MAX, 'pod')} more: see them all with -o json"
    if found.attachments:
        yield ""
        rows_of = [
            (each.volume, each.node, each.driver, attachment_text(each), each.timer)
            for each in found.attachments[:ROWS_MAX]
        ]
        yield NarrowTable(("VOLUME", "NODE", "DRIVER", "IS", "SIX-MINUTE TIMER"), rows_of)
        if found.attachments[ROWS_MAX:]:
            yield f"and {plural(len(found.attachments) - ROWS_MAX, 'volume')} more: see them all with -o json"
        if any(row[-1] for row in rows_of):
            yield "no object shows whether the timer is disabled (disable-force-detach-on-timeout)"


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
def explain(subject: str, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """Explain why a pod is still Terminating, or what still hangs on a node: the cause, then the cures."""
    found = explanation(ask_cluster(kubeconfig, lambda each: gather(each, subject, namespace)))
    if output == "json":
        show_json(found)
    else:
        for each in lines(found):
            show(each)
    return NOT_SO if any(each.code != "nothing-hangs" for each in found.causes) else DONE
