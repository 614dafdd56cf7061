"""NodeStatusActor: what others see of this node: that it goes down, who may still start, what became of whom.

It never waits for the network: announcing and delivering are orders, and only the release waits for the
last statuses, for a bounded time (`actors.logic.node_end`). What it changed, and nothing else, it restores.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.node_answers import api_read, deliver_late, order_ended
from actors.logic.node_end import (
    flush,
    mounts_read,
    moved,
    pods_ended,
    statuses_seen,
    tick,
    withdraw_certificate,
)
from actors.logic.node_pods import pod_ended, wave_started, withdraw, withdraw_soon
from actors.logic.node_view import (
    CANCELLED_MESSAGE,
    DETECTED_MESSAGE,
    NAME,
    NodeStatusState,
    announce,
    deliver,
    post,
    shown_unready,
)
from actors.policy.means import NODE_MODES
from events.base import Event, order_key
from events.decisions import (
    ConfigAdopted,
    DeadlineMoved,
    EpisodeClosed,
    HandedOver,
    KubeletStopped,
    MeansChosen,
    PlanMade,
    PodEnded,
    PodRejected,
    PodsEnded,
    ShutdownBegan,
    ShutdownCancelled,
    StartPod,
    StatusesSettled,
    WaveEnded,
    WaveStarted,
)
from events.facts import ApiRead, DaemonStarted, MountsRead, OrderEnded, PodAppeared, StatusesSeen, Tick

# The reference's words (facts-kubelet 1.1).
REJECT_REASON = "NodeShutdown"
REJECT_MESSAGE = "Pod was rejected as the node is shutting down."


def _config(state: NodeStatusState, event: ConfigAdopted, now: int) -> Result:
    return replace(
        state,
        flush_ns=event.status_flush_ns,
        trace_flush_ns=event.trace_flush_ns,
        unready=event.unready,
        left_pods=event.left_pods,
    ), ()


def _started(state: NodeStatusState, event: DaemonStarted, now: int) -> Result:
    """Whatever a former process has left on the Node is taken back once the API server answers."""
    if event.mode not in NODE_MODES and not state.node:
        return state, ()
    return replace(state, node=event.mode in NODE_MODES, api=None, restore_due=not state.in_episode), ()


# --- a shutdown --------------------------------------------------------------------------------


def _began(state: NodeStatusState, event: ShutdownBegan, now: int) -> Result:
    """What a cancelled shutdown has still to deliver stays to be delivered."""
    state = NodeStatusState(
        in_episode=True,
        flush_ns=state.flush_ns,
        trace_flush_ns=state.trace_flush_ns,
        release_by_ns=event.release_by_ns,
        pending=state.pending,
        deliveries=state.deliveries,
        ordinal=state.ordinal,
        node=state.node,
        unready=state.unready,
        left_pods=state.left_pods,
        api=state.api,
        taints=state.taints,
        late_statuses=state.late_statuses,
        kind=event.kind if state.node else "unknown",
    )
    return (state, ()) if state.node else announce(state, ready=False)


def _means(state: NodeStatusState, event: MeansChosen, now: int) -> Result:
    """Nothing is changed on a node whose kubelet shuts it down itself."""
    stopping = event.means == "cri"
    state, told = post(replace(state, means=event.means, kubelet_stopping=stopping), DETECTED_MESSAGE)
    if not state.ours:
        return state, told
    state, announced = announce(state, ready=False)
    return state, [*announced, *told]


def _plan_made(state: NodeStatusState, event: PlanMade, now: int) -> Result:
    return (replace(state, listed=event.listed), ()) if state.node else (state, ())


def _handed_over(state: NodeStatusState, event: HandedOver, now: int) -> Result:
    """What the kubelet has not written by now it may never write, nor take deleted objects away."""
    orphaned = (*state.orphaned, *state.followed)
    return replace(state, means="cri", kubelet_stopping=True, followed=(), orphaned=orphaned), ()


def _kubelet_stopped(state: NodeStatusState, event: KubeletStopped, now: int) -> Result:
    """From now on nobody sets back what we write of the node and its pods."""
    stopped = event.result in ("done", "unknown")
    state = replace(state, kubelet_stopping=False, kubelet_stopped=stopped and state.in_episode)
    if not state.kubelet_stopped:
        return flush(state, [], now) if state.flushing else (state, ())
    if state.withheld:
        state = withdraw_soon(state, now)
    decisions: list[Event] = []
    if shown_unready(state):
        state, shown = announce(state, ready=False)
        decisions += shown
    return flush(state, decisions, now) if state.flushing else (state, decisions)


def _tick(state: NodeStatusState, event: Tick, now: int) -> Result:
    withdrawn: Result = withdraw(state) if state.withdraw_at_ns <= now else (state, ())
    if state.flush_by_ns > now:
        return withdrawn
    state, settled = tick(withdrawn[0], event, now)
    return state, [*withdrawn[1], *settled]


def _appeared(state: NodeStatusState, event: PodAppeared, now: int) -> Result:
    """While the node goes down every pod is rejected, static and critical ones too (facts-kubelet 1.4)."""
    uid = event.pod.uid
    if state.in_episode:
        rejected = PodRejected(uid=uid, label=event.pod.label, reason=REJECT_REASON, message=REJECT_MESSAGE)
        return state, [rejected]
    order = StartPod(key=order_key(NAME, "start", uid, state.ordinal), uid=uid)
    return replace(state, ordinal=state.ordinal + 1), [order]


def _wave_ended(state: NodeStatusState, event: WaveEnded, now: int) -> Result:
    return deliver(state, [])


# --- afterwards --------------------------------------------------------------------------------


def _cancelled(state: NodeStatusState, event: ShutdownCancelled, now: int) -> Result:
    """On a node the pods come back: what is not said of them yet is not said any more."""
    state, called_back = withdraw_certificate(state)
    if state.node:
        state = replace(state, pending=(), orphaned=(), followed=())
    state, restored = _restore(state)
    state, told = post(state, CANCELLED_MESSAGE) if state.means else (state, ())
    return state, [*called_back, *restored, *told]


def _restore(state: NodeStatusState) -> Result:
    state = replace(
        state, in_episode=False, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, awaited=0, withheld=()
    )
    return announce(state, ready=True) if state.announced else (state, ())


def _closed(state: NodeStatusState, event: EpisodeClosed, now: int) -> Result:
    """Pods that a cancelled shutdown ended are final; those of another boot may be running again.

    The statuses of these are dropped, on record: a terminal phase would end what the reboot has brought back.
    On a Kubernetes node they wait for the API server, which knows whether anything has changed since.
    """
    state, restored = _restore(state)
    state = replace(state, means="", kubelet_stopped=False, kubelet_stopping=False)
    if event.outcome == "cancelled":
        return deliver(state, list(restored))
    if state.node:
        late = (*state.late_statuses, *state.pending, *state.orphaned)
        state, delivered = deliver_late(replace(state, pending=(), orphaned=(), late_statuses=late))
        return state, [*restored, *delivered]
    dropped = [StatusesSettled(undelivered=len(state.pending))] if state.pending else []
    return replace(state, pending=()), [*restored, *dropped]


def _afresh(
    state: NodeStatusState, now: int, in_episode: bool, start: DaemonStarted | None
) -> NodeStatusState:
    return replace(state, in_episode=in_episode, flush_by_ns=NEVER_NS, withdraw_at_ns=NEVER_NS, awaited=0)


NODE_STATUS = ActorType(
    NAME,
    NodeStatusState,
    {
        DaemonStarted: _started,
        ConfigAdopted: _config,
        ShutdownBegan: _began,
        MeansChosen: _means,
        HandedOver: _handed_over,
        KubeletStopped: _kubelet_stopped,
        PlanMade: _plan_made,
        WaveStarted: wave_started,
        PodAppeared: _appeared,
        PodEnded: pod_ended,
        WaveEnded: _wave_ended,
        PodsEnded: pods_ended,
        DeadlineMoved: moved,
        OrderEnded: order_ended,
        MountsRead: mounts_read,
        StatusesSeen: statuses_seen,
        ApiRead: api_read,
        Tick: _tick,
        ShutdownCancelled: _cancelled,
        EpisodeClosed: _closed,
    },
    deadline=lambda state: min(state.flush_by_ns, state.withdraw_at_ns),
    afresh=_afresh,
)
