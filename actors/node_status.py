"""NodeStatusActor: what the cluster sees of this node: its marks, its pods' statuses, the detach certificate.

It does not wait for the network: its writes are orders, and only the release waits for the last statuses, for
a bounded time. It restores only what it changed. Two regions:

1. The shutdown, and the wait for the last statuses. That wait may come after a cancel, too. 2. The node's
kubelet, as far as Ebbtide stops it. A running kubelet writes its pods' statuses and overwrites ours, so ours
wait until it is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Handler,
    Result,
    Row,
    State,
    Transitions,
    fresh_but,
    ignored,
)
from ebbtide.actors.policy.grace_periods import FALLBACK_MARGIN_NS
from ebbtide.actors.policy.termination_mode import NODE_MODES, pods_come_back
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, BoundedTuple, Event, order_key, parse_order_key
from ebbtide.events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    CancelOrder,
    CheckMounts,
    ConfigAdopted,
    DeadlineMoved,
    DeliverStatuses,
    DetachCertified,
    EpisodeClosed,
    FlushTraces,
    HandedOver,
    KubeletStopped,
    LastBootEnded,
    LeftUndone,
    MeansChosen,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodRejected,
    PodsEnded,
    PostEvent,
    PublishCertificate,
    PublishLastBoot,
    ShutdownBegan,
    ShutdownCancelled,
    StartPod,
    StatusesSettled,
    StopKubelet,
    TakeInventory,
    WaveEnded,
    WaveStarted,
    WithdrawPods,
)
from ebbtide.events.facts import (
    FROM_TABLE,
    ApiRead,
    DaemonStarted,
    InventoryTaken,
    MountsRead,
    OrderEnded,
    PodAppeared,
    StatusesSeen,
    Tick,
)
from ebbtide.events.values import LeftPods, ShutdownKind, TerminationMode, Unready

NAME = "NodeStatusActor"

# The kubelet's texts (pkg/kubelet/nodeshutdown): people and alerts look for them.
NODE_REASON = "KubeletNotReady"
NODE_MESSAGE = "node is shutting down"
EVENT_REASON = "Shutdown"
DETECTED_MESSAGE = "Shutdown manager detected shutdown event"
CANCELLED_MESSAGE = "Shutdown manager detected shutdown cancellation"
POD_REASON = "Terminated"
POD_MESSAGE = "Pod was terminated in response to imminent node shutdown."
REJECT_REASON = "NodeShutdown"
REJECT_MESSAGE = "Pod was rejected as the node is shutting down."

#: On the workload of a pod that did not end by itself.
KILLED_REASON = "PodKilledAtNodeShutdown"

#: In the certificate, when the mounts could not be read.
UNREAD = (("", "the mounts could not be read"),)

#: While pods are ended, and once they have been (KEP-5683, KEP-6249).
GOING_DOWN_CONDITIONS = ("DrainInProgress", "GracefulNodeShutdownInProgress")
DOWN_CONDITIONS = ("Drained", "GracefulNodeShutdownInProgress")

#: A pod that ends within this time leaves its Services by its final status. A second write would double the
#: load of the API server.
WITHDRAW_NS = 200_000_000

#: From the last pod's end on, for a silent API server. What it does not take waits for the next boot.
SILENT_FLUSH_NS = NS_PER_SECOND

#: Outcomes without a final status.
WITHOUT_STATUS = ("spared", "unknown")

#: The pod's end was not seen.
UNSEEN_OUTCOMES = ("failed", "unknown")

#: The pod has ended, by itself or by SIGKILL.
SEEN_OUTCOMES = ("graceful", "killed")

#: shutting-down: statuses go out wave by wave; also between the settling and the release. flushing: waits for
#: the last statuses and reports; flushing-after-cancel: the same while the machine stays up.
SHUTDOWN_PHASES = ("up", "shutting-down", "flushing", "flushing-after-cancel")

#: kubelet-stopping: it may still overwrite what we write.
KUBELET_PHASES = ("kubelet-runs", "kubelet-stopping", "kubelet-stopped")

#: UID, phase, reason, message.
PodStatus = kinds.PodStatus


class NodeStatusState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``_ns`` are monotonic times, but ``flush_ns`` and ``trace_flush_ns`` are periods."""

    in_episode: bool = False
    announced: bool = False
    flush_ns: int = 0
    trace_flush_ns: int = 0
    release_by_ns: int = NEVER_NS
    pending: tuple[PodStatus, ...] = ()
    #: Deliveries under way, by order key; orders without statuses are only waited for.
    deliveries: BoundedDict[kinds.Key, tuple[PodStatus, ...]] = {}
    undelivered: int = 0
    #: Set when only statuses are waited for: settled at this time at the latest.
    flush_by_ns: int = NEVER_NS
    awaited: int = 0
    ordinal: int = 0
    # A Kubernetes node: its policies, and the API server's state.
    node: bool = False
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    api: bool | None = None
    #: To be restored, or delivered, when the API server answers.
    restore_due: bool = False
    late_statuses: tuple[PodStatus, ...] = ()
    # This shutdown, on a Kubernetes node.
    kind: ShutdownKind = "unknown"
    means: TerminationMode = ""
    kubelet_stopped: bool = False
    kubelet_stopping: bool = False
    #: To be taken out of their Services when no kubelet puts them back.
    withheld: BoundedTuple[kinds.Uid] = ()
    withdraw_at_ns: int = NEVER_NS
    #: Statuses that the kubelet writes, and we when it is stopped.
    followed: tuple[PodStatus, ...] = ()
    #: Statuses of deleted pods that no kubelet removes any more: we deliver them and remove the objects.
    orphaned: tuple[PodStatus, ...] = ()
    taints: bool = True
    ended: int = 0
    #: Not seen to end, by UID.
    running: BoundedTuple[kinds.Uid] = ()
    told_owners: BoundedTuple[kinds.NamespacedOwner] = ()
    #: The last reports of this shutdown are ordered.
    closing: bool = False
    await_key: str = ""
    check_key: str = ""
    certificate_key: str = ""
    #: This shutdown has a list of its pods.
    listed: bool = False
    #: None: not read yet.
    mounted: BoundedTuple[kinds.Mount] | None = None
    # A shutdown of this boot ended these pods, and wrote no status: it was cancelled, or they were to come
    # back. The next shutdown writes them for pods that have not come back. ``held_deleted``: their objects
    # are deleted.
    held: tuple[PodStatus, ...] = ()
    held_deleted: tuple[PodStatus, ...] = ()
    #: UIDs of both that the kubelet has had since: a later cancelled shutdown drops them.
    held_before: BoundedTuple[kinds.Uid] = ()
    #: Boot and userspace of these.
    home: str = ""
    #: Since when the last statuses are waited for.
    flush_since_ns: int = 0
    #: UIDs of ``followed`` without a confirmed delete: would a final phase make their DaemonSet create them
    #: again?
    undeleted: BoundedDict[kinds.Uid, bool] = {}
    #: The kubelet may have started ended pods again: it has not stopped, or no listing has been taken since.
    restarts: bool = False
    look_key: str = ""
    #: UIDs whose status was delivered a second time in this shutdown.
    given_again: tuple[kinds.Uid, ...] = ()
    #: Deliveries from before this shutdown. Their pods may run again, so a lost status is written again only
    #: to an unchanged pod.
    earlier: tuple[kinds.Key, ...] = ()
    #: The last boot's end, until it is on the Node, and the order that puts it there.
    last_boot: LastBootEnded | None = None
    last_boot_key: str = ""

    @property
    def all_ended(self) -> bool:
        """Has every pod of this node been seen to end for good?"""
        return self.listed and not self.running and not self.restarts

    @property
    def ours(self) -> bool:
        """Does Ebbtide end this node's pods?"""
        return self.means in ("api", "cri")


