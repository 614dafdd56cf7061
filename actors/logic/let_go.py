"""What the fallback does in place of actors that own no pod: the release, and the kubelet that must not run.

Without the LogindActor nobody orders the release, without the NodeStatusActor nobody leads to it, and without
the KubeletActor a kubelet starts again what is stopped.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result
from actors.logic.care import OWNER, FallbackState, engaged, give_up
from events.base import Event, order_key
from events.decisions import (
    ActorFailed,
    HandedOver,
    MeansChosen,
    PodsEnded,
    ReleaseLock,
    StatusesSettled,
    StopKubelet,
)

#: The order's word in its key.
STOP_KUBELET = "stop-kubelet"

# Not imported: the fallback must not lean on the code that it stands in for.
NODE_STATUS, LOGIND, KUBELET = "NodeStatusActor", "LogindActor", "KubeletActor"


def release_instead(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """Without the LogindActor nobody orders the release, without the NodeStatusActor nobody leads to it."""
    if not state.in_episode:
        return state, ()
    state, release = release_if_over(replace(state, failed=(*state.failed, event.actor)))
    return state, [engaged(event), *release]


def stop_kubelet(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """However the pods were to be ended, from now on it is over the runtime; it may be stopped already."""
    if not state.in_episode:
        return replace(state, kubelet_failed_ns=now), ()
    return without_kubelet(state, [engaged(event)])


def without_kubelet(state: FallbackState, decisions: list[Event]) -> Result:
    if not state.node or state.observing:
        return state, ()
    if state.onlooker or state.kubelet_lock:
        chosen = MeansChosen(means="observe", reason=f"{KUBELET} failed")
        return replace(state, observing=True), [*decisions, chosen]
    order = StopKubelet(key=order_key(OWNER, STOP_KUBELET, "", state.ordinal))
    handed = HandedOver(reason=f"{KUBELET} failed")
    return replace(state, ordinal=state.ordinal + 1), [*decisions, handed, order]


def settled(state: FallbackState, event: StatusesSettled, now: int) -> Result:
    """Outside of a shutdown it says only what became of an earlier one's statuses."""
    over = not state.in_episode or state.stage == "cancelled"
    return (state, ()) if over else release_if_over(replace(state, stage="settled"))


def release_if_over(state: FallbackState) -> Result:
    nobody_settles = NODE_STATUS in state.failed and state.stage in ("pods-ended", "settled")
    nobody_releases = LOGIND in state.failed and state.stage == "settled"
    return order_release(state) if nobody_settles or nobody_releases else (state, ())


def order_release(state: FallbackState) -> Result:
    if not state.in_episode or state.released:
        return replace(state, release_by_ns=NEVER_NS), ()
    order = ReleaseLock(key=order_key(OWNER, "release", "", state.ordinal))
    return replace(state, released=True, release_by_ns=NEVER_NS, ordinal=state.ordinal + 1), [order]


def seen_release(state: FallbackState, event: ReleaseLock, now: int) -> Result:
    return replace(state, released=True, release_by_ns=NEVER_NS), ()


def pods_ended(state: FallbackState, event: PodsEnded, now: int) -> Result:
    """Pods of ours that outlived the budget get their last word from us."""
    ended: list[Event] = [give_up(care, now) for care in state.cares.values()]
    if state.stage == "cancelled":
        return state, ended
    state, release = release_if_over(replace(state, stage="pods-ended"))
    return state, [*ended, *release]
