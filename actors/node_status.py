"""NodeStatusActor: what the cluster sees of this node. One actor of three machines, each with its own table.

1. `actors.node_marks`: the marks on the Node. 2. `actors.detach_certificate`: may others detach its volumes?
3. Here: its pods' statuses. An event goes to them in this order.

Only the release waits for the last writes, for a bounded time. A running kubelet overwrites our statuses, so
ours wait until it is stopped. A pod that comes back gets no terminal phase: its controller would make another
one, and the kubelet would not start it again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Handler,
    Machines,
    Result,
    Row,
    Transitions,
    ignored,
)
from ebbtide.actors.detach_certificate import CERTIFICATE, CertificateState, made_again
from ebbtide.actors.node_marks import MARKS, NAME, call_back, next_key, renewed
from ebbtide.actors.policy.grace_periods import FALLBACK_MARGIN_NS
from ebbtide.actors.policy.termination_mode import pods_come_back
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, BoundedTuple, Event, parse_order_key
from ebbtide.events.values import LeftPods

# The kubelet's texts (pkg/kubelet/nodeshutdown): people and alerts look for them.
POD_REASON = "Terminated"
POD_MESSAGE = "Pod was terminated in response to imminent node shutdown."
REJECT_REASON = "NodeShutdown"
REJECT_MESSAGE = "Pod was rejected as the node is shutting down."
#: In the status, not in the Event.
REJECTED_PREFIX = "Pod was rejected: "

#: On the workload of a pod that did not end by itself.
KILLED_REASON = "PodKilledAtNodeShutdown"

#: A pod that ends within this time leaves its Services by its final status: a second write would double the
#: API server's load.
WITHDRAW_NS = 200_000_000

#: From the last pod's end on, for a silent API server. Undelivered statuses wait for the next boot.
SILENT_FLUSH_NS = NS_PER_SECOND

#: At its end the wait for the kubelet's statuses reports the missing ones.
REPORT_NS = 50_000_000

WITHOUT_STATUS = ("spared", "unknown")

SEEN_OUTCOMES = ("graceful", "killed")

PodStatus = kinds.PodStatus


class NodeStatusState(CertificateState, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``flush_ns`` and ``trace_flush_ns`` are periods, other ``_ns`` monotonic times."""

    flush_ns: int = 0
    trace_flush_ns: int = 0
    left_pods: LeftPods = "keep"
    release_by_ns: int = NEVER_NS
    #: To be delivered, and the deliveries under way by order key.
    pending: tuple[PodStatus, ...] = ()
    deliveries: BoundedDict[kinds.Key, tuple[PodStatus, ...]] = {}
    #: UIDs whose due status is not confirmed.
    missing: tuple[kinds.Uid, ...] = ()
    #: When the wait for the last statuses began, and when it ends at the latest.
    flush_since_ns: int = 0
    flush_by_ns: int = NEVER_NS
    #: The trace goes to another server, and may take longer than the statuses.
    traces_key: kinds.Key = ""
    traces_by_ns: int = 0
    only_traces: bool = False
    await_key: str = ""
    #: To be delivered when the API server answers again.
    late_statuses: tuple[PodStatus, ...] = ()
    #: To leave their Services when no kubelet puts them back.
    withheld: BoundedTuple[kinds.Uid] = ()
    withdraw_at_ns: int = NEVER_NS
    #: Written by the kubelet, or by us when it is stopped.
    followed: tuple[PodStatus, ...] = ()
    #: Of deleted pods that no kubelet removes any more: we remove the objects too.
    orphaned: tuple[PodStatus, ...] = ()
    told_owners: BoundedTuple[kinds.NamespacedOwner] = ()
    #: UIDs whose status was delivered a second time in this shutdown.
    given_again: tuple[kinds.Uid, ...] = ()
    #: Deliveries from before this shutdown. Their pods may run again, so a lost status goes only to an
    #: unchanged pod.
    earlier: tuple[kinds.Key, ...] = ()
    # A shutdown of this boot ended these pods without a status: it was cancelled, or they were to come back.
    # The next shutdown writes it. ``held_deleted``: their objects are deleted.
    held: tuple[PodStatus, ...] = ()
    held_deleted: tuple[PodStatus, ...] = ()
    #: UIDs of both that the kubelet has had since: a later cancelled shutdown drops them.
    held_before: BoundedTuple[kinds.Uid] = ()
    #: The boot and userspace that ended them.
    home: str = ""