def shutdown_phase(state: NodeStatusState) -> str:
    if state.flush_by_ns == NEVER_NS:
        return "shutting-down" if state.in_episode else "up"
    return "flushing" if state.in_episode else "flushing-after-cancel"


def kubelet_phase(state: NodeStatusState) -> str:
    if state.kubelet_stopped:
        return "kubelet-stopped"
    return "kubelet-stopping" if state.kubelet_stopping else "kubelet-runs"


def phase_of(state: NodeStatusState) -> str:
    return f"{shutdown_phase(state)}+{kubelet_phase(state)}"


#: Decisions of a flush; the last reports come only in a shutdown.
_LAST_STATUSES = (DeliverStatuses, StatusesSettled)
_LAST_REPORTS = (AwaitStatuses, CheckMounts, AnnounceNode, *_LAST_STATUSES)
_CERTIFICATE = (DetachCertified, PublishCertificate)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (SHUTDOWN_PHASES, KUBELET_PHASES), phase_of,
        Row(EVERY, DaemonStarted, _started),
        Row(EVERY, ConfigAdopted, _config_adopted),
        # --- a shutdown begins
        Row(EVERY, ShutdownBegan, _began, "shutting-down kubelet-runs", decides=(AnnounceNode,)),
        Row(EVERY, MeansChosen, _mode_chosen, "= kubelet-stopping kubelet-runs",
            decides=(AnnounceNode, PostEvent)),
        Row(EVERY, PlanMade, _plan_made),
        Row(EVERY, PodPlanned, _pod_planned),
        Row("shutting-down flushing", PodAppeared, _pod_rejected, decides=(PodRejected,)),
        Row("up flushing-after-cancel", PodAppeared, _pod_admitted, decides=(StartPod,)),
        # --- its pods, and the kubelet
        Row("kubelet-runs kubelet-stopping", WaveStarted, _wave_started),
        Row("kubelet-stopped", WaveStarted, _wave_started_without_kubelet),
        Row("kubelet-runs kubelet-stopping", HandedOver, _handed_over, "kubelet-stopping",
            decides=(CancelOrder,)),
        Row("kubelet-stopped", HandedOver, _handed_over, decides=(CancelOrder,)),
        Row("shutting-down", KubeletStopped, _kubelet_stopped, "kubelet-stopped kubelet-runs",
            decides=(AnnounceNode, *_CERTIFICATE)),
        Row("flushing", KubeletStopped, _then_flush(_kubelet_stopped),
            "flushing shutting-down kubelet-stopped kubelet-runs", decides=(*_LAST_REPORTS, *_CERTIFICATE)),
        Row("up", KubeletStopped, _kubelet_stopped_after_cancel, "kubelet-runs"),
        Row("flushing-after-cancel", KubeletStopped, _then_flush(_kubelet_stopped_after_cancel),
            "flushing-after-cancel up kubelet-runs", decides=_LAST_STATUSES),
        ignored("up flushing-after-cancel", StopKubelet, TakeInventory, InventoryTaken),
        Row("shutting-down flushing", StopKubelet, _kubelet_stops, decides=(AnnounceNode, *_CERTIFICATE)),
        Row("shutting-down flushing", TakeInventory, _look_ordered),
        Row("shutting-down flushing", InventoryTaken, _looked, decides=(AnnounceNode, *_CERTIFICATE)),
        Row("shutting-down", PodEnded, _pod_ended_delivering,
            decides=(PostEvent, AnnounceNode, DeliverStatuses, *_CERTIFICATE)),
        Row("flushing", PodEnded, _then_flush(_pod_ended_in_shutdown), "= shutting-down",
            decides=(PostEvent, *_LAST_REPORTS, *_CERTIFICATE)),
        Row("up", PodEnded, _pod_ended_up, decides=(PostEvent,)),
        Row("flushing-after-cancel", PodEnded, _then_flush(_pod_ended_up), "= up",
            decides=(PostEvent, *_LAST_STATUSES)),
        Row(EVERY, WaveEnded, _wave_ended, decides=(DeliverStatuses,)),
        # --- its end
        Row("shutting-down flushing", PodsEnded, _pods_ended_in_shutdown, "shutting-down flushing",
            decides=(FlushTraces, *_LAST_REPORTS)),
        Row("up flushing-after-cancel", PodsEnded, _pods_ended, "up flushing-after-cancel",
            decides=(FlushTraces, *_LAST_STATUSES)),
        Row("up shutting-down", DeadlineMoved, _deadline_moved),
        Row("flushing flushing-after-cancel", DeadlineMoved, _deadline_moved_flushing),
        Row(EVERY, MountsRead, _mounts_read),
        Row(EVERY, StatusesSeen, _statuses_seen, decides=(LeftUndone,)),
        Row("up shutting-down", Tick, _tick, decides=(WithdrawPods,)),
        Row("flushing", Tick, _tick_flushing, "= shutting-down", decides=(WithdrawPods, StatusesSettled)),
        Row("flushing-after-cancel", Tick, _tick_flushing, "= up", decides=(WithdrawPods, StatusesSettled)),
        # --- how its orders ended
        Row("up shutting-down", OrderEnded, _order_ended,
            decides=(AnnounceNode, DeliverStatuses, PublishLastBoot, *_CERTIFICATE)),
        Row("flushing", OrderEnded, _order_ended_flushing, "= shutting-down",
            decides=(PublishLastBoot, *_LAST_REPORTS, *_CERTIFICATE)),
        Row("flushing-after-cancel", OrderEnded, _order_ended_flushing, "= up",
            decides=(AnnounceNode, PublishLastBoot, *_LAST_STATUSES)),
        Row("up", ApiRead, _api_read_up, decides=(AnnounceNode, DeliverStatuses, PublishLastBoot)),
        Row("shutting-down", ApiRead, _api_read),
        Row("flushing", ApiRead, _api_read_flushing_in_shutdown),
        Row("flushing-after-cancel", ApiRead, _api_read_after_cancel,
            decides=(AnnounceNode, DeliverStatuses)),
        Row(EVERY, LastBootEnded, _last_boot_ended, decides=(PublishLastBoot,)),
        # --- the machine stays up, or has come back
        Row(EVERY, ShutdownCancelled, _cancelled, "up", decides=(CancelOrder, AnnounceNode, PostEvent)),
        Row(EVERY, EpisodeClosed, _closed, "up kubelet-runs",
            decides=(AnnounceNode, DeliverStatuses, StatusesSettled)),
    )
