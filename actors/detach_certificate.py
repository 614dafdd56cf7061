"""The detach certificate: may others detach this node's volumes? Yes, if every pod was seen to end for good.

The second of the three machines of `actors.node_status`. After the last pod's end it has the mounts read and
publishes the certificate, unsafe in doubt. A later finding publishes certificate and mark "drained" anew.
"""

from __future__ import annotations

from msgspec.structs import asdict, replace

from ebbtide.actors.actor import EVERY, Handler, Result, Row, Transitions, ignored, takes
from ebbtide.actors.node_marks import MarksState, announce, call_back, next_key, renewed
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import BoundedDict, BoundedTuple, Event, parse_order_key

UNREAD: tuple[kinds.Mount, ...] = (("", "the mounts could not be read"),)


class CertificateState(MarksState, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """All of it belongs to one shutdown."""

    ended: int = 0
    #: Not seen to end for good.
    running: BoundedTuple[kinds.Uid] = ()
    #: Of these, pods that ended without a confirmed delete, with `made_again`.
    undeleted: BoundedDict[kinds.Uid, bool] = {}
    #: The kubelet may have started pods again: it has not stopped, or no listing has been taken since.
    restarts: bool = False
    look_key: str = ""
    listed: bool = False
    #: Pods without a fate since `PodsEnded`. -1: before it.
    awaited: int = -1
    #: The mounts are ordered to be read, and what was found. None: not read yet.
    asked: bool = False
    check_key: str = ""
    mounted: BoundedTuple[kinds.Mount] | None = None
    certificate_key: str = ""
    #: The open orders. The release waits for them.
    reports: tuple[kinds.Key, ...] = ()

    @property
    def all_ended(self) -> bool:
        return self.listed and not self.running and not self.restarts


def _phase_of(state: CertificateState) -> str:
    if not state.in_episode:
        return "up"
    return "asked" if state.asked else "ending"


_ASKS = (d.CheckMounts, d.AnnounceNode)
_CERTIFIES = (d.DetachCertified, d.PublishCertificate, d.AnnounceNode)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        ("up", "ending", "asked"), _phase_of,
        Row(EVERY, d.ShutdownBegan,
            lambda state, event, now: (renewed(state, CertificateState), ()), "ending"),
        # The pods' ends.
        Row("ending asked", d.PlanMade, lambda state, event, now: (
                replace(state, listed=event.listed) if state.node else state, ())),
        Row("ending asked", d.PodPlanned, _planned_again),
        Row("ending", d.PodEnded, _then_ask(_pod_ended), "= asked", _ASKS),
        Row("asked", d.PodEnded, _then_certify(_pod_ended), decides=_CERTIFIES),
        Row("up", d.PodEnded, _fate_known),
        Row("ending", d.PodsEnded, _then_ask(_pods_ended), "= asked", _ASKS),
        Row("up asked", d.PodsEnded, _pods_ended),
        # May the kubelet have started a pod again?
        Row("ending", d.StopKubelet, takes(restarts=True, look_key="")),
        Row("asked", d.StopKubelet, _then_certify(takes(restarts=True, look_key="")), decides=_CERTIFIES),
        Row("ending", d.KubeletStopped, _kubelet_stopped),
        Row("asked", d.KubeletStopped, _then_certify(_kubelet_stopped), decides=_CERTIFIES),
        Row("ending asked", d.TakeInventory, lambda state, event, now: (
                replace(state, look_key=event.key)
                if state.restarts and state.kubelet_stopped else state, ())),
        Row("ending", f.InventoryTaken, _looked),
        Row("asked", f.InventoryTaken, _then_certify(_looked), decides=_CERTIFIES),
        # The mounts, and the certificate.
        Row("ending", f.OrderEnded, _delete_ended),
        Row("asked", f.OrderEnded, _then_certify(_order_ended), decides=_CERTIFIES),
        Row("asked", f.MountsRead, lambda state, event, now: (
                replace(state, mounted=event.mounted) if event.key == state.check_key else state, ())),
        Row(EVERY, d.ShutdownCancelled, _cancelled, "= up", (d.CancelOrder,)),
        Row(EVERY, d.EpisodeClosed, lambda state, event, now: (renewed(state, CertificateState), ()), "= up"),
        ignored("up", d.PlanMade, d.PodPlanned, d.StopKubelet, d.KubeletStopped, d.TakeInventory,
                f.InventoryTaken, f.OrderEnded),
        ignored("up ending", f.MountsRead),
    )
# fmt: on


def _cancelled(state: CertificateState, event: d.ShutdownCancelled, now: int) -> Result:
    decisions: list[Event] = []
    for target in state.reports:
        state, order = call_back(state, target)
        decisions.append(order)
    return renewed(state, CertificateState), decisions


# --- the pods' ends


def _planned_again(state: CertificateState, event: d.PodPlanned, now: int) -> Result:
    return (_taken_back(state, event.pod.uid), ()) if event.again and state.node else (state, ())