KEPT_FIELDS = (
    *("flush_ns", "trace_flush_ns", "left_pods", "pending", "deliveries", "late_statuses"),
    *("held", "held_deleted", "held_before", "home"),
)


def phase_of(state: NodeStatusState) -> str:
    if state.flush_by_ns == NEVER_NS:
        return "shutting-down" if state.in_episode else "up"
    return "flushing" if state.in_episode else "flushing-after-cancel"


_LAST = (d.AwaitStatuses, d.DeliverStatuses, d.StatusesSettled)
_ENDED = (d.PostEvent, d.DeliverStatuses)
_REJECTED = (d.PodRejected, d.DeliverStatuses)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        # flushing: waits for the last statuses and reports; flushing-after-cancel: while the machine stays
        # up.
        ("up", "shutting-down", "flushing", "flushing-after-cancel"), phase_of,
        Row(EVERY, f.DaemonStarted, _started),
        Row(EVERY, d.ConfigAdopted, _config_adopted),
        # Its pods.
        Row(EVERY, d.ShutdownBegan, _began, "shutting-down"),
        Row(EVERY, d.PodPlanned, _pod_planned),
        Row("shutting-down", f.PodAppeared, _pod_rejected, decides=_REJECTED),
        Row("flushing", f.PodAppeared, _then_flush(_pod_rejected), "= shutting-down", (*_REJECTED, *_LAST)),
        Row("up flushing-after-cancel", f.PodAppeared, _pod_admitted, decides=(d.StartPod,)),
        Row(EVERY, d.WaveStarted, _wave_started),
        Row(EVERY, d.HandedOver, _handed_over, decides=(d.CancelOrder,)),
        Row("shutting-down up", d.KubeletStopped, _kubelet_stopped),
        Row("flushing", d.KubeletStopped, _then_flush(_kubelet_stopped), "= shutting-down", _LAST),
        Row("flushing-after-cancel", d.KubeletStopped, _then_flush(_kubelet_stopped), "= up", _LAST),
        Row("shutting-down", d.PodEnded, _pod_ended_delivering, decides=_ENDED),
        Row("up", d.PodEnded, _pod_ended, decides=_ENDED),
        Row("flushing", d.PodEnded, _then_flush(_pod_ended), "= shutting-down", (*_ENDED, *_LAST)),
        Row("flushing-after-cancel", d.PodEnded, _then_flush(_pod_ended), "= up", (*_ENDED, *_LAST)),
        Row(EVERY, d.WaveEnded, lambda state, event, now: _deliver(state, []), decides=(d.DeliverStatuses,)),
        # The last statuses.
        Row("shutting-down flushing", d.PodsEnded, _pods_ended_in_shutdown, "shutting-down flushing",
            (d.FlushTraces, *_LAST)),
        Row("up flushing-after-cancel", d.PodsEnded, _pods_ended, "up flushing-after-cancel",
            (d.FlushTraces, *_LAST)),
        Row(EVERY, d.DeadlineMoved, _deadline_moved),
        Row(EVERY, f.StatusesSeen, _statuses_seen, decides=(d.LeftUndone,)),
        Row("up shutting-down", f.Tick, _tick, decides=(d.WithdrawPods,)),
        Row("flushing", f.Tick, _tick_flushing, "= shutting-down", (d.WithdrawPods, d.StatusesSettled)),
        Row("flushing-after-cancel", f.Tick, _tick_flushing, "= up", (d.WithdrawPods, d.StatusesSettled)),
        # How its orders ended.
        Row("up shutting-down", f.OrderEnded, _order_ended, decides=(d.DeliverStatuses,)),
        Row("flushing", f.OrderEnded, _then_flush(_order_ended), "= shutting-down", _LAST),
        Row("flushing-after-cancel", f.OrderEnded, _then_flush(_order_ended), "= up", _LAST),
        Row("up flushing-after-cancel", f.ApiRead, lambda state, event, now: _deliver_late(state),
            decides=(d.DeliverStatuses,)),
        ignored("shutting-down", f.ApiRead),
        Row("flushing", f.ApiRead, _api_read_flushing),
        # The machine stays up, or has come back.
        Row(EVERY, d.ShutdownCancelled, _cancelled, "up"),
        Row(EVERY, d.EpisodeClosed, _closed, "up", (d.DeliverStatuses, d.StatusesSettled)),
    )