# fmt: on


# --- the daemon's start, and its configuration --------------------------------------------------


def _started(state: NodeStatusState, event: DaemonStarted, now: int) -> Result:
    """Restores a former process's marks when the API server answers. In another boot or userspace ended pods
    may run again.
    """
    if event.mode not in NODE_MODES and not state.node:
        return state, ()
    home = f"{event.boot_id}/{event.userspace_id}"
    state = replace(state, node=event.mode in NODE_MODES, api=None, restore_due=not state.in_episode)
    if not state.node or home == state.home:
        return state, ()
    return replace(state, held=(), held_deleted=(), held_before=(), home=home), ()


def _config_adopted(state: NodeStatusState, event: ConfigAdopted, now: int) -> Result:
    return replace(
        state,
        flush_ns=event.status_flush_ns,
        trace_flush_ns=event.trace_flush_ns,
        unready=event.unready,
        left_pods=event.left_pods,
    ), ()


# --- a shutdown begins: the node's marks ----------------------------------------------------------


#: The configuration, the API server's state, and what a cancelled shutdown has still to deliver.
KEPT_FIELDS = (
    *("flush_ns", "trace_flush_ns", "node", "unready", "left_pods", "api", "taints", "ordinal"),
    *("pending", "deliveries", "late_statuses", "last_boot", "last_boot_key"),
    *("held", "held_deleted", "held_before", "home"),
)


def _began(state: NodeStatusState, event: ShutdownBegan, now: int) -> Result:
    kind: ShutdownKind = event.kind if state.node else "unknown"
    earlier = tuple(key for key, each in state.deliveries.items() if each) if state.node else ()
    times = {"release_by_ns": event.release_by_ns}
    state = fresh_but(state, KEPT_FIELDS, in_episode=True, kind=kind, earlier=earlier, **times)
    # On a Kubernetes node the termination mode decides about marks.
    return (state, ()) if state.node else _announce(state, ready=False)


def _mode_chosen(state: NodeStatusState, event: MeansChosen, now: int) -> Result:
    """A node whose kubelet ends the pods gets no marks."""
    state, posted = _post_node_event(
        replace(state, means=event.means, kubelet_stopping=event.means == "cri"), DETECTED_MESSAGE
    )
    # An Event changes no mark, so post it in every mode.
    if not state.ours:
        return state, posted
    state, announced = _announce(state, ready=False)
    return state, [*announced, *posted]


def _announce(state: NodeStatusState, *, ready: bool) -> Result:
    """A running kubelet would overwrite Ready, so it stays as it is."""
    down = state.node and not ready
    conditions = DOWN_CONDITIONS if state.closing and state.all_ended else GOING_DOWN_CONDITIONS
    order = AnnounceNode(
        key=order_key(NAME, "announce", "", state.ordinal),
        ready=ready,
        reason="" if ready else NODE_REASON,
        message="" if ready else NODE_MESSAGE,
        unready=not state.node or (down and state.kubelet_stopped and _shows_unready(state)),
        cordon=down,
        conditions=conditions if down else (),
    )
    return replace(state, announced=not ready, ordinal=state.ordinal + 1), [order]


def _shows_unready(state: NodeStatusState) -> bool:
    """After 300 s (the default toleration) the pods of a node that only reboots would be evicted."""
    return state.unready == "always" or (state.unready == "poweroff" and not pods_come_back(state.kind))


def _post_node_event(state: NodeStatusState, message: str) -> Result:
    """An Event on the Node, as the kubelet posts it."""
    key = order_key(NAME, "event", "", state.ordinal)
    order = PostEvent(key=key, kind="Node", name="", reason=EVENT_REASON, message=message)
    return replace(state, ordinal=state.ordinal + 1), [order]


def _plan_made(state: NodeStatusState, event: PlanMade, now: int) -> Result:
    return (replace(state, listed=event.listed), ()) if state.node else (state, ())


