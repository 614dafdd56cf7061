"""FallbackActor: a page of code that cannot do much wrong, for when another actor's code did.

A failed actor's pods are handed over with its failure, and its duty is done as plainly as it can be:

* HookActor: its pod is stopped in its turn (`actors.logic.care`).
* WaveActor: those of its pods that have not begun begin now; the other waves keep their order.
* EpisodeActor: every pod that has not begun begins now (`actors.logic.lead`).
* NodeStatusActor, LogindActor: they own no pod; what they would say at the end is said here.
* KubeletActor: the pods are ours to end, and the kubelet is stopped for it.

And a bug of ours must not hold a machine: when all else is silent, the release is ordered here.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.care import (
    ASKED,
    EPISODE,
    OWNER,
    FallbackState,
    container_exited,
    kill,
    put,
    replanned,
    spare,
    stop_began,
    take_pod,
    without,
)
from actors.logic.fallback_mind import KEPT_IN_MIND
from actors.logic.lead import (
    afresh,
    begin_waiting,
    close_if_over,
    end_if_over,
    lead,
    list_again,
    listed,
    listing,
    plan_made,
    take_up,
    without_shutdown,
)
from actors.logic.let_go import (
    KUBELET,
    LOGIND,
    NODE_STATUS,
    STOP_KUBELET,
    order_release,
    pods_ended,
    release_instead,
    seen_release,
    settled,
    stop_kubelet,
)
from actors.policy.means import NODE_MODES
from events.base import Event
from events.decisions import (
    ActorFailed,
    EpisodeClosed,
    KubeletStopped,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ReleaseLock,
    Resumed,
    ShutdownCancelled,
    ShutdownWithdrawn,
    StatusesSettled,
    TakeInventory,
)
from events.facts import ContainerExited, DaemonStarted, InventoryTaken, OrderEnded, ReleaseRequested, Tick

NAME = OWNER

# Not imported: the fallback must not lean on the code that it stands in for.
HOOK, WAVE = "HookActor", "WaveActor"


# --- a failure ---------------------------------------------------------------------------------


def _failed(state: FallbackState, event: ActorFailed, now: int) -> Result:
    duty = DUTIES.get(event.actor)
    return (state, ()) if duty is None else duty(state, event, now)


def _begin_wave(state: FallbackState, event: ActorFailed, now: int) -> Result:
    return state, begin_waiting(state, event, now, wave=event.subject)


DUTIES: dict[str, Callable[[FallbackState, ActorFailed, int], Result]] = {
    HOOK: take_pod,
    WAVE: _begin_wave,
    EPISODE: lead,
    NODE_STATUS: release_instead,
    LOGIND: release_instead,
    KUBELET: stop_kubelet,
}


# --- pods --------------------------------------------------------------------------------------


def _pod_ended(state: FallbackState, event: PodEnded, now: int) -> Result:
    state = without(state, event.uid)
    if event.uid not in state.waited:
        return state, ()
    state = replace(state, waited={uid: wave for uid, wave in state.waited.items() if uid != event.uid})
    return (state, close_if_over(state)) if state.stage == "cancelled" else end_if_over(state)


def _order_ended(state: FallbackState, event: OrderEnded, now: int) -> Result:
    what, uid = event.key.split("/")[1:3]
    if what == "inventory" and event.result != "done":
        return list_again(state, event.result, now)
    if what == STOP_KUBELET:
        return state, [KubeletStopped(result=event.result)]
    care = state.cares.get(uid)
    if care is None or not what.startswith("kill:") or event.result != "unknown":
        return state, ()
    return put(state, *kill(care))


def _tick(state: FallbackState, event: Tick, now: int) -> Result:
    decisions: list[Event] = []
    for care in state.cares.values():
        if not care.killed and care.kill_at_ns <= now:
            state, made = put(state, *kill(care))
            decisions += made
    if state.release_by_ns > now:
        return state, decisions
    state, given_up = _give_up(state, event, now)
    state, order = order_release(state)
    return state, [*decisions, *given_up, *order]


# --- the end -----------------------------------------------------------------------------------


def _let_go(state: FallbackState, event: ReleaseRequested, now: int) -> Result:
    return _give_up(state, event, now) if state.in_episode else (state, ())


def _give_up(state: FallbackState, event: Tick | ReleaseRequested, now: int) -> Result:
    """The EpisodeActor would name here who is left, also of a cancelled shutdown."""
    if not state.leads or state.stage not in ("", "cancelled"):
        return state, ()
    return replace(state, stage=state.stage or "pods-ended"), [PodsEnded(unfinished=tuple(state.waited))]


def _withdrawn(state: FallbackState, event: ShutdownWithdrawn, now: int) -> Result:
    said = (ShutdownCancelled(reason=event.reason),) if state.leads else ()
    return replace(state, stage="cancelled", detected=None), said


def _stands_down(state: FallbackState, event: ShutdownCancelled, now: int) -> Result:
    """Pods of ours are followed to their end; nothing is released for a machine that stays."""
    spared: list[Event] = [spare(care) for care in state.cares.values() if not care.begun_ns]
    state = replace(state, in_episode=False, stage="cancelled")
    return state, [*spared, *close_if_over(state)]


def _closed(state: FallbackState, event: EpisodeClosed, now: int) -> Result:
    return without_shutdown(state), ()


# --- a start -----------------------------------------------------------------------------------


def _started(state: FallbackState, event: DaemonStarted, now: int) -> Result:
    """In another boot, or userspace, the processes are gone, and so is what we cared for."""
    home, leads = f"{event.boot_id}/{event.userspace_id}", state.leads
    same = home == state.home
    moved_ns = state.moved_ns if same else now
    node = event.mode in NODE_MODES
    state = replace(
        state, home=home, moved_ns=moved_ns, start=event, failed=(EPISODE,) if leads else (), node=node
    )
    if node:
        state = replace(state, onlooker=event.mode == "observe")
    decisions = take_up(state, event, now) if leads else []
    return state if same else replace(state, cares={}, waited={}), decisions


def _answered(state: FallbackState, event: Resumed, now: int) -> Result:
    return replace(state, start=None), ()


def _deadline(state: FallbackState) -> int:
    kills = (care.kill_at_ns for care in state.cares.values() if not care.killed)
    return min(state.release_by_ns, min(kills, default=NEVER_NS))


FALLBACK = ActorType(
    NAME,
    FallbackState,
    {
        **KEPT_IN_MIND,
        TakeInventory: listing,
        InventoryTaken: listed,
        PlanMade: plan_made,
        ActorFailed: _failed,
        PodPlanned: replanned,
        PodStopBegan: stop_began,
        ContainerExited: container_exited,
        PodEnded: _pod_ended,
        OrderEnded: _order_ended,
        Tick: _tick,
        ReleaseRequested: _let_go,
        PodsEnded: pods_ended,
        StatusesSettled: settled,
        ReleaseLock: seen_release,
        ShutdownWithdrawn: _withdrawn,
        ShutdownCancelled: _stands_down,
        EpisodeClosed: _closed,
        DaemonStarted: _started,
        Resumed: _answered,
        **ASKED,
    },
    deadline=_deadline,
    afresh=afresh,
)
