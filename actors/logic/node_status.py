"""NodeStatusActor: what others see of this node: that it goes down, who may still start, what became of whom.

It never waits for the network: announcing and delivering are orders, and only the release waits for the
last statuses, for a bounded time. What it changed, and nothing else, it restores.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from actors.logic.budget import FALLBACK_LEAD_NS
from events.base import Event, order_key
from events.decisions import (
    AnnounceNode,
    ConfigAdopted,
    DeadlineMoved,
    DeliverStatuses,
    EpisodeClosed,
    FlushTraces,
    PodEnded,
    PodRejected,
    PodsEnded,
    ShutdownBegan,
    ShutdownCancelled,
    StartPod,
    StatusesSettled,
    WaveEnded,
)
from events.facts import DaemonStarted, OrderEnded, PodAppeared, Tick

NAME = "NodeStatusActor"

# The reference's words (facts-kubelet 1.1).
NODE_REASON = "KubeletNotReady"
NODE_MESSAGE = "node is shutting down"
POD_REASON = "Terminated"
POD_MESSAGE = "Pod was terminated in response to imminent node shutdown."
REJECT_REASON = "NodeShutdown"
REJECT_MESSAGE = "Pod was rejected as the node is shutting down."

#: Outcomes that leave a pod as it was: there is no final status to deliver.
WITHOUT_STATUS = ("spared", "unknown")

Status = tuple[str, str, str, str]


class NodeStatusState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    announced: bool = False
    flush_ns: int = 0
    trace_flush_ns: int = 0
    release_by_ns: int = NEVER_NS
    pending: tuple[Status, ...] = ()
    #: Deliveries under way, by order key; that of the traces has no statuses.
    deliveries: dict[str, tuple[Status, ...]] = {}
    undelivered: int = 0
    #: Set once nothing but statuses is waited for; settled at this time at the latest.
    flush_by_ns: int = NEVER_NS
    awaited: int = 0
    ordinal: int = 0

    @property
    def flushing(self) -> bool:
        return self.flush_by_ns != NEVER_NS


def _config(state: NodeStatusState, event: ConfigAdopted, now: int) -> Result:
    return replace(state, flush_ns=event.status_flush_ns, trace_flush_ns=event.trace_flush_ns), ()


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
    )
    return _announce(state, ready=False)


def _announce(state: NodeStatusState, *, ready: bool) -> Result:
    order = AnnounceNode(
        key=order_key(NAME, "announce", "", state.ordinal),
        ready=ready,
        reason="" if ready else NODE_REASON,
        message="" if ready else NODE_MESSAGE,
    )
    return replace(state, announced=not ready, ordinal=state.ordinal + 1), [order]


def _appeared(state: NodeStatusState, event: PodAppeared, now: int) -> Result:
    """While the node goes down every pod is rejected, static and critical ones too (facts-kubelet 1.4)."""
    uid = event.pod.uid
    if state.in_episode:
        rejected = PodRejected(uid=uid, label=event.pod.label, reason=REJECT_REASON, message=REJECT_MESSAGE)
        return state, [rejected]
    order = StartPod(key=order_key(NAME, "start", uid, state.ordinal), uid=uid)
    return replace(state, ordinal=state.ordinal + 1), [order]


def _pod_ended(state: NodeStatusState, event: PodEnded, now: int) -> Result:
    awaited = max(0, state.awaited - 1)
    state = replace(state, awaited=awaited)
    if event.outcome not in WITHOUT_STATUS:
        phase = "Succeeded" if event.succeeded else "Failed"
        status = (event.uid, phase, POD_REASON, POD_MESSAGE)
        state = replace(state, pending=(*state.pending, status))
    return _flush(state, []) if state.flushing else (state, ())


def _wave_ended(state: NodeStatusState, event: WaveEnded, now: int) -> Result:
    return _deliver(state, [])


def _deliver(state: NodeStatusState, decisions: list[Event]) -> Result:
    if not state.pending:
        return state, decisions
    key = order_key(NAME, "deliver", "", state.ordinal)
    order = DeliverStatuses(key=key, statuses=state.pending)
    deliveries = {**state.deliveries, key: state.pending}
    state = replace(state, pending=(), deliveries=deliveries, ordinal=state.ordinal + 1)
    return state, [*decisions, order]


def _pods_ended(state: NodeStatusState, event: PodsEnded, now: int) -> Result:
    """``unfinished`` pods still get their last word in this very step; they are awaited, not looked for."""
    last_ns = state.release_by_ns - FALLBACK_LEAD_NS
    flush_by_ns = max(now, min(now + max(state.flush_ns, state.trace_flush_ns), last_ns))
    state = replace(state, flush_by_ns=flush_by_ns, awaited=len(event.unfinished))
    return _flush(*_flush_traces(state))


def _flush_traces(state: NodeStatusState) -> tuple[NodeStatusState, list[Event]]:
    """Beside the last statuses: nothing at all where no traces are exported."""
    if not state.trace_flush_ns:
        return state, []
    key = order_key(NAME, "traces", "", state.ordinal)
    order = FlushTraces(key=key, timeout_ns=state.trace_flush_ns)
    deliveries = {**state.deliveries, key: ()}
    return replace(state, deliveries=deliveries, ordinal=state.ordinal + 1), [order]


def _moved(state: NodeStatusState, event: DeadlineMoved, now: int) -> Result:
    flush_by_ns = state.flush_by_ns
    if state.flushing:
        flush_by_ns = max(now, min(flush_by_ns, event.release_by_ns - FALLBACK_LEAD_NS))
    return replace(state, release_by_ns=event.release_by_ns, flush_by_ns=flush_by_ns), ()


def _flush(state: NodeStatusState, decisions: list[Event]) -> Result:
    if state.awaited:
        return state, decisions
    state, orders = _deliver(state, [])
    decisions = [*decisions, *orders]
    return _settle(state, decisions) if not state.deliveries else (state, decisions)


def _settle(state: NodeStatusState, decisions: list[Event]) -> Result:
    lost = state.undelivered + sum(1 for statuses in state.deliveries.values() if statuses)
    state = replace(state, flush_by_ns=NEVER_NS, awaited=0)
    return state, [*decisions, StatusesSettled(undelivered=lost)]


def _order_ended(state: NodeStatusState, event: OrderEnded, now: int) -> Result:
    """What a restart lost the outcome of is said again: announcing and delivering are idempotent."""
    if event.result == "unknown" and event.key.split("/")[1] == "announce":
        return _announce(state, ready=not state.announced)
    statuses = state.deliveries.get(event.key)
    if statuses is None:
        return state, ()
    deliveries = {key: each for key, each in state.deliveries.items() if key != event.key}
    state = replace(state, deliveries=deliveries)
    if event.result == "unknown":
        state = replace(state, pending=(*statuses, *state.pending))
    elif event.result != "done":
        state = replace(state, undelivered=state.undelivered + len(statuses))
    return _flush(state, []) if state.flushing else _deliver(state, [])


def _tick(state: NodeStatusState, event: Tick, now: int) -> Result:
    return _settle(state, [])


def _restore(state: NodeStatusState, event: ShutdownCancelled | EpisodeClosed, now: int) -> Result:
    state = replace(state, in_episode=False, flush_by_ns=NEVER_NS, awaited=0)
    return _announce(state, ready=True) if state.announced else (state, ())


def _closed(state: NodeStatusState, event: EpisodeClosed, now: int) -> Result:
    """Pods that a cancelled shutdown ended are final; those of another boot may be running again.

    The statuses of these are dropped, on record: a terminal phase would end what the reboot has brought back.
    """
    state, restored = _restore(state, event, now)
    if event.outcome == "cancelled":
        return _deliver(state, list(restored))
    dropped = [StatusesSettled(undelivered=len(state.pending))] if state.pending else []
    return replace(state, pending=()), [*restored, *dropped]


def _afresh(
    state: NodeStatusState, now: int, in_episode: bool, start: DaemonStarted | None
) -> NodeStatusState:
    return replace(state, in_episode=in_episode, flush_by_ns=NEVER_NS, awaited=0)


NODE_STATUS = ActorType(
    NAME,
    NodeStatusState,
    {
        ConfigAdopted: _config,
        ShutdownBegan: _began,
        PodAppeared: _appeared,
        PodEnded: _pod_ended,
        WaveEnded: _wave_ended,
        PodsEnded: _pods_ended,
        DeadlineMoved: _moved,
        OrderEnded: _order_ended,
        Tick: _tick,
        ShutdownCancelled: _restore,
        EpisodeClosed: _closed,
    },
    deadline=lambda state: state.flush_by_ns,
    afresh=_afresh,
)