def _pod_planned(state: NodeStatusState, event: PodPlanned, now: int) -> Result:
    """The pod runs, even if an earlier shutdown ended it: drop the status of that end."""
    uid = event.pod.uid
    if uid in [each[0] for each in (*state.held, *state.held_deleted, *state.pending, *state.orphaned)]:
        state = replace(
            state,
            held=_without(state.held, uid),
            held_deleted=_without(state.held_deleted, uid),
            held_before=tuple(each for each in state.held_before if each != uid),
            pending=_without(state.pending, uid),
            orphaned=_without(state.orphaned, uid),
        )
    return (_not_ended(state, uid), ()) if event.again and state.node else (state, ())


def _without(statuses: tuple[PodStatus, ...], uid: str) -> tuple[PodStatus, ...]:
    return tuple(status for status in statuses if status[0] != uid)


def _not_ended(state: NodeStatusState, uid: str) -> NodeStatusState:
    """Takes back the pod's recorded end."""
    if uid in state.running:
        state = replace(state, running=tuple(each for each in state.running if each != uid))
    else:
        state = replace(state, ended=max(0, state.ended - 1))
    return replace(
        state,
        followed=_without(state.followed, uid),
        undeleted={each: again for each, again in state.undeleted.items() if each != uid},
        pending=_without(state.pending, uid),
        orphaned=_without(state.orphaned, uid),
        held=_without(state.held, uid),
        held_deleted=_without(state.held_deleted, uid),
        # A delivery under way may still arrive; if it is lost, it is not repeated.
        deliveries={key: _without(statuses, uid) for key, statuses in state.deliveries.items()},
    )


def _pod_admitted(state: NodeStatusState, event: PodAppeared, now: int) -> Result:
    order = StartPod(key=order_key(NAME, "start", event.pod.uid, state.ordinal), uid=event.pod.uid)
    return replace(state, ordinal=state.ordinal + 1), [order]


def _pod_rejected(state: NodeStatusState, event: PodAppeared, now: int) -> Result:
    """Rejects every pod, also static and critical ones, as the kubelet does."""
    rejected = PodRejected(
        uid=event.pod.uid, label=event.pod.label, reason=REJECT_REASON, message=REJECT_MESSAGE
    )
    return state, [rejected]


# --- its pods: out of their Services, their final status, an Event on their workload ---------------
#
# A delete takes a pod out of its Services, and the kubelet writes its status. For pods that Ebbtide ends, it
# does both. A pod that comes back gets no terminal phase: its controller would make another one, and the
# kubelet would not start it again.


def _wave_started(state: NodeStatusState, event: WaveStarted, now: int) -> Result:
    """Pods without a delete have to be taken out of their Services (kubernetes#116965)."""
    if state.means != "cri" and not event.handover:
        return state, ()
    return replace(state, withheld=(*state.withheld, *(pod.uid for pod in event.pods))), ()


def _wave_started_without_kubelet(state: NodeStatusState, event: WaveStarted, now: int) -> Result:
    withheld, _ = _wave_started(state, event, now)
    return (state if withheld is state else _withdraw_pods_soon(withheld, now)), ()


def _handed_over(state: NodeStatusState, event: HandedOver, now: int) -> Result:
    """From now on we write the statuses and remove deleted objects. A pod without a confirmed delete keeps
    its object, and may come back.
    """
    alone = tuple(status for status in state.followed if status[0] in state.undeleted)
    written = tuple(status for status in alone if not state.undeleted[status[0]])
    deleted = tuple(status for status in state.followed if status not in alone)
    state = replace(
        state, means="cri", kubelet_stopping=True, orphaned=(*state.orphaned, *deleted), followed=alone
    )
    state, decisions = _call_back(state, (state.await_key,))
    where = "held" if pods_come_back(state.kind) else "pending"
    return replace(state, await_key="", **{where: (*getattr(state, where), *written)}), decisions


def _delete_ended(state: NodeStatusState, event: OrderEnded) -> Result:
    """A delete that succeeds after the end of its pod: the kubelet will not start the pod again."""
    key = parse_order_key(event.key)
    uid = key.subject
    if key.what != "delete" or event.result != "done" or uid not in state.undeleted or not state.in_episode:
        return state, []
    before = state
    state = replace(
        state,
        undeleted={each: again for each, again in state.undeleted.items() if each != uid},
        running=tuple(each for each in state.running if each != uid),
        ended=state.ended + 1,
    )
    if state.means == "cri":  # handed over meanwhile
        state = replace(
            state,
            followed=_without(state.followed, uid),
            held=_without(state.held, uid),
            pending=_without(state.pending, uid),
            orphaned=(*state.orphaned, *(each for each in state.followed if each[0] == uid)),
        )
    return _certify_again(before, state)


def _certify_again(before: NodeStatusState, state: NodeStatusState) -> Result:
    """The pods' ends have changed since the last reports were ordered."""
    if not state.closing or before.all_ended == state.all_ended:
        return state, []
    decisions: list[Event] = []
    if state.certificate_key:
        state, published = _publish_certificate(state, UNREAD if state.mounted is None else state.mounted)
        decisions += published
    state, announced = _announce(state, ready=False)
    return state, [*decisions, *announced]


def _kubelet_stopped(state: NodeStatusState, event: KubeletStopped, now: int) -> Result:
    """A stopped kubelet overwrites no status. A kubelet that could not be stopped goes on starting pods."""
    before, stopped = state, event.result in ("done", "unknown")
    state = replace(state, kubelet_stopping=False, kubelet_stopped=stopped)
    if not stopped:
        return _certify_again(before, replace(state, restarts=True, look_key=""))
    if state.withheld:
        state = _withdraw_pods_soon(state, now)
    return _announce(state, ready=False) if _shows_unready(state) else (state, [])


def _kubelet_stops(state: NodeStatusState, event: StopKubelet, now: int) -> Result:
    """The kubelet runs, or its state is unknown."""
    return _certify_again(state, replace(state, restarts=True, look_key=""))