# fmt: on


def _started(state: NodeStatusState, event: f.DaemonStarted, now: int) -> Result:
    """In another boot or userspace ended pods may run again."""
    home = f"{event.boot_id}/{event.userspace_id}"
    if not state.node or home == state.home:
        return state, ()
    return replace(state, held=(), held_deleted=(), held_before=(), home=home), ()


def _config_adopted(state: NodeStatusState, event: d.ConfigAdopted, now: int) -> Result:
    return replace(
        state,
        flush_ns=event.status_flush_ns,
        trace_flush_ns=event.trace_flush_ns,
        left_pods=event.left_pods,
    ), ()


# --- its pods


def _began(state: NodeStatusState, event: d.ShutdownBegan, now: int) -> Result:
    earlier = tuple(key for key, each in state.deliveries.items() if each) if state.node else ()
    state = renewed(state, NodeStatusState, *KEPT_FIELDS)
    return replace(state, earlier=earlier, release_by_ns=event.release_by_ns), ()


def _pod_planned(state: NodeStatusState, event: d.PodPlanned, now: int) -> Result:
    """The pod runs: drop the status of an earlier end."""
    if event.again and state.node:
        return _not_ended(state, event.pod.uid), ()
    known = (*state.held, *state.held_deleted, *state.pending, *state.orphaned)
    return (_dropped(state, event.pod.uid) if event.pod.uid in [each[0] for each in known] else state), ()


def _dropped(state: NodeStatusState, uid: str) -> NodeStatusState:
    return replace(
        state,
        held=_without(state.held, uid),
        held_deleted=_without(state.held_deleted, uid),
        held_before=tuple(each for each in state.held_before if each != uid),
        pending=_without(state.pending, uid),
        orphaned=_without(state.orphaned, uid),
        missing=tuple(each for each in state.missing if each != uid),
    )


def _without(statuses: tuple[PodStatus, ...], uid: str) -> tuple[PodStatus, ...]:
    return tuple(status for status in statuses if status[0] != uid)


def _not_ended(state: NodeStatusState, uid: str) -> NodeStatusState:
    # A delivery under way may still arrive; if it is lost, it is not repeated.
    deliveries = {key: _without(statuses, uid) for key, statuses in state.deliveries.items()}
    return replace(_dropped(state, uid), followed=_without(state.followed, uid), deliveries=deliveries)


def _pod_admitted(state: NodeStatusState, event: f.PodAppeared, now: int) -> Result:
    # On a node the kubelet admits it.
    if state.node:
        return state, ()
    state, key = next_key(state, "start", event.pod.uid)
    return state, [d.StartPod(key=key, uid=event.pod.uid)]


def _pod_rejected(state: NodeStatusState, event: f.PodAppeared, now: int) -> Result:
    """Rejects static and critical pods too, as the kubelet does. On a node only for a stopped kubelet; the
    status also before a reboot, so that another node gets the pod.
    """
    pod = event.pod
    if state.node and not (state.kubelet_stopped or state.kubelet_stopping):
        return state, ()
    said: list[Event] = [
        d.PodRejected(uid=pod.uid, label=pod.label, reason=REJECT_REASON, message=REJECT_MESSAGE)
    ]
    if not state.node or (pod.daemon and (pod.tolerates_all or not state.taints)):
        return state, said
    status = (pod.uid, "Failed", REJECT_REASON, f"{REJECTED_PREFIX}{REJECT_MESSAGE}", ())
    return _deliver_now(replace(state, pending=(*state.pending, status)), said)


def _wave_started(state: NodeStatusState, event: d.WaveStarted, now: int) -> Result:
    """A delete takes a pod out of its Services; a pod without one has to be taken out (kubernetes#116965)."""
    if state.means != "cri" and not event.handover:
        return state, ()
    state = replace(state, withheld=(*state.withheld, *(pod.uid for pod in event.pods)))
    return (_withdraw_soon(state, now) if state.kubelet_stopped else state), ()


