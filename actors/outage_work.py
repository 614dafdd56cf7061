"""StuckPodActor and DetachActor: one actor a pod and one a VolumeAttachment of the node, to its end.

    StuckPodActor    bound -> terminating -> gone -> over
    DetachActor      attached -> detaching -> over

They order only Events on the pods, and record what each object waits for (`actors.hang`). A pod is over when
its object is gone and, if a controller creates it again, another pod of its owner is Ready elsewhere: under
the same name, or beyond the new pods that earlier lost pods count for (``place``).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Result, Row, State, Transitions, ignored, takes
from ebbtide.actors.hang import TEXTS, pod_hang
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events import outage_events as o
from ebbtide.events.base import BoundedDict, BoundedTuple, Event, order_key

POD_NAME, ATTACHMENT_NAME = "StuckPodActor", "DetachActor"
EVENT_REASON = "NodeOutage"

# --- a pod

PodPhase = Literal["fresh", "bound", "terminating", "gone", "over"]


class Successor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``node``: where it is Ready; empty: not Ready."""

    node: str = ""
    waiting: str = ""


class StuckPodState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: PodPhase = "fresh"
    pod: o.LostPod | None = None
    place: int = 0
    #: These had replaced other pods, so they are no successors.
    replaced: BoundedTuple[kinds.Uid] = ()
    #: By UID.
    successors: BoundedDict[kinds.Uid, Successor] = {}
    #: The taint's effect; empty: no taint yet.
    effect: kinds.Word = ""
    since_ns: int = 0
    ordinal: int = 0
    #: Its owner has as many Ready pods as it wants.
    enough: bool = False

    @property
    def lost(self) -> o.LostPod:
        """Not in ``fresh``."""
        assert self.pod is not None
        return self.pod


_SAYS = (o.PodWaits, o.PostOutageEvent)


# fmt: off
def _pod_transitions() -> Transitions:
    return Transitions(
        get_args(PodPhase), attrgetter("phase"),
        Row("fresh", o.PodLost, _lost, "bound terminating", decides=_SAYS),
        # This leader has another clock.
        Row("bound terminating gone", o.LeaderStarted,
            lambda state, event, now: (replace(state, since_ns=now), ())),
        Row("bound terminating", o.LostPodRead, lambda state, event, now: _bound(state, event.pod),
            "bound terminating", decides=_SAYS),
        Row("bound terminating", o.LostPodGone, _pod_gone, "gone over", decides=(o.PodWaits, o.PodRecovered)),
        Row("bound terminating", o.WorkListed, _pod_listed, "bound terminating gone over",
            decides=(*_SAYS, o.PodRecovered)),
        Row("bound terminating gone", o.ElsewhereRead, _elsewhere, "= over",
            decides=(o.PodWaits, o.PodRecovered)),
        Row("bound terminating gone", o.OwnerRead, _owner_read, "= over", decides=(o.PodRecovered,)),
        Row("bound", o.NodeDeleted, _node_back, "= over", decides=(o.PodRecovered,)),
        Row("bound terminating gone", o.OutOfService,
            lambda state, event, now: _say(state, replace(state, effect=event.effect)), decides=_SAYS),
        Row("bound", o.NodeReturned, _node_back, "over", decides=(o.PodRecovered,)),
        ignored("bound terminating gone over", o.PodLost),
        ignored("fresh over", o.LeaderStarted, o.ElsewhereRead, o.OwnerRead, o.OutOfService),
        ignored("fresh gone over", o.LostPodRead, o.LostPodGone, o.WorkListed),
        ignored("fresh terminating gone over", o.NodeDeleted, o.NodeReturned),
        ignored(EVERY, f.OrderEnded),
    )
# fmt: on


def _lost(state: StuckPodState, event: o.PodLost, now: int) -> Result:
    found = replace(state, place=event.place, replaced=event.replaced, effect=event.effect, since_ns=now)
    return _bound(found, event.pod)


def _bound(state: StuckPodState, pod: o.LostPod) -> Result:
    return _say(state, replace(state, phase="terminating" if pod.terminating else "bound", pod=pod))


def _reason(state: StuckPodState) -> str:
    if state.pod is None:
        return ""
    pod = state.pod
    if state.phase == "gone":
        waiting = next((each.waiting for each in state.successors.values() if each.waiting), "")
        return waiting or f"{pod.owner or 'its controller'} has no Ready pod in its place"
    code = pod_hang(
        terminating=pod.terminating,
        finalizers=pod.finalizers,
        tolerates=pod.tolerates,
        effect=state.effect,
    )
    return TEXTS[code].format(finalizers=", ".join(pod.finalizers))


def _say(before: StuckPodState, state: StuckPodState) -> Result:
    pod, reason, text = state.lost, _reason(state), _event_text(state)
    said: list[Event] = [o.PodWaits(uid=pod.uid, reason=reason)] if reason != _reason(before) else []
    if not text or text == _event_text(before):
        return state, said
    order = o.PostOutageEvent(
        key=order_key(POD_NAME, "event", pod.uid, state.ordinal),
        kind="Pod",
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        reason=EVENT_REASON,
        message=text,
        warning=True,
    )
    return replace(state, ordinal=state.ordinal + 1), [*said, order]


