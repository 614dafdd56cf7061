"""Why a pod is still Terminating, or its volume still attached: rules over what the API server has.

Each rule is a function that yields causes; `RULES` is the only list of them, and its order is that in which
they are told: the first one is the cause. A rule looks at nothing but its `Scene`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ebbtide.events.units import short_span, span_s

#: The attach-detach controller's (maxWaitForUnmountDuration), which no flag changes.
TIMER_SECONDS = 360.0
#: The pod collector's round, and the attach-detach controller's is shorter: later than two of them is late.
ROUND_SECONDS = 20.0
#: An attacher that runs has tried, and said so, by then.
ATTACHER_SECONDS = 60.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
#: What a CSI attacher holds its attachment by.
ATTACHER_FINALIZER = "external-attacher/"


class NodeScene(NamedTuple):
    """``ready``: ``Ready``, ``NotReady``, ``Unknown`` or what else it says; ``heard``: how long ago its lease
    was renewed, by this clock. ``taint``: none, ours or other, with its ``effect``. ``declared``: that it is
    off, by whom, and for how many ``declared_seconds`` (0: as the controller has it); ``not_declared``: why a
    statement of that kind which stands there is none; ``alive``: that this boot runs, by whom.
    """

    name: str
    there: bool = True
    ready: str = "Ready"
    heard: str = ""
    taint: Literal["none", "ours", "other"] = "none"
    effect: str = ""
    declared: str = ""
    declared_seconds: int = 0
    not_declared: str = ""
    alive: str = ""
    volumes_in_use: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        return self.there and self.ready in ("NotReady", "Unknown")


class PodScene(NamedTuple):
    """``deleted``: for how many seconds its deletion has been due (less than 0: its grace goes on); None: it
    is not Terminating. ``running``: its statuses say that a container runs. ``asked``: it is asked about.
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


class AttachmentScene(NamedTuple):
    """``deleting``: for how many seconds; None: nobody has asked for its detach. ``error``: the driver's own
    text. ``in_use``: the kubelet's last word. ``claim``: ``namespace/name``, where its volume has one.
    """

    name: str
    node: str
    volume: str
    driver: str
    claim: str = ""
    deleting: float | None = None
    finalizers: tuple[str, ...] = ()
    error: str = ""
    in_use: bool | None = None


class Scene(NamedTuple):
    """``node``: the one asked about, or the asked pod's; None: that pod has none yet. ``leader``: who holds
    the controller's Lease, empty: nobody, None: that cannot be seen. ``unseen``: what could not be looked at.
    """

    subject: str
    node: NodeScene | None
    pods: tuple[PodScene, ...] = ()
    attachments: tuple[AttachmentScene, ...] = ()
    leader: str | None = None
    unseen: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[PodScene, ...]:
        return tuple(pod for pod in self.pods if pod.asked)

    def users(self, attachment: AttachmentScene) -> list[PodScene]:
        """Pods on its node that use its volume."""
        return [pod for pod in self.pods if pod.node == attachment.node and attachment.claim in pod.claims]


class Cause(NamedTuple):
    """``code`` is stable; ``do``: what a person can do about it, in that order."""

    code: str
    text: str
    do: tuple[str, ...] = ()


def _stuck(scene: Scene) -> list[PodScene]:
    """Terminating, and due."""
    return [pod for pod in scene.asked if pod.deleted is not None]


def _names(labels: list[str]) -> str:
    shown = ", ".join(labels[:3])
    return f"{shown} and {len(labels) - 3} more" if len(labels) > 3 else shown