def _withdraw_soon(state: NodeStatusState, now: int) -> NodeStatusState:
    return replace(state, withdraw_at_ns=min(state.withdraw_at_ns, now + WITHDRAW_NS))


def _handed_over(state: NodeStatusState, event: d.HandedOver, now: int) -> Result:
    """From now on we write the statuses. A pod without a confirmed delete keeps its object, and may come
    back.
    """
    alone = tuple(status for status in state.followed if status[0] in state.undeleted)
    written = tuple(status for status in alone if not state.undeleted[status[0]])
    deleted = tuple(status for status in state.followed if status not in alone)
    where, target = "held" if pods_come_back(state.kind) else "pending", state.await_key
    state = replace(
        _with_missing(state),
        orphaned=(*state.orphaned, *deleted),
        followed=alone,
        await_key="",
        **{where: (*getattr(state, where), *written)},
    )
    if target not in state.deliveries:
        return state, ()
    state, order = call_back(_answered(state, target), target)
    return state, [order]


def _kubelet_stopped(state: NodeStatusState, event: d.KubeletStopped, now: int) -> Result:
    """A stopped kubelet overwrites no status, and puts no pod back into its Services."""
    return (_withdraw_soon(state, now) if state.kubelet_stopped and state.withheld else state), ()


def _pod_ended_delivering(state: NodeStatusState, event: d.PodEnded, now: int) -> Result:
    """Delivers at once, so that a controller replaces the pod before the wave's end."""
    state, decisions = _pod_ended(state, event, now)
    # The end of an unseen pod starts no delivery: the next boot closes the last one's pods this way, and its
    # statuses go only to unchanged pods.
    seen = event.outcome in SEEN_OUTCOMES or event.gone
    return _deliver_now(state, decisions) if seen and state.node else (state, decisions)


def _pod_ended(state: NodeStatusState, event: d.PodEnded, now: int) -> Result:
    before = state = _not_ended(state, event.uid) if state.node and event.again else state
    state = _hold_status(_with_status(state, event), event)
    status_goes_out = state.pending is not before.pending or state.orphaned is not before.orphaned
    if status_goes_out and event.uid in state.withheld:
        state = replace(state, withheld=tuple(uid for uid in state.withheld if uid != event.uid))
    if not state.node or event.outcome != "killed" or not event.owner:
        return state, ()
    owner = f"{event.namespace}/{event.owner}"
    if owner in state.told_owners:
        return state, ()
    kind, _, name = event.owner.partition("/")
    state, key = next_key(state, "owner", event.uid)
    order = d.PostEvent(
        key=key,
        kind=kind,
        name=name,
        namespace=event.namespace,
        reason=KILLED_REASON,
        message=f"Pod {event.name} had to be killed when its node went down: {event.reason}",
        warning=True,
    )
    return replace(state, told_owners=(*state.told_owners, owner)), [order]


def _with_status(state: NodeStatusState, event: d.PodEnded) -> NodeStatusState:
    """A pod that comes back here, or may still run, gets no final status."""
    # The kubelet, too, reports a pod that is gone as Failed.
    if event.outcome in WITHOUT_STATUS and not event.gone:
        return state
    if state.node and (event.unseen or not state.in_episode):
        return state
    status = _final_status(event)
    if event.means in ("api", "observe") and event.means == state.means:
        return replace(state, followed=(*state.followed, status))
    if event.deleted:
        return replace(state, orphaned=(*state.orphaned, status))
    if state.node and (pods_come_back(state.kind) or made_again(state, event)):
        return state
    return replace(state, pending=(*state.pending, status))


def _hold_status(state: NodeStatusState, event: d.PodEnded) -> NodeStatusState:
    waits = pods_come_back(state.kind) or not state.in_episode
    if not state.node or not waits or event.means != "cri" or event.outcome not in SEEN_OUTCOMES:
        return state
    if event.deleted:
        # In a shutdown its status is written at once: the object goes in any case.
        kept = (*state.held_deleted, _final_status(event))
        return state if state.in_episode else replace(state, held_deleted=kept)
    return state if made_again(state, event) else replace(state, held=(*state.held, _final_status(event)))