def _look_ordered(state: NodeStatusState, event: TakeInventory, now: int) -> Result:
    looks = state.restarts and state.kubelet_stopped
    return (replace(state, look_key=event.key), ()) if looks else (state, ())


def _looked(state: NodeStatusState, event: InventoryTaken, now: int) -> Result:
    """Pods that run again have joined before, and are waited for."""
    if event.key != state.look_key or event.part < event.parts or event.source == FROM_TABLE:
        return state, ()
    return _certify_again(state, replace(state, restarts=False, look_key=""))


def _kubelet_stopped_after_cancel(state: NodeStatusState, event: KubeletStopped, now: int) -> Result:
    """It is about to be started again."""
    return replace(state, kubelet_stopping=False, kubelet_stopped=False), ()


def _then_flush(handle: Handler) -> Handler:
    """Run the handler, then finish the flush if nothing else is awaited."""
    return lambda state, event, now: _flush(*handle(state, event, now), now)


def _withdraw_pods_soon(state: NodeStatusState, now: int) -> NodeStatusState:
    return replace(state, withdraw_at_ns=min(state.withdraw_at_ns, now + WITHDRAW_NS))


def _pod_ended(state: NodeStatusState, event: PodEnded, now: int) -> Result:
    state = replace(state, awaited=max(0, state.awaited - 1))
    if state.node and event.again:
        state = _not_ended(state, event.uid)
    before = state
    state = _with_status(state, event)
    status_goes_out = state.pending is not before.pending or state.orphaned is not before.orphaned
    if status_goes_out and event.uid in state.withheld:
        state = replace(state, withheld=tuple(uid for uid in state.withheld if uid != event.uid))
    decisions: list[Event] = []
    if state.node:
        if _unseen(event):
            state = replace(state, running=(*state.running, event.uid))
        else:
            state = replace(state, ended=state.ended + 1)
        owner = f"{event.namespace}/{event.owner}"
        # Once for each workload.
        if event.outcome == "killed" and event.owner and owner not in state.told_owners:
            kind, _, name = event.owner.partition("/")
            order = PostEvent(
                key=order_key(NAME, "owner", event.uid, state.ordinal),
                kind=kind,
                name=name,
                namespace=event.namespace,
                reason=KILLED_REASON,
                message=f"Pod {event.name} had to be killed when its node went down: {event.reason}",
                warning=True,
            )
            state = replace(state, told_owners=(*state.told_owners, owner), ordinal=state.ordinal + 1)
            decisions.append(order)
    return state, decisions


def _unseen(event: PodEnded) -> bool:
    """May it still run?"""
    return event.outcome in UNSEEN_OUTCOMES and not event.gone


def _pod_ended_in_shutdown(
    state: NodeStatusState, event: PodEnded, now: int, *, deliver: bool = False
) -> Result:
    """A pod that joined too late may use its volumes: revoke the certificate immediately."""
    revoked = state.node and _certified_safe(state) and _unseen(event)
    state, decisions = _pod_ended(state, event, now)
    if revoked:
        state, published = _publish_certificate(state, ())
        state, announced = _announce(state, ready=False)
        decisions = [*decisions, *published, *announced]
    # The end of an unseen pod starts no delivery: the next boot closes the last one's pods this way, and its
    # statuses go only to unchanged pods.
    seen = event.outcome in SEEN_OUTCOMES or event.gone
    if deliver and seen and state.node and not state.kubelet_stopping and not any(state.deliveries.values()):
        state, decisions = _deliver(state, decisions)
    state, certified = _certify_again(state, _hold_status(state, event))
    return state, [*decisions, *certified]


def _pod_ended_delivering(state: NodeStatusState, event: PodEnded, now: int) -> Result:
    """Delivers the status at once, so that a controller replaces the pod before the wave's end.

    One delivery at a time, so that a wave of a hundred pods needs few. Not while the kubelet is being
    stopped, since it would overwrite the status. Mode process delivers by wave.
    """
    return _pod_ended_in_shutdown(state, event, now, deliver=True)


def _pod_ended_up(state: NodeStatusState, event: PodEnded, now: int) -> Result:
    state, decisions = _pod_ended(state, event, now)
    return _hold_status(state, event), decisions


def _hold_status(state: NodeStatusState, event: PodEnded) -> NodeStatusState:
    """Keeps the status of a pod that is to come back, at the next boot or after a cancel."""
    if event.means == "api" and not event.deleted and state.in_episode:
        if event.uid in state.running:
            return state
        # The kubelet may start it again, so this may not be its end.
        undeleted = {**state.undeleted, event.uid: _made_again(state, event)}
        running = (*state.running, event.uid)
        return replace(state, undeleted=undeleted, running=running, ended=state.ended - 1)
    waits = pods_come_back(state.kind) or not state.in_episode
    if not state.node or not waits or event.means != "cri" or event.outcome not in SEEN_OUTCOMES:
        return state
    status = (event.uid, "Succeeded" if event.succeeded else "Failed", POD_REASON, POD_MESSAGE)
    if event.deleted:
        # In a shutdown it is written at once: the object goes in any case.
        return state if state.in_episode else replace(state, held_deleted=(*state.held_deleted, status))
    if _made_again(state, event):
        return state
    return replace(state, held=(*state.held, status))


def _made_again(state: NodeStatusState, event: PodEnded) -> bool:
    """Would its DaemonSet create it again after a final phase, although the kubelet is stopped?"""
    return event.returns == "always" or (event.returns == "untainted" and not state.taints)


def _with_status(state: NodeStatusState, event: PodEnded) -> NodeStatusState:
    """Decides who writes the final status: the kubelet (``followed``), we (``pending``, ``orphaned``), or
    none.

    A pod that comes back here, or may still run, gets none.
    """
    # A pod that is gone has ended; the kubelet, too, calls that Failed.
    if event.outcome in WITHOUT_STATUS and not event.gone:
        return state
    if state.node and (_unseen(event) or not state.in_episode):
        return state
    phase = "Succeeded" if event.succeeded else "Failed"
    status = (event.uid, phase, POD_REASON, POD_MESSAGE)
    if event.means in ("api", "observe") and event.means == state.means:
        return replace(state, followed=(*state.followed, status))
    if event.deleted:
        return replace(state, orphaned=(*state.orphaned, status))
    if state.node and (pods_come_back(state.kind) or _made_again(state, event)):
        return state
    return replace(state, pending=(*state.pending, status))