def _event_text(state: StuckPodState) -> str:
    """Empty: it is gone, or runs on as far as Kubernetes knows."""
    hangs = state.phase == "terminating" or (state.phase == "bound" and state.effect)
    return f"Its node is down: {_reason(state)}" if hangs else ""


def _pod_gone(state: StuckPodState, event: Event, now: int) -> Result:
    return _succeeded(state, replace(state, phase="gone"), now)


def _pod_listed(state: StuckPodState, event: o.WorkListed, now: int) -> Result:
    """A pod that is missing in a new leader's list is gone."""
    found = next((pod for pod in event.pods if pod.uid == state.lost.uid), None)
    return _pod_gone(state, event, now) if found is None else _bound(state, found)


def _elsewhere(state: StuckPodState, event: o.ElsewhereRead, now: int) -> Result:
    pod = state.lost
    # Anyone may name an owner of another namespace in a pod of theirs.
    owner = pod.namespace, pod.owner_uid
    mine = (event.namespace, event.owner_uid) == owner and pod.owner_uid and event.uid != pod.uid
    if not mine or event.uid in state.replaced or (pod.same_name and event.name != pod.name):
        return state, ()
    told = Successor(node=event.node if event.ready else "", waiting=event.waiting)
    successors = {**state.successors, event.uid: told}
    if not event.node and not event.waiting:  # gone: new pods may come and go without an end
        del successors[event.uid]
    after = replace(state, successors=successors)
    return _succeeded(state, after, now) if state.phase == "gone" else (after, ())


def _succeeded(before: StuckPodState, state: StuckPodState, now: int) -> Result:
    pod = state.lost
    ready = [(uid, each.node) for uid, each in state.successors.items() if each.node]
    place = 0 if pod.same_name else state.place
    if pod.owner_uid and len(ready) > place:
        return _over(state, *ready[place], now)
    if pod.owner_uid and not state.enough:
        return _say(before, state)
    return _over(state, "", "", now)


def _over(state: StuckPodState, by: str, node: str, now: int) -> Result:
    elapsed_ns = max(0, now - state.since_ns)
    enough = state.enough and not by
    over = o.PodRecovered(uid=state.lost.uid, by=by, node=node, elapsed_ns=elapsed_ns, enough=enough)
    return replace(state, phase="over"), [over]


def _owner_read(state: StuckPodState, event: o.OwnerRead, now: int) -> Result:
    """Scaled down, rolled out or finished: no pod replaces this one."""
    pod = state.lost
    if (event.namespace, event.owner_uid) != (pod.namespace, pod.owner_uid):
        return state, ()
    after = replace(state, enough=event.ready >= event.wants)
    return _succeeded(state, after, now) if state.phase == "gone" else (after, ())


def _node_back(state: StuckPodState, event: o.NodeReturned | o.NodeDeleted, now: int) -> Result:
    """The taint did not delete it: its kubelet runs it again, perhaps under a new Node of that name."""
    if isinstance(event, o.NodeDeleted) and not event.replaced:
        return state, ()
    return _over(state, state.lost.uid, "", now)


STUCK_POD = ActorType(POD_NAME, StuckPodState, _pod_transitions(), lambda state: NEVER_NS)

# --- an attachment

AttachmentPhase = Literal["fresh", "attached", "detaching", "over"]


class DetachState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: AttachmentPhase = "fresh"
    name: kinds.Uid = ""
    volume: str = ""
    unique_name: kinds.VolumeInUse = ""
    driver: str = ""
    error: str = ""
    tainted: bool = False
    since_ns: int = 0
    #: By the Node as last read, a detach would be forced. Not from the taint's order on: the detach may be on
    #: record before the taint.
    unsafe: bool = False
    forced: bool = False
    #: The same by an earlier leader, until this leader has listed the attachments.
    before: bool = False
    #: Perhaps detached since our taint was ordered, or since an earlier leader looked.
    gap: bool = False


# fmt: off
def _attachment_transitions() -> Transitions:
    return Transitions(
        get_args(AttachmentPhase), attrgetter("phase"),
        Row("fresh", o.AttachmentLeft, _left, "attached detaching", decides=(o.DetachForced, o.DetachWaits)),
        Row("attached detaching", o.SetTaint, takes(unsafe=False, gap=True)),
        Row("attached detaching", o.LeaderStarted, _watched_anew),
        Row("attached detaching", o.NodeRead, _node_seen),
        Row("attached detaching", o.AttachmentRead, lambda state, event, now: _seen(state, event.attachment),
            "attached detaching", decides=(o.DetachForced, o.DetachWaits)),
        Row("attached detaching", o.AttachmentGone, _attachment_gone, "over",
            decides=(o.DetachForced, o.Detached)),
        Row("attached detaching", o.WorkListed, _attachment_listed, "attached detaching over",
            decides=(o.DetachForced, o.DetachWaits, o.Detached)),
        Row("attached detaching", o.OutOfService,
            lambda state, event, now: _say_of(state, replace(state, tainted=True, unsafe=False)),
            decides=(o.DetachWaits,)),
        Row("attached", o.NodeReturned, _kept, "over", decides=(o.Detached,)),
        Row("attached", o.NodeDeleted, _kept, "= over", decides=(o.Detached,)),
        ignored("attached detaching over", o.AttachmentLeft),
        ignored("fresh over", o.SetTaint, o.LeaderStarted, o.NodeRead, o.OutOfService),
        ignored("fresh over", o.AttachmentRead, o.AttachmentGone, o.WorkListed),
        ignored("fresh detaching over", o.NodeDeleted, o.NodeReturned),
    )
