"""What becomes of pods, as others see it: out of their Services, their final status, their workload's word.

Deleted pods leave their Services by that, and the kubelet writes their status; of those that we end ourselves
both are ours to write, but never a terminal phase for a pod that comes back (design, rule 11).
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result
from actors.logic.node_end import flush
from actors.logic.node_view import NAME, NodeStatusState
from actors.policy.means import comes_back
from events.base import Event, order_key
from events.decisions import PodEnded, PostEvent, WaveStarted, WithdrawPods

# The reference's words (facts-kubelet 1.1).
POD_REASON = "Terminated"
POD_MESSAGE = "Pod was terminated in response to imminent node shutdown."

#: A pod that ends within this time leaves its Services by its final status; to say it twice would cost the
#: API server, and the node's processors, as much again.
WITHDRAW_NS = 200_000_000

#: On the workload of a pod that did not end by itself.
KILLED_REASON = "PodKilledAtNodeShutdown"

#: Outcomes that leave a pod as it was: there is no final status to deliver.
WITHOUT_STATUS = ("spared", "unknown")

#: Of these pods nobody has seen the end.
UNSEEN = ("failed", "unknown")


def wave_started(state: NodeStatusState, event: WaveStarted, now: int) -> Result:
    """Deleted pods leave their Services by that; the others have to be taken out (kubernetes#116965)."""
    if state.means != "cri" and not event.handover:
        return state, ()
    state = replace(state, withheld=(*state.withheld, *(pod.uid for pod in event.pods)))
    return (withdraw_soon(state, now) if state.kubelet_stopped else state), ()


def withdraw_soon(state: NodeStatusState, now: int) -> NodeStatusState:
    return replace(state, withdraw_at_ns=min(state.withdraw_at_ns, now + WITHDRAW_NS))


def withdraw(state: NodeStatusState) -> Result:
    """Those that have no final status meanwhile."""
    state = replace(state, withdraw_at_ns=NEVER_NS)
    if not state.withheld:
        return state, ()
    key = order_key(NAME, "withdraw", "", state.ordinal)
    order = WithdrawPods(key=key, uids=state.withheld)
    return replace(state, withheld=(), ordinal=state.ordinal + 1), [order]


def pod_ended(state: NodeStatusState, event: PodEnded, now: int) -> Result:
    before = state
    state = _with_status(replace(state, awaited=max(0, state.awaited - 1)), event)
    told_all = state.pending is not before.pending or state.orphaned is not before.orphaned
    if told_all and event.uid in state.withheld:
        state = replace(state, withheld=tuple(uid for uid in state.withheld if uid != event.uid))
    told: list[Event] = []
    if state.node:
        state, told = _tell_owner(_counted(state, event), event)
    return flush(state, told, now) if state.flushing else (state, told)


def _with_status(state: NodeStatusState, event: PodEnded) -> NodeStatusState:
    """None, ever, for a pod that comes back here (design, rule 11; or after a cancel), or may still run."""
    if event.outcome in WITHOUT_STATUS:
        return state
    if state.node and (event.outcome in UNSEEN or not state.in_episode):
        return state
    phase = "Succeeded" if event.succeeded else "Failed"
    status = (event.uid, phase, POD_REASON, POD_MESSAGE)
    if event.means in ("api", "observe") and event.means == state.means:
        return replace(state, followed=(*state.followed, status))
    if event.deleted:
        return replace(state, orphaned=(*state.orphaned, status))
    if state.node and (comes_back(state.kind) or _made_again(state, event)):
        return state
    return replace(state, pending=(*state.pending, status))


def _made_again(state: NodeStatusState, event: PodEnded) -> bool:
    """A terminal phase would have its DaemonSet make it again, on a node whose kubelet is stopped."""
    return event.returns == "always" or (event.returns == "untainted" and not state.taints)


def _counted(state: NodeStatusState, event: PodEnded) -> NodeStatusState:
    if event.outcome in UNSEEN:
        return replace(state, running=(*state.running, event.uid))
    return replace(state, ended=state.ended + 1)


def _tell_owner(state: NodeStatusState, event: PodEnded) -> tuple[NodeStatusState, list[Event]]:
    """Once for each workload, whatever number of its pods had to be killed."""
    owner = f"{event.namespace}/{event.owner}"
    if event.outcome != "killed" or not event.owner or owner in state.told_owners:
        return state, []
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
    told = (*state.told_owners, owner)
    return replace(state, told_owners=told, ordinal=state.ordinal + 1), [order]