def node_down(scene: Scene) -> Iterator[Cause]:
    """Nobody has put it out of service: nothing moves."""
    node = scene.node
    if node is None or not node.is_down or node.taint != "none":
        return
    heard = f", its last heartbeat was {node.heard}" if node.heard else ""
    # Who cannot be heard is made Unknown within a minute: NotReady is the kubelet's own word.
    says_so = node.ready == "NotReady"
    confirms = (
        "its kubelet says so itself, and has not confirmed" if says_so else "its kubelet cannot confirm"
    )
    text = (
        f"{node.name} is {node.ready}{heard}, and it is not out of service: {confirms}"
        " that the pods have ended, so Kubernetes keeps them and their volumes"
    )
    if node.alive:
        text += f"; {node.alive} has declared that it lives, so nothing proves it off while that stands"
        do = [
            f"ask {node.alive}, or look yourself; where it does not live, take that back:"
            f" ebbtide outage declare {node.name} --alive --withdraw"
        ]
    elif node.declared:
        do = [f"see what the controller waits for: ebbtide outage status {node.name}"]
    else:
        do = [
            "make sure that the machine is off: its console, its management controller, its cloud",
            f"then say so: ebbtide outage declare {node.name} --off",
        ]
    if says_so:
        do.insert(
            0,
            f"see why its kubelet says so: kubectl describe node {node.name}; where the machine is off it is"
            " Unknown within a minute",
        )
    if scene.leader == "":
        taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        do.append(
            "no outage controller leads here: start it (deploy/kubernetes/outage), or set the taint by hand"
            f" once the machine is off: kubectl taint node {node.name} {taint}; take it away when it is back"
        )
    do.append("or bring the node back: then its kubelet ends them")
    yield Cause("node-down", text, tuple(do))


def node_gone(scene: Scene) -> Iterator[Cause]:
    node = scene.node
    if node is None or node.there:
        return
    text = f"there is no Node {node.name} any more: the pod collector deletes its pods within a minute"
    yield Cause(
        "node-gone", text, ("wait a minute; after that look at kube-controller-manager, which collects them",)
    )


def finalizers(scene: Scene) -> Iterator[Cause]:
    """Neither kubelet nor taint takes these away."""
    for pod in _stuck(scene):
        if pod.finalizers:
            text = (
                f"{pod.label} has finalizers: {', '.join(pod.finalizers)}; it stays until they are taken away"
            )
            yield Cause(
                "finalizers",
                text,
                ("look at the controller that set them; taking them away yourself skips its work",),
            )


def alive(scene: Scene) -> Iterator[Cause]:
    """Its kubelet lives: this is no outage."""
    node = scene.node
    if node is None or not node.there or node.is_down:
        return
    for pod in _stuck(scene):
        assert pod.deleted is not None
        if pod.deleted < 0:
            text = f"{pod.label} is in its grace period, for {short_span(-pod.deleted)} more"
            yield Cause("within-grace", text, ("wait",))
        elif not pod.finalizers:
            text = (
                f"{node.name} is {node.ready}: its kubelet lives, and has not ended {pod.label}"
                f" {short_span(pod.deleted)} after its grace"
            )
            yield Cause(
                "kubelet-late", text, (f"look at the kubelet and the container runtime of {node.name}",)
            )


def out_of_service(scene: Scene) -> Iterator[Cause]:
    """The taint stands: what is still there, and why."""
    node = scene.node
    if node is None or node.taint == "none":
        return
    for pod in scene.asked:
        if pod.daemon or pod.node != node.name:
            continue
        if pod.deleted is None:
            yield from _not_deleted(pod, node)
        elif not pod.finalizers and node.is_down:
            if pod.deleted < 2 * ROUND_SECONDS:
                text = f"within {span_s(ROUND_SECONDS)} the pod collector takes {pod.label}: the taint stands"
                yield Cause("collector-round", text, ("wait",))
            else:
                text = f"{node.name} is out of service, and the pod collector has not taken {pod.label}"
                yield Cause(
                    "collector-late",
                    text,
                    ("look at kube-controller-manager: is it there, is it older than 1.26",),
                )
    if node.ready == "Ready":
        text = f"{node.name} is Ready, and out of service all the same: attachments to it hang"
        do = (
            f"see what the controller waits for: ebbtide outage status {node.name}"
            if node.taint == "ours"
            else f"whoever set it has to take it away: kubectl taint node {node.name} {OUT_OF_SERVICE}-"
        )
        yield Cause("taint-left", text, (do,))