def _final_status(event: d.PodEnded) -> PodStatus:
    phase = "Succeeded" if event.succeeded else "Failed"
    return event.uid, phase, POD_REASON, POD_MESSAGE, event.exit_codes


def _deliver_now(state: NodeStatusState, decisions: Sequence[Event]) -> Result:
    """One delivery at a time: a wave of a hundred pods needs few. None while the kubelet is being stopped,
    since it would overwrite them.
    """
    waits = state.kubelet_stopping or any(state.deliveries.values())
    return (state, [*decisions]) if waits else _deliver(state, decisions)


def _deliver(state: NodeStatusState, decisions: Sequence[Event]) -> tuple[NodeStatusState, list[Event]]:
    made = [*decisions]
    for statuses, remove in ((state.pending, _removes_objects(state)), (state.orphaned, True)):
        if statuses:
            state, order = _send_statuses(state, statuses, remove=remove)
            made.append(order)
    return (replace(state, pending=(), orphaned=()) if state.pending or state.orphaned else state), made


def _removes_objects(state: NodeStatusState) -> bool:
    return state.node and state.left_pods == "delete"


def _send_statuses(
    state: NodeStatusState, statuses: tuple[PodStatus, ...], *, remove: bool, unchanged_only: bool = False
) -> tuple[NodeStatusState, d.DeliverStatuses]:
    state, key = next_key(state, "deliver")
    order = d.DeliverStatuses(key=key, statuses=statuses, remove=remove, unchanged_only=unchanged_only)
    return _wait_for(state, key, statuses), order


def _wait_for(state: NodeStatusState, key: str, statuses: tuple[PodStatus, ...] = ()) -> NodeStatusState:
    return replace(state, deliveries={**state.deliveries, key: statuses})


def _answered(state: NodeStatusState, key: str) -> NodeStatusState:
    return replace(state, deliveries={each: sent for each, sent in state.deliveries.items() if each != key})


def _tick(state: NodeStatusState, event: f.Tick, now: int) -> Result:
    if state.withdraw_at_ns > now:
        return state, ()
    state, uids = replace(state, withdraw_at_ns=NEVER_NS, withheld=()), state.withheld
    if not uids:
        return state, ()
    state, key = next_key(state, "withdraw")
    return state, [d.WithdrawPods(key=key, uids=uids)]


def _pods_ended_in_shutdown(state: NodeStatusState, event: d.PodsEnded, now: int) -> Result:
    """Delivers the held statuses of pods that have not come back. Not sooner, because the second listing may
    find such a pod; and only in mode cri, since a running kubelet knows its pods.
    """
    if state.means == "cri" and state.listed:
        state = replace(state, orphaned=(*state.orphaned, *state.held_deleted), held_deleted=())
        if not pods_come_back(state.kind):
            state = replace(state, pending=(*state.pending, *state.held), held=())
    return _pods_ended(replace(state, flush_since_ns=now) if state.means else state, event, now)


def _pods_ended(state: NodeStatusState, event: d.PodsEnded, now: int) -> Result:
    """A silent API server has less than the configured time. One that answers may still take no writes."""
    silent = bool(state.means) and state.api is False and state.in_episode
    flush_ns = min(state.flush_ns, SILENT_FLUSH_NS) if silent else state.flush_ns
    last_ns = state.release_by_ns - FALLBACK_MARGIN_NS
    state = replace(state, flush_by_ns=max(now, min(now + flush_ns, last_ns)), only_traces=False)
    if not state.trace_flush_ns:
        return _flush(state, [], now)
    state, key = next_key(state, "traces")
    traces_by_ns = min(now + state.trace_flush_ns, last_ns)
    state = replace(_wait_for(state, key), traces_key=key, traces_by_ns=traces_by_ns)
    return _flush(state, [d.FlushTraces(key=key, timeout_ns=state.trace_flush_ns)], now)


def _then_flush(handle: Handler) -> Handler:
    return lambda state, event, now: _flush(*handle(state, event, now), now)


