"""The end of a shutdown as others see it: the last statuses, what is mounted, the certificate, the release.

All of it is asked at once and waited for together, for a bounded time: as soon as possible, but not sooner.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result
from actors.logic.budget import FALLBACK_LEAD_NS
from actors.logic.node_view import NAME, NodeStatusState, announce, deliver, wait_for
from events.base import Event, order_key
from events.decisions import (
    AwaitStatuses,
    CancelOrder,
    CheckMounts,
    DeadlineMoved,
    DetachCertified,
    FlushTraces,
    LeftUndone,
    PodsEnded,
    PublishCertificate,
    StatusesSettled,
)
from events.facts import ApiRead, MountsRead, OrderEnded, StatusesSeen, Tick

#: What the certificate says where the mounts could not be read.
NOT_READ = "the mounts could not be read"


def pods_ended(state: NodeStatusState, event: PodsEnded, now: int) -> Result:
    """``unfinished`` pods still get their last word in this very step; they are awaited, not looked for."""
    last_ns = state.release_by_ns - FALLBACK_LEAD_NS
    bound_ns = last_ns if _may_take_all(state) else now + max(state.flush_ns, state.trace_flush_ns)
    state = replace(state, flush_by_ns=max(now, min(bound_ns, last_ns)), awaited=len(event.unfinished))
    return flush(*_flush_traces(state), now)


def _may_take_all(state: NodeStatusState) -> bool:
    """An API server that answers is waited for within the grant: nobody else can tell it these."""
    return bool(state.means) and state.api is True


def _flush_traces(state: NodeStatusState) -> tuple[NodeStatusState, list[Event]]:
    """Beside the last statuses: nothing at all where no traces are exported."""
    if not state.trace_flush_ns:
        return state, []
    key = order_key(NAME, "traces", "", state.ordinal)
    order = FlushTraces(key=key, timeout_ns=state.trace_flush_ns)
    return replace(wait_for(state, key), ordinal=state.ordinal + 1), [order]


def moved(state: NodeStatusState, event: DeadlineMoved, now: int) -> Result:
    flush_by_ns = state.flush_by_ns
    if state.flushing:
        flush_by_ns = max(now, min(flush_by_ns, event.release_by_ns - FALLBACK_LEAD_NS))
    return replace(state, release_by_ns=event.release_by_ns, flush_by_ns=flush_by_ns), ()


def flush(state: NodeStatusState, decisions: list[Event], now: int) -> Result:
    """Once every pod has its last word: what is still to be said, asked and waited for."""
    if state.awaited:
        return state, decisions
    if state.means and state.in_episode and not state.closing:
        state, asked = _close(replace(state, closing=True), now)
        decisions = [*decisions, *asked]
    state, orders = deliver(state, [])
    decisions = [*decisions, *orders]
    waits = state.deliveries or state.kubelet_stopping
    return (state, decisions) if waits else settle(state, decisions)


def _close(state: NodeStatusState, now: int) -> tuple[NodeStatusState, list[Event]]:
    orders: list[Event] = []
    if state.followed:
        state, asked = _await_statuses(state, now)
        orders.append(asked)
    if state.ours:
        state, check = _check_mounts(state)
        orders.append(check)
    if state.ours and state.all_ended:
        state, shown = announce(state, ready=False)
        orders += shown
    return state, orders


def _await_statuses(state: NodeStatusState, now: int) -> tuple[NodeStatusState, Event]:
    key = order_key(NAME, "await", "", state.ordinal)
    uids = tuple(uid for uid, *_ in state.followed)
    order = AwaitStatuses(key=key, uids=uids, timeout_ns=state.flush_by_ns - now)
    return replace(wait_for(state, key), await_key=key, ordinal=state.ordinal + 1), order


def _check_mounts(state: NodeStatusState) -> tuple[NodeStatusState, Event]:
    key = order_key(NAME, "mounts", "", state.ordinal)
    return replace(wait_for(state, key), check_key=key, ordinal=state.ordinal + 1), CheckMounts(key=key)


# --- answers -----------------------------------------------------------------------------------


def mounts_read(state: NodeStatusState, event: MountsRead, now: int) -> Result:
    return (replace(state, mounted=event.mounted), ()) if event.key == state.check_key else (state, ())


def statuses_seen(state: NodeStatusState, event: StatusesSeen, now: int) -> Result:
    """Of pods that the kubelet ends by itself, what it left undone is named."""
    if event.key != state.await_key:
        return state, ()
    state = replace(state, undelivered=state.undelivered + len(event.missing))
    if state.means != "observe" or not (state.running or event.missing):
        return state, ()
    return state, [LeftUndone(running=state.running, without_status=event.missing)]


def certify(state: NodeStatusState, event: OrderEnded) -> tuple[NodeStatusState, list[Event]]:
    """Before the release (design: the safe-to-detach certificate): others may act on it, so in doubt not."""
    unread = (("", NOT_READ),)
    mounted = unread if event.result != "done" or state.mounted is None else state.mounted
    safe = state.all_ended and not mounted
    certified = DetachCertified(safe=safe, ended=state.ended, running=state.running, mounted=mounted)
    key = order_key(NAME, "certificate", "", state.ordinal)
    order = PublishCertificate(key=key, safe=safe, ended=state.ended, running=state.running, mounted=mounted)
    state = replace(wait_for(state, key), check_key="", certificate_key=key, ordinal=state.ordinal + 1)
    return state, [certified, order]


def withdraw_certificate(state: NodeStatusState) -> tuple[NodeStatusState, list[Event]]:
    """The machine stays up: nothing is certified any more, and what is under way is called back."""
    open_keys = [key for key in (state.check_key, state.certificate_key) if key in state.deliveries]
    orders: list[Event] = []
    for target in open_keys:
        key = order_key(NAME, "uncertify", "", state.ordinal)
        orders.append(CancelOrder(key=key, target=target))
        state = replace(state, ordinal=state.ordinal + 1)
    kept = {key: each for key, each in state.deliveries.items() if key not in open_keys}
    return replace(state, check_key="", certificate_key="", deliveries=kept), orders


def api_lost(state: NodeStatusState, event: ApiRead, now: int) -> NodeStatusState:
    """Nobody waits longer for a server that is gone than for one that was never there."""
    state = replace(state, api=event.reachable, taints=event.taint)
    if event.reachable or not state.flushing:
        return state
    return replace(state, flush_by_ns=min(state.flush_by_ns, now + state.flush_ns))


def settle(state: NodeStatusState, decisions: list[Event]) -> Result:
    lost = state.undelivered + sum(1 for statuses in state.deliveries.values() if statuses)
    state = replace(state, flush_by_ns=NEVER_NS, awaited=0)
    return state, [*decisions, StatusesSettled(undelivered=lost)]


def tick(state: NodeStatusState, event: Tick, now: int) -> Result:
    return settle(state, [])