def _not_deleted(pod: PodScene, node: NodeScene) -> Iterator[Cause]:
    if node.effect in pod.tolerates:
        text = f"{pod.label} tolerates the out-of-service taint: nothing deletes it, and its volumes stay"
        yield Cause(
            "tolerates", text, (f"delete it yourself: kubectl delete pod -n {pod.label.replace('/', ' ')}",)
        )
    elif node.effect == "NoSchedule":
        text = f"the taint on {node.name} is NoSchedule, which deletes nothing: {pod.label} was never deleted"
        yield Cause(
            "no-schedule", text, (f"delete it yourself: kubectl delete pod -n {pod.label.replace('/', ' ')}",)
        )
    else:
        text = f"{node.name} is out of service: the taint eviction controller has not deleted {pod.label} yet"
        yield Cause("not-evicted", text, ("wait some seconds; after that look at kube-controller-manager",))


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
            f"{_names(left)}: not Terminating yet; Kubernetes deletes what does not tolerate"
            " node.kubernetes.io/unreachable, by default 5 minutes after it was found unreachable"
        )
        yield Cause("not-deleted", text)


def detaching(scene: Scene) -> Iterator[Cause]:
    """Volumes whose detach was asked for."""
    for each in scene.attachments:
        if each.deleting is None:
            continue
        what = f"{each.volume} is being detached from {each.node} for {short_span(each.deleting)}"
        held = [name for name in each.finalizers if name.startswith(ATTACHER_FINALIZER)]
        if each.error:
            text = f"{what}, and its driver {each.driver} refuses: {each.error}"
            yield Cause(
                "driver-refuses",
                text,
                (f"look at the attacher's log of {each.driver}; it tries again by itself",),
            )
        elif held and each.deleting >= ATTACHER_SECONDS:
            text = (
                f"{what}, and its attacher has said nothing: no attacher of {each.driver} runs, or it hangs"
            )
            yield Cause(
                "attacher-silent",
                text,
                (f"look at the controller pod of {each.driver}: is it there, was it on {each.node}",),
            )
        elif each.finalizers and not held:
            text = f"{what}, and has finalizers: {', '.join(each.finalizers)}"
            yield Cause("attachment-finalizers", text, ("look at the controller that set them",))
        else:
            yield Cause("detaching", f"{what} by {each.driver}", ("wait",))


def attached(scene: Scene) -> Iterator[Cause]:
    """Volumes whose detach nobody has asked for, where they are wanted or their node is down."""
    for each in scene.attachments:
        if each.deleting is not None:
            continue
        wanted = [pod for pod in scene.asked if each.claim in pod.claims and pod.node != each.node]
        node = scene.node
        users = [pod for pod in scene.users(each) if pod.deleted is None]
        if wanted:
            text = f"{wanted[0].label} waits for {each.volume}, which is still attached to {each.node}"
            yield Cause("attached-elsewhere", text, (f"ebbtide outage explain {each.node}",))
        elif (
            node is not None and node.is_down and node.taint != "none" and not users and not scene.users(each)
        ):
            text = f"{each.volume} has no pod on {each.node} any more, and its detach has not begun"
            yield Cause(
                "detach-late", text, ("wait some seconds; after that look at kube-controller-manager",)
            )


def nothing(scene: Scene) -> Iterator[Cause]:
    """What is asked about does not hang."""
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
            where = f"on {pod.node}" if pod.node else "no node has it yet"
            yield Cause("not-ready", f"{pod.label} is not Terminating: {pod.waiting or 'it starts'}, {where}")


RULES: tuple[Callable[[Scene], Iterator[Cause]], ...] = (
    node_down,
    node_gone,
    finalizers,
    alive,
    out_of_service,
    detaching,
    attached,
    not_terminating,
    nothing,
)


def causes(scene: Scene) -> list[Cause]:
    """The cause first, then what else holds. One that goes without saying beside others is left out."""
    found = [cause for rule in RULES for cause in rule(scene)]
    telling = [each for each in found if each.code != "nothing-hangs"]
    return telling or found


def timer_text(scene: Scene, attachment: AttachmentScene) -> str:
    """What the six-minute timer does about a volume; empty: it has no part in it."""
    node = scene.node
    if node is None or not node.is_down or node.name != attachment.node or node.taint != "none":
        return ""
    if attachment.deleting is not None:
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
