"""What is shown of this node, as a value: the NodeStatusActor's state, and the orders that change the view.

It never waits for the network: whatever is shown is an order, and what this node has changed, and nothing
else, it takes back.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result, State
from actors.policy.means import comes_back
from events.base import Event, order_key
from events.decisions import AnnounceNode, DeliverStatuses, PostEvent
from events.model import LeftPods, Means, ShutdownKind, Unready

NAME = "NodeStatusActor"

# The reference's words (facts-kubelet 1.1).
NODE_REASON = "KubeletNotReady"
NODE_MESSAGE = "node is shutting down"
EVENT_REASON = "Shutdown"
DETECTED_MESSAGE = "Shutdown manager detected shutdown event"
CANCELLED_MESSAGE = "Shutdown manager detected shutdown cancellation"

#: While pods are ended, and once they have been (KEP-5683, KEP-6249).
GOING_DOWN = ("DrainInProgress", "GracefulNodeShutdownInProgress")
DOWN = ("Drained", "GracefulNodeShutdownInProgress")

Status = tuple[str, str, str, str]


class NodeStatusState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    announced: bool = False
    flush_ns: int = 0
    trace_flush_ns: int = 0
    release_by_ns: int = NEVER_NS
    pending: tuple[Status, ...] = ()
    #: Deliveries under way, by order key; those without statuses are only waited for.
    deliveries: dict[str, tuple[Status, ...]] = {}
    undelivered: int = 0
    #: Set once nothing but statuses is waited for; settled at this time at the latest.
    flush_by_ns: int = NEVER_NS
    awaited: int = 0
    ordinal: int = 0
    # A Kubernetes node: its policies, and what is known of the API server.
    node: bool = False
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    api: bool | None = None
    #: What is to be taken back, or delivered, as soon as the API server answers.
    restore_due: bool = False
    late_statuses: tuple[Status, ...] = ()
    # This shutdown, on a Kubernetes node.
    kind: ShutdownKind = "unknown"
    means: Means = ""
    kubelet_stopped: bool = False
    #: Until its end what we write of pods and node may be set back.
    kubelet_stopping: bool = False
    #: To be taken out of their Services as soon as no kubelet puts them back.
    withheld: tuple[str, ...] = ()
    withdraw_at_ns: int = NEVER_NS
    #: Statuses that the kubelet writes; ours to write once it is stopped.
    followed: tuple[Status, ...] = ()
    #: Of deleted pods that it will not take away any more: delivered, and their objects removed.
    orphaned: tuple[Status, ...] = ()
    taints: bool = True
    ended: int = 0
    #: Not seen to end, by UID.
    running: tuple[str, ...] = ()
    told_owners: tuple[str, ...] = ()
    closing: bool = False
    await_key: str = ""
    check_key: str = ""
    certificate_key: str = ""
    #: This shutdown knows its pods.
    listed: bool = False
    #: None: nobody has looked yet.
    mounted: tuple[tuple[str, str], ...] | None = None

    @property
    def flushing(self) -> bool:
        return self.flush_by_ns != NEVER_NS

    @property
    def all_ended(self) -> bool:
        """Is every pod of this node known, and seen to end?"""
        return self.listed and not self.running

    @property
    def ours(self) -> bool:
        """Do we end this node's pods, one way or another?"""
        return self.means in ("api", "cri")


def announce(state: NodeStatusState, *, ready: bool) -> Result:
    """Where a kubelet lives it would only set Ready back: it is left alone."""
    down = state.node and not ready
    order = AnnounceNode(
        key=order_key(NAME, "announce", "", state.ordinal),
        ready=ready,
        reason="" if ready else NODE_REASON,
        message="" if ready else NODE_MESSAGE,
        unready=not state.node or (down and state.kubelet_stopped and shown_unready(state)),
        cordon=down,
        conditions=_conditions(state) if down else (),
    )
    return replace(state, announced=not ready, ordinal=state.ordinal + 1), [order]


def _conditions(state: NodeStatusState) -> tuple[str, ...]:
    """What is True of this node now."""
    return DOWN if state.closing and state.all_ended else GOING_DOWN


def shown_unready(state: NodeStatusState) -> bool:
    """After 300 s of it the pods of a node that only reboots would be evicted (design, rule 11)."""
    return state.unready == "always" or (state.unready == "poweroff" and not comes_back(state.kind))


def post(state: NodeStatusState, message: str) -> Result:
    """An Event on the Node, as the reference has it."""
    key = order_key(NAME, "event", "", state.ordinal)
    order = PostEvent(key=key, kind="Node", name="", reason=EVENT_REASON, message=message)
    return replace(state, ordinal=state.ordinal + 1), [order]


def deliver(state: NodeStatusState, decisions: list[Event]) -> Result:
    """What is pending goes out; ``left_pods`` decides about the objects, but for those that are deleted."""
    for statuses, remove in ((state.pending, removes(state)), (state.orphaned, True)):
        if statuses:
            state, order = send(state, statuses, remove=remove)
            decisions = [*decisions, order]
    return (replace(state, pending=(), orphaned=()) if state.pending or state.orphaned else state), decisions


def removes(state: NodeStatusState) -> bool:
    """Are the objects of ended pods taken away?"""
    return state.node and state.left_pods == "delete"


def send(
    state: NodeStatusState, statuses: tuple[Status, ...], *, remove: bool, unchanged_only: bool = False
) -> tuple[NodeStatusState, DeliverStatuses]:
    """One delivery, which is under way from now on."""
    key = order_key(NAME, "deliver", "", state.ordinal)
    order = DeliverStatuses(key=key, statuses=statuses, remove=remove, unchanged_only=unchanged_only)
    return replace(wait_for(state, key, statuses), ordinal=state.ordinal + 1), order


def wait_for(state: NodeStatusState, key: str, statuses: tuple[Status, ...] = ()) -> NodeStatusState:
    """The release waits for this order's outcome, in the same bounds as for the last statuses."""
    return replace(state, deliveries={**state.deliveries, key: statuses})