def _wave_ended(state: NodeStatusState, event: WaveEnded, now: int) -> Result:
    return _deliver(state, [])


def _deliver(state: NodeStatusState, decisions: Sequence[Event]) -> Result:
    """Delivers what is pending. ``left_pods`` decides about the objects, unless they are deleted."""
    made = list(decisions)
    for statuses, remove in ((state.pending, _removes_objects(state)), (state.orphaned, True)):
        if statuses:
            state, order = _send_statuses(state, statuses, remove=remove)
            made.append(order)
    return (replace(state, pending=(), orphaned=()) if state.pending or state.orphaned else state), made


def _removes_objects(state: NodeStatusState) -> bool:
    """Are the objects of ended pods removed?"""
    return state.node and state.left_pods == "delete"


def _send_statuses(
    state: NodeStatusState, statuses: tuple[PodStatus, ...], *, remove: bool, unchanged_only: bool = False
) -> tuple[NodeStatusState, DeliverStatuses]:
    """Begins one delivery."""
    key = order_key(NAME, "deliver", "", state.ordinal)
    order = DeliverStatuses(key=key, statuses=statuses, remove=remove, unchanged_only=unchanged_only)
    return replace(_wait_for(state, key, statuses), ordinal=state.ordinal + 1), order


def _wait_for(state: NodeStatusState, key: str, statuses: tuple[PodStatus, ...] = ()) -> NodeStatusState:
    """Makes the release wait for this order, as for the last statuses."""
    return replace(state, deliveries={**state.deliveries, key: statuses})


# --- its end: the last statuses, what is mounted, the certificate ----------------------------------
#
# All orders go out at once and share one bounded wait. `StatusesSettled` leads to the release.


def _pods_ended(state: NodeStatusState, event: PodsEnded, now: int) -> Result:
    """``unfinished`` pods still get their `PodEnded` in this step.

    An API server that answers has until the end of the grant. A silent one has less than the configured time.
    """
    last_ns = state.release_by_ns - FALLBACK_MARGIN_NS
    silent = bool(state.means) and state.api is False and state.in_episode
    flush_ns = min(state.flush_ns, SILENT_FLUSH_NS) if silent else state.flush_ns
    api_answers = bool(state.means) and state.api is True
    # Traces and statuses are flushed side by side.
    bound_ns = last_ns if api_answers else now + max(flush_ns, state.trace_flush_ns)
    state = replace(state, flush_by_ns=max(now, min(bound_ns, last_ns)), awaited=len(event.unfinished))
    if not state.trace_flush_ns:
        return _flush(state, [], now)
    key = order_key(NAME, "traces", "", state.ordinal)
    traces = FlushTraces(key=key, timeout_ns=state.trace_flush_ns)
    return _flush(replace(_wait_for(state, key), ordinal=state.ordinal + 1), [traces], now)


def _pods_ended_in_shutdown(state: NodeStatusState, event: PodsEnded, now: int) -> Result:
    """Delivers the held statuses of an earlier shutdown's pods that have not come back.

    In the API they would stay Running. Not before this event, because the second listing may find such a pod;
    and only in mode cri, since a running kubelet knows its pods.
    """
    if state.means == "cri" and state.listed:
        state = replace(state, orphaned=(*state.orphaned, *state.held_deleted), held_deleted=())
        if not pods_come_back(state.kind):
            state = replace(state, pending=(*state.pending, *state.held), held=())
    return _pods_ended(replace(state, flush_since_ns=now) if state.means else state, event, now)


def _deadline_moved(state: NodeStatusState, event: DeadlineMoved, now: int) -> Result:
    return replace(state, release_by_ns=event.release_by_ns), ()


def _deadline_moved_flushing(state: NodeStatusState, event: DeadlineMoved, now: int) -> Result:
    flush_by_ns = max(now, min(state.flush_by_ns, event.release_by_ns - FALLBACK_MARGIN_NS))
    return replace(state, release_by_ns=event.release_by_ns, flush_by_ns=flush_by_ns), ()


def _flush(state: NodeStatusState, decisions: Sequence[Event], now: int) -> Result:
    """After the last recorded end: orders the last reports and statuses, and settles when all are done."""
    if state.awaited:
        return state, list(decisions)
    # Not before the last end: mounts and the kubelet's statuses still change until then.
    if state.means and state.in_episode and not state.closing:
        state, asked = _ask_last_reports(replace(state, closing=True), now)
        decisions = [*decisions, *asked]
    state, orders = _deliver(state, [])
    decisions = [*decisions, *orders]
    # A kubelet that is being stopped may overwrite the last statuses.
    waits = state.deliveries or state.kubelet_stopping
    return (state, decisions) if waits else _settle(state, decisions)


def _ask_last_reports(state: NodeStatusState, now: int) -> Result:
    """Orders the wait for the kubelet's statuses, the reading of mounts, and the mark "drained"."""
    orders: list[Event] = []
    if state.followed and state.means != "cri":
        key = order_key(NAME, "await", "", state.ordinal)
        uids = tuple(uid for uid, *_ in state.followed)
        orders.append(AwaitStatuses(key=key, uids=uids, timeout_ns=state.flush_by_ns - now))
        state = replace(_wait_for(state, key), await_key=key, ordinal=state.ordinal + 1)
    if state.ours:
        key = order_key(NAME, "mounts", "", state.ordinal)
        orders.append(CheckMounts(key=key))
        state = replace(_wait_for(state, key), check_key=key, ordinal=state.ordinal + 1)
    if state.ours and state.all_ended:
        state, announced = _announce(state, ready=False)
        orders += announced
    return state, orders