def _flush(state: NodeStatusState, decisions: Sequence[Event], now: int) -> Result:
    made = [*decisions]
    if state.awaited > 0:
        return state, made
    if state.in_episode and state.followed and state.means in ("api", "observe") and not state.await_key:
        state, key = next_key(state, "await")
        uids = tuple(uid for uid, *_ in state.followed)
        made.append(
            d.AwaitStatuses(key=key, uids=uids, timeout_ns=max(0, state.flush_by_ns - now - REPORT_NS))
        )
        state = replace(_wait_for(state, key), await_key=key, missing=(*state.missing, *uids))
    state, made = _deliver(state, made)
    # A kubelet that is being stopped may overwrite the statuses.
    waits = state.deliveries or state.reports or state.kubelet_stopping
    waits = state.traces_key in state.deliveries if state.only_traces else waits
    return (state, made) if waits else _settle(state, made)


def _settle(state: NodeStatusState, decisions: Sequence[Event]) -> Result:
    # Open deliveries may still arrive, but perhaps no daemon will see it.
    open_uids = (uid for statuses in state.deliveries.values() for uid, *_ in statuses)
    missing = tuple(dict.fromkeys((*state.missing, *open_uids)))
    return replace(state, flush_by_ns=NEVER_NS), [*decisions, d.StatusesSettled(missing=missing)]


def _statuses_seen(state: NodeStatusState, event: f.StatusesSeen, now: int) -> Result:
    """Mode observe records what the kubelet left undone."""
    if statuses := state.deliveries.get(event.key, ()):
        left = tuple(status for status in statuses if status[0] in event.missing)
        return replace(state, deliveries={**state.deliveries, event.key: left}), ()
    if event.key != state.await_key:
        return state, ()
    state = _with_missing(state, event.missing)
    if state.means != "observe" or not (state.running or event.missing):
        return state, ()
    return state, [d.LeftUndone(running=state.running, without_status=event.missing)]


def _with_missing(state: NodeStatusState, uids: Collection[str] = ()) -> NodeStatusState:
    others = [uid for uid, *_ in state.followed if uid not in uids]
    return replace(state, missing=tuple(uid for uid in state.missing if uid not in others))


def _deadline_moved(state: NodeStatusState, event: d.DeadlineMoved, now: int) -> Result:
    state = replace(state, release_by_ns=event.release_by_ns)
    if state.flush_by_ns == NEVER_NS:
        return state, ()
    last_ns = event.release_by_ns - FALLBACK_MARGIN_NS
    return replace(state, flush_by_ns=max(now, min(state.flush_by_ns, last_ns))), ()


def _tick_flushing(state: NodeStatusState, event: f.Tick, now: int) -> Result:
    state, decisions = _tick(state, event, now)
    if state.flush_by_ns > now:
        return state, decisions
    if state.traces_key in state.deliveries and state.traces_by_ns > now:
        return replace(state, flush_by_ns=state.traces_by_ns, only_traces=True), decisions
    return _settle(state, decisions)


# Deliveries are idempotent: one with a lost outcome is repeated. Undelivered statuses wait in the journal
# until an API server answers in the next boot.


def _order_ended(state: NodeStatusState, event: f.OrderEnded, now: int) -> Result:
    if event.key in state.deliveries:
        return _deliver(_delivery_ended(_given_again(state, event), event), [])
    key = parse_order_key(event.key)
    deleted = [each for each in state.followed if each[0] == key.subject]
    # The kubelet failed meanwhile, and the delete was taken after all.
    if key.what != "delete" or event.result != "done" or state.means != "cri" or not deleted:
        return state, ()
    state = replace(_dropped(state, key.subject), followed=_without(state.followed, key.subject))
    return _deliver_now(replace(state, orphaned=(*state.orphaned, *deleted)), [])


def _given_again(state: NodeStatusState, event: f.OrderEnded) -> NodeStatusState:
    """Delivers a failed status once more: the next boot would have started the pod again."""
    statuses = () if event.key in state.earlier else state.deliveries[event.key]
    if event.result not in ("failed", "timed-out") or not state.node or not state.in_episode or not statuses:
        return state
    again = tuple(status for status in statuses if status[0] not in state.given_again)
    left = tuple(status for status in statuses if status[0] in state.given_again)
    return replace(
        state,
        deliveries={**state.deliveries, event.key: left},
        pending=(*again, *state.pending),
        given_again=(*state.given_again, *(uid for uid, *_ in again)),
    )