def _taken_back(state: CertificateState, uid: str) -> CertificateState:
    if uid not in state.running:
        return replace(state, ended=max(0, state.ended - 1))
    return replace(
        state,
        running=tuple(each for each in state.running if each != uid),
        undeleted={each: again for each, again in state.undeleted.items() if each != uid},
    )


def made_again(state: MarksState, event: d.PodEnded) -> bool:
    """After a final phase its DaemonSet would create it again, although the kubelet is stopped."""
    return event.returns == "always" or (event.returns == "untainted" and not state.taints)


def _pod_ended(state: CertificateState, event: d.PodEnded, now: int) -> Result:
    state, _ = _fate_known(state, event, now)
    if not state.node:
        return state, ()
    if event.again:
        state = _taken_back(state, event.uid)
    if event.unseen:
        return replace(state, running=(*state.running, event.uid)), ()
    if event.means != "api" or event.deleted:
        return replace(state, ended=state.ended + 1), ()
    # The kubelet may start it again.
    undeleted = {**state.undeleted, event.uid: made_again(state, event)}
    return replace(state, undeleted=undeleted, running=(*state.running, event.uid)), ()


def _delete_ended(state: CertificateState, event: f.OrderEnded, now: int) -> Result:
    """After a delete the kubelet will not start the pod again."""
    key = parse_order_key(event.key)
    uid = key.subject
    if key.what != "delete" or event.result != "done" or uid not in state.undeleted:
        return state, ()
    return replace(_taken_back(state, uid), ended=state.ended + 1), ()


def _fate_known(state: CertificateState, event: d.PodEnded, now: int) -> Result:
    return (replace(state, awaited=state.awaited - 1), ()) if state.awaited > 0 else (state, ())


def _pods_ended(state: CertificateState, event: d.PodsEnded, now: int) -> Result:
    """``unfinished`` pods still get their `PodEnded` in this step."""
    return replace(state, awaited=len(event.unfinished)), ()


# --- may the kubelet have started a pod again?


def _kubelet_stopped(state: CertificateState, event: d.KubeletStopped, now: int) -> Result:
    """A kubelet that could not be stopped goes on starting pods."""
    return (
        (state, ())
        if event.result in ("done", "unknown")
        else (replace(state, restarts=True, look_key=""), ())
    )


def _looked(state: CertificateState, event: f.InventoryTaken, now: int) -> Result:
    """Pods that run again have joined before."""
    if event.key != state.look_key or event.part < event.parts or event.source == f.FROM_TABLE:
        return state, ()
    return replace(state, restarts=False, look_key=""), ()


# --- the mounts, and the certificate


def _then_ask(note: Handler) -> Handler:
    """After the last pod's fate have the mounts read: until then they change."""

    def handle(state: CertificateState, event: Event, now: int) -> Result:
        state, _ = note(state, event, now)
        if state.awaited or not state.means:
            return state, ()
        state = replace(state, asked=True, drained=state.all_ended)
        if not state.ours:
            return state, ()
        state, key = next_key(state, "mounts")
        check = d.CheckMounts(key=key)
        state = replace(state, check_key=key, reports=(*state.reports, key))
        if not state.drained:
            return state, [check]
        state, announced = announce(state, ready=False)
        return state, [check, announced]

    return handle


def _then_certify(note: Handler) -> Handler:
    """Publish anew if the handler changes whether all pods have ended."""

    def handle(state: CertificateState, event: Event, now: int) -> Result:
        before, (state, made) = state.all_ended, note(state, event, now)
        if state.all_ended == before or not state.ours:
            return state, made
        decisions: list[Event] = [*made]
        if state.certificate_key:
            state, published = _publish(state)
            decisions += published
        state, announced = announce(replace(state, drained=state.all_ended), ready=False)
        return state, [*decisions, announced]

    return handle


def _order_ended(state: CertificateState, event: f.OrderEnded, now: int) -> Result:
    state, _ = _delete_ended(state, event, now)
    if event.key not in state.reports:
        return state, ()
    state = replace(state, reports=tuple(key for key in state.reports if key != event.key))
    if event.key != state.check_key:
        return state, ()
    mounted = state.mounted if event.result == "done" else None
    return _publish(replace(state, check_key="", mounted=mounted))


def _publish(state: CertificateState) -> tuple[CertificateState, list[Event]]:
    """Unsafe without the mounts: others may detach this node's volumes because of it."""
    mounted = UNREAD if state.mounted is None else state.mounted
    state, key = next_key(state, "certificate")
    state = replace(state, certificate_key=key, reports=(*state.reports, key))
    certified = d.DetachCertified(
        safe=state.all_ended and not mounted,
        ended=state.ended,
        running=state.running,
        mounted=mounted,
        restarts=state.restarts,
    )
    return state, [certified, d.PublishCertificate(key=key, **asdict(certified))]


CERTIFICATE = _transitions()