def _statuses_seen(state: NodeStatusState, event: StatusesSeen, now: int) -> Result:
    """In mode observe, names what the kubelet left undone."""
    if event.key != state.await_key:
        return state, ()
    # Counted with ours: the last record counts every missing status.
    state = replace(state, undelivered=state.undelivered + len(event.missing))
    if state.means != "observe" or not (state.running or event.missing):
        return state, ()
    return state, [LeftUndone(running=state.running, without_status=event.missing)]


def _mounts_read(state: NodeStatusState, event: MountsRead, now: int) -> Result:
    return (replace(state, mounted=event.mounted), ()) if event.key == state.check_key else (state, ())


def _settle(state: NodeStatusState, decisions: Sequence[Event]) -> Result:
    # A delivery under way may still arrive, but no daemon will see it, so it counts as lost.
    lost = state.undelivered + sum(1 for statuses in state.deliveries.values() if statuses)
    state = replace(state, flush_by_ns=NEVER_NS, awaited=0)
    return state, [*decisions, StatusesSettled(undelivered=lost)]


def _tick(state: NodeStatusState, event: Tick, now: int) -> Result:
    """Pods without a final status leave their Services."""
    if state.withdraw_at_ns > now:
        return state, ()
    state = replace(state, withdraw_at_ns=NEVER_NS)
    if not state.withheld:
        return state, ()
    key = order_key(NAME, "withdraw", "", state.ordinal)
    order = WithdrawPods(key=key, uids=state.withheld)
    return replace(state, withheld=(), ordinal=state.ordinal + 1), [order]


def _tick_flushing(state: NodeStatusState, event: Tick, now: int) -> Result:
    """The wait for the last statuses ends, too."""
    state, decisions = _tick(state, event, now)
    return (state, decisions) if state.flush_by_ns > now else _settle(state, decisions)


# --- how its orders ended --------------------------------------------------------------------------
#
# Marks and deliveries are idempotent: an order with a lost outcome is given again. Undelivered statuses wait
# in this state, and so in the journal, until an API server answers in the next boot.


def _order_ended(state: NodeStatusState, event: OrderEnded, now: int) -> Result:
    """Of a delivery, of a pod's delete, or of an announcement."""
    if event.key == state.last_boot_key != "":
        return _last_boot_published(state, event)
    if event.key in state.deliveries:
        return _deliver(*_delivery_ended(_given_again(state, event), event))
    before = state
    state, known = _delete_ended(state, event)
    return (state, known) if state is not before else _announce_ended(state, event)


def _order_ended_flushing(state: NodeStatusState, event: OrderEnded, now: int) -> Result:
    """The flush may wait for this delivery or delete."""
    if event.key in state.deliveries:
        return _flush(*_delivery_ended(_given_again(state, event), event), now)
    after, known = _delete_ended(state, event)
    return _flush(after, known, now) if after is not state else _order_ended(state, event, now)


def _given_again(state: NodeStatusState, event: OrderEnded) -> NodeStatusState:
    """Delivers a failed status once more: the next boot would have started its pod again. Only once, since a
    refused status is refused again.
    """
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


def _announce_ended(state: NodeStatusState, event: OrderEnded) -> Result:
    if parse_order_key(event.key).what != "announce":
        return state, ()
    if event.result == "unknown":
        return _announce(state, ready=not state.announced)
    if event.result == "done" or state.announced or not state.node:
        return state, ()
    return replace(state, restore_due=True), ()


def _delivery_ended(state: NodeStatusState, event: OrderEnded) -> Result:
    statuses = state.deliveries[event.key]
    deliveries = {key: each for key, each in state.deliveries.items() if key != event.key}
    state = replace(state, deliveries=deliveries)
    late = event.key in state.earlier
    if event.result == "unknown" and not late and (state.in_episode or not state.node):
        state = replace(state, pending=(*statuses, *state.pending))
    elif event.result != "done" and statuses:
        state = replace(state, undelivered=state.undelivered + len(statuses))
        # On a node they wait for the next boot. A stale status (``cancelled``) is dropped: the pod is another
        # one.
        if state.node and event.result != "cancelled":
            state = replace(state, late_statuses=(*state.late_statuses, *statuses))
    if event.key != state.check_key:
        return state, []
    # In doubt unsafe: others may detach this node's volumes because of it.
    mounted = UNREAD if event.result != "done" or state.mounted is None else state.mounted
    return _publish_certificate(replace(state, check_key=""), mounted)


def _publish_certificate(state: NodeStatusState, mounted: tuple[tuple[str, str], ...]) -> Result:
    safe = state.all_ended and not mounted
    key = order_key(NAME, "certificate", "", state.ordinal)
    state = replace(_wait_for(state, key), certificate_key=key, ordinal=state.ordinal + 1)
    certified = DetachCertified(
        safe=safe, ended=state.ended, running=state.running, mounted=mounted, restarts=state.restarts
    )
    order = PublishCertificate(
        key=key,
        safe=safe,
        ended=state.ended,
        running=state.running,
        mounted=mounted,
        restarts=state.restarts,
    )
    return state, [certified, order]


def _certified_safe(state: NodeStatusState) -> bool:
    """Does the certificate allow others to detach this node's volumes?"""
    return bool(state.certificate_key) and state.all_ended and state.mounted == ()