def _delivery_ended(state: NodeStatusState, event: f.OrderEnded) -> NodeStatusState:
    statuses = state.deliveries[event.key]
    state = _answered(state, event.key)
    if event.key == state.await_key and event.result == "done":
        return _with_missing(state)
    late = event.key in state.earlier
    if event.result == "unknown" and not late and (state.in_episode or not state.node):
        return replace(state, pending=(*statuses, *state.pending))
    if event.result == "done" or not statuses:
        return state
    state = replace(state, missing=(*state.missing, *(uid for uid, *_ in statuses)))
    # On a node they wait for the next boot. A stale status (``cancelled``) is dropped: the pod has changed.
    if not state.node or event.result == "cancelled":
        return state
    return replace(state, late_statuses=(*state.late_statuses, *statuses))


def _api_read_flushing(state: NodeStatusState, event: f.ApiRead, now: int) -> Result:
    """A server that stops answering gets a silent one's time, counted from the last pod's end: it was silent
    before this fact, too.
    """
    if event.reachable:
        return state, ()
    if state.only_traces:
        return state, ()
    by_ns = max(now, state.flush_since_ns + SILENT_FLUSH_NS)
    return replace(state, flush_by_ns=min(state.flush_by_ns, by_ns)), ()


def _deliver_late(state: NodeStatusState) -> Result:
    """Only to unchanged pods, since a pod may run again."""
    if not state.late_statuses or state.api is not True:
        return state, ()
    state, order = _send_statuses(
        state, state.late_statuses, remove=_removes_objects(state), unchanged_only=True
    )
    return replace(state, late_statuses=()), [order]


# --- the machine stays up, or has come back


def _at_rest(state: NodeStatusState) -> NodeStatusState:
    return replace(state, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, withheld=())


def _cancelled(state: NodeStatusState, event: d.ShutdownCancelled, now: int) -> Result:
    """On a node the pods come back: keep their statuses for this boot's next shutdown."""
    state = _at_rest(state)
    if not state.node:
        return state, ()
    held, deleted = (*state.held, *state.pending), (*state.held_deleted, *state.orphaned)
    return replace(state, pending=(), orphaned=(), followed=(), held=held, held_deleted=deleted), ()


def _closed(state: NodeStatusState, event: d.EpisodeClosed, now: int) -> Result:
    """Pods of another boot may run again. A node's statuses wait for the API server, which knows whether the
    pod has changed; in mode process they are dropped, on record.
    """
    state = _at_rest(state)
    if event.outcome == "cancelled":
        state, decisions = _deliver(state, [])
        return (state if event.followed else _given_back(state)), decisions
    if state.node:
        late = (*state.late_statuses, *state.pending, *state.orphaned)
        return _deliver_late(replace(state, pending=(), orphaned=(), late_statuses=late))
    missing = tuple(uid for uid, *_ in state.pending)
    dropped: list[Event] = [d.StatusesSettled(missing=missing)] if missing else []
    return replace(state, pending=()), dropped


def _given_back(state: NodeStatusState) -> NodeStatusState:
    """The kubelet has these pods now. A pod that it has had before, and that this shutdown did not meet, has
    most likely left the node.
    """
    held, deleted = (
        tuple(status for status in each if status[0] not in state.held_before)
        for each in (state.held, state.held_deleted)
    )
    before = tuple(status[0] for status in (*held, *deleted))
    return replace(state, held=held, held_deleted=deleted, held_before=before)


def _afresh(
    state: NodeStatusState, now: int, in_episode: bool, start: f.DaemonStarted | None
) -> NodeStatusState:
    return replace(state, in_episode=in_episode, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, awaited=-1)


STATUSES = _transitions()

NODE_STATUS = ActorType(
    NAME,
    NodeStatusState,
    Machines(MARKS, CERTIFICATE, STATUSES),
    deadline=lambda state: min(state.flush_by_ns, state.withdraw_at_ns),
    afresh=_afresh,
)