# fmt: on


def is_unsafe(
    unique_name: str, driver: str, ready: o.Ready, taint: o.TaintOwner, in_use: tuple[str, ...]
) -> bool:
    """A detach would be forced: the node is not Ready and has no out-of-service taint, and its kubelet last
    reported the volume in use. Without the volume's name: any volume of its driver.
    """
    prefix = f"{kinds.CSI_VOLUME}{driver}^" if driver else ""
    used = unique_name in in_use if unique_name else any(each.startswith(prefix) for each in in_use)
    return used and ready != "True" and taint == "none"


def _left(state: DetachState, event: o.AttachmentLeft, now: int) -> Result:
    found = replace(
        state,
        name=event.attachment.name,
        volume=event.attachment.volume,
        unique_name=event.attachment.unique_name,
        driver=event.attachment.driver,
        tainted=event.tainted,
        since_ns=now,
        unsafe=event.unsafe,
    )
    return _seen(found, event.attachment)


def _seen(state: DetachState, found: o.Attachment) -> Result:
    phase: AttachmentPhase = "detaching" if found.deleting else "attached"
    after = replace(state, phase=phase, error=found.error, gap=state.gap and found.deleting)
    after, forced = _forced(after) if found.deleting and state.phase != "detaching" else (after, [])
    after, waits = _say_of(state, after)
    return after, [*forced, *waits]


def _forced(state: DetachState) -> tuple[DetachState, list[Event]]:
    """No kubelet has confirmed the unmount. This is not sure without the volume's name, or if no leader
    watched: the kubelet may have confirmed it, or the detach began under our taint, which a person removed.
    """
    if not state.unsafe and not state.before:
        return state, []
    sure = state.unsafe and bool(state.unique_name) and not state.gap
    return replace(state, forced=True), [o.DetachForced(name=state.name, volume=state.volume, sure=sure)]


def _node_seen(state: DetachState, event: o.NodeRead, now: int) -> Result:
    unsafe = is_unsafe(state.unique_name, state.driver, event.ready, event.taint, event.volumes_in_use)
    # Between two leaders the order of taint and detach is unknown. Most detaches follow the taint.
    return replace(state, unsafe=unsafe, before=state.before and event.taint == "none"), ()


def _watched_anew(state: DetachState, event: o.LeaderStarted, now: int) -> Result:
    """Between the two leaders the volume may have been detached."""
    return replace(
        state, since_ns=now, before=state.before or state.unsafe, gap=state.gap or state.tainted
    ), ()


def _reason_of(state: DetachState) -> str:
    if state.phase == "fresh":
        return ""
    if state.error:
        return state.error
    if state.phase == "detaching":
        return TEXTS["detaching"]
    return TEXTS["detach-late" if state.tainted else "node-down"]


def _say_of(before: DetachState, state: DetachState) -> Result:
    reason = _reason_of(state)
    return state, [o.DetachWaits(name=state.name, reason=reason)] if reason != _reason_of(before) else ()


def _attachment_gone(state: DetachState, event: Event, now: int) -> Result:
    # Perhaps before its deletionTimestamp was seen.
    after, forced = _forced(state) if state.phase == "attached" else (state, [])
    gone = o.Detached(
        name=state.name,
        elapsed_ns=max(0, now - state.since_ns),
        before_taint=not state.tainted,
        forced=after.forced,
    )
    return replace(after, phase="over"), [*forced, gone]


def _attachment_listed(state: DetachState, event: o.WorkListed, now: int) -> Result:
    found = next((each for each in event.attachments if each.name == state.name), None)
    after, decisions = _attachment_gone(state, event, now) if found is None else _seen(state, found)
    return replace(after, before=False), decisions


def _kept(state: DetachState, event: o.NodeReturned | o.NodeDeleted, now: int) -> Result:
    """No detach was asked for: a pod that still runs here keeps it."""
    if isinstance(event, o.NodeDeleted) and not event.replaced:
        return state, ()
    kept = o.Detached(name=state.name, elapsed_ns=max(0, now - state.since_ns), kept=True)
    return replace(state, phase="over"), [kept]


DETACH = ActorType(ATTACHMENT_NAME, DetachState, _attachment_transitions(), lambda state: NEVER_NS)