def _api_read(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    return replace(state, api=event.reachable, taints=event.taint), ()


def _api_read_flushing(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    """A server that stops answering gets no more time than a silent one."""
    state, _ = _api_read(state, event, now)
    if event.reachable:
        return state, ()
    return replace(state, flush_by_ns=min(state.flush_by_ns, now + state.flush_ns)), ()


def _api_read_flushing_in_shutdown(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    """From the last pod's end on, not from this fact: the silence before it was waiting, too."""
    state, decisions = _api_read_flushing(state, event, now)
    if event.reachable:
        return state, decisions
    # The traces do not go to the API server.
    last_ns = state.flush_since_ns + max(SILENT_FLUSH_NS, state.trace_flush_ns)
    return replace(state, flush_by_ns=min(state.flush_by_ns, max(now, last_ns))), decisions


def _api_back(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    """Restores and delivers what waited for the API server."""
    state, _ = _api_read(state, event, now)
    if not event.reachable:
        return state, ()
    decisions: list[Event] = []
    if state.restore_due:
        state, announced = _announce(replace(state, restore_due=False), ready=True)
        decisions += announced
    return _deliver_late(state, decisions)


def _api_read_up(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    state, decisions = _api_back(state, event, now)
    state, published = (state, ()) if state.last_boot_key else _publish_last_boot(state)
    return state, [*decisions, *published]


def _api_read_after_cancel(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    return (_api_back if event.reachable else _api_read_flushing)(state, event, now)


def _deliver_late(state: NodeStatusState, decisions: Sequence[Event]) -> Result:
    """Statuses of an earlier boot, only for unchanged pods: a pod may run again."""
    if not state.late_statuses or state.api is not True:
        return state, [*decisions]
    state, order = _send_statuses(
        state, state.late_statuses, remove=_removes_objects(state), unchanged_only=True
    )
    return replace(state, late_statuses=()), [*decisions, order]


# --- how the last boot ended ------------------------------------------------------------------------


def _last_boot_ended(state: NodeStatusState, event: LastBootEnded, now: int) -> Result:
    """Peers read it when this node is back."""
    if not state.node:
        return state, ()
    return _publish_last_boot(replace(state, last_boot=event))


def _publish_last_boot(state: NodeStatusState) -> Result:
    """When the API server answers; the edge tries until it is done."""
    said = state.last_boot
    if said is None or state.api is not True:
        return state, ()
    key = order_key(NAME, "last-boot", "", state.ordinal)
    order = PublishLastBoot(
        key=key,
        boot_id=said.boot_id,
        ending=said.ending,
        why=said.why,
        wave=said.wave,
        recorded=said.recorded,
        alive_wall_ns=said.alive_wall_ns,
    )
    return replace(state, last_boot_key=key, ordinal=state.ordinal + 1), [order]


def _last_boot_published(state: NodeStatusState, event: OrderEnded) -> Result:
    """A lost order is given again; a failed one waits for the next `ApiRead`."""
    state = replace(state, last_boot_key="")
    if event.result == "done":
        return replace(state, last_boot=None), ()
    return _publish_last_boot(state) if event.result == "unknown" else (state, ())


# --- the machine stays up, or has come back ---------------------------------------------------------


def _cancelled(state: NodeStatusState, event: ShutdownCancelled, now: int) -> Result:
    """On a node the pods come back: keep their statuses for the next shutdown of this boot. Cancel the
    certificate's orders.
    """
    state, decisions = _call_back(state, (state.check_key, state.certificate_key))
    state = replace(state, check_key="", certificate_key="")
    if state.node:
        held, deleted = (*state.held, *state.pending), (*state.held_deleted, *state.orphaned)
        state = replace(state, pending=(), orphaned=(), followed=(), held=held, held_deleted=deleted)
    state, restored = _restore(state)
    state, posted = _post_node_event(state, CANCELLED_MESSAGE) if state.means else (state, ())
    return state, [*decisions, *restored, *posted]


def _call_back(state: NodeStatusState, keys: Sequence[str]) -> Result:
    """Cancels these orders, and waits for them no longer."""
    open_keys = [key for key in keys if key in state.deliveries]
    decisions: list[Event] = []
    for target in open_keys:
        key = order_key(NAME, "uncertify", "", state.ordinal)
        decisions.append(CancelOrder(key=key, target=target))
        state = replace(state, ordinal=state.ordinal + 1)
    kept = {key: each for key, each in state.deliveries.items() if key not in open_keys}
    return replace(state, deliveries=kept), decisions


def _restore(state: NodeStatusState) -> Result:
    state = replace(
        state, in_episode=False, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, awaited=0, withheld=()
    )
    return _announce(state, ready=True) if state.announced else (state, ())


def _closed(state: NodeStatusState, event: EpisodeClosed, now: int) -> Result:
    """Delivers after a cancel. Pods of another boot may run again: a node's statuses wait for the API server,
    which knows whether the pod has changed; in mode process they are dropped, on record.
    """
    observed = state.means == "observe" and event.outcome == "cancelled"
    state, restored = _restore(state)
    state = replace(state, means="", kubelet_stopped=False, kubelet_stopping=False)
    decisions: Sequence[Event] = restored
    if event.outcome == "cancelled":
        state, decisions = _deliver(state, decisions)
    elif state.node:
        late = (*state.late_statuses, *state.pending, *state.orphaned)
        state, decisions = _deliver_late(
            replace(state, pending=(), orphaned=(), late_statuses=late), decisions
        )
    else:
        dropped = [StatusesSettled(undelivered=len(state.pending))] if state.pending else []
        state, decisions = replace(state, pending=()), [*decisions, *dropped]
    # Mode observe has set no marks, but a former process may have. `ApiRead` comes again only after a
    # silence.
    if observed and state.api is True:
        state, announced = _announce(state, ready=True)
        decisions = [*decisions, *announced]
    elif observed:
        state = replace(state, restore_due=True)
    if event.outcome == "cancelled" and not event.followed:
        state = _given_back(state)
    return state, decisions


def _given_back(state: NodeStatusState) -> NodeStatusState:
    """The kubelet has these pods from now on. A pod that it has had before, and that this shutdown has not
    met, has most likely left the node: drop its status.
    """
    held, deleted = (
        tuple(status for status in each if status[0] not in state.held_before)
        for each in (state.held, state.held_deleted)
    )
    before = tuple(status[0] for status in (*held, *deleted))
    return replace(state, held=held, held_deleted=deleted, held_before=before)


def _afresh(
    state: NodeStatusState, now: int, in_episode: bool, start: DaemonStarted | None
) -> NodeStatusState:
    return replace(state, in_episode=in_episode, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, awaited=0)


NODE_STATUS = ActorType(
    NAME,
    NodeStatusState,
    _transitions(),
    deadline=lambda state: min(state.flush_by_ns, state.withdraw_at_ns),
    afresh=_afresh,
)
