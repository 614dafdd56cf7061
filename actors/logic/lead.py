"""What the fallback does in the EpisodeActor's place: open, plan, begin everything, and have the last word.

As plainly as it can be: no waves any more. Every pod that has not begun begins now, with what is left of the
budget; when all have ended that is said; what another boot finds of it is closed.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result
from actors.logic.care import EPISODE, OWNER, Care, FallbackState, engaged
from actors.policy.resume import Found, LastEpisode, resume_action
from events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, Event, order_key
from events.decisions import (
    PROJECTION_VERSION,
    ActorFailed,
    EpisodeClosed,
    EpisodeOutcome,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    TakeInventory,
)
from events.facts import DaemonStarted, InventoryTaken
from events.model import Handover, Pod

#: Listings that may fail before the shutdown goes on without one.
LISTINGS_MAX = 2

#: Kept free before logind's own timer in an episode that the fallback itself had to open.
MARGIN_NS = NS_PER_SECOND


def lead(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """The EpisodeActor has failed, in whatever it was doing. After that it has no part in this shutdown."""
    if not state.in_episode and state.stage != "cancelled":
        return _open(state, event, now)
    waited = {each.pod.uid: each.wave for each in event.handover}
    waited |= {uid: each.wave for uid, each in state.cares.items()}
    state = replace(state, failed=(*state.failed, EPISODE), waited=waited)
    if state.start is None:
        return _go_on(state, event, now)
    resumed = take_up(state, state.start, now)
    if state.moved_ns == now:
        return replace(state, waited={}), resumed
    if state.start.preparing is False:
        return state, resumed
    state, decisions = _go_on(state, event, now)
    return state, [*resumed, *decisions]


def _go_on(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """From wherever the shutdown stands."""
    if state.stage == "cancelled":
        return _finish_cancelled(state, now)
    if state.released and not state.stage:
        return replace(state, stage="pods-ended"), [PodsEnded(unfinished=tuple(state.waited))]
    if state.stage:
        return state, ()
    begun = begin_waiting(state, event, now)
    if state.planned:
        state, decisions = end_if_over(state)
    else:
        state, decisions = _plan(state, now) if state.listed else _list(state)
    return state, [*begun, *decisions]


def _finish_cancelled(state: FallbackState, now: int) -> Result:
    """What has begun is finished, and not waited for beyond the shutdown's own end."""
    if state.in_episode:
        return state, [ShutdownCancelled(reason="cancelled")]
    end_by_ns = now if state.release_by_ns == NEVER_NS else state.release_by_ns
    return replace(state, release_by_ns=end_by_ns), close_if_over(state)


def _open(state: FallbackState, event: ActorFailed, now: int) -> Result:
    signal = state.detected
    if signal is None:
        return state, ()
    left_ns = max(0, signal.grant_ns - MARGIN_NS)
    began = ShutdownBegan(
        kind=signal.kind,
        grant_ns=signal.grant_ns,
        requested_ns=signal.grant_ns,
        budget_ns=left_ns,
        deadline_ns=now + left_ns,
        release_by_ns=now + left_ns,
        lock_held=signal.lock_held,
        projection_version=PROJECTION_VERSION,
    )
    state, order = _list(replace(state, failed=(EPISODE,)))
    return state, [began, engaged(event), *order]


def _list(state: FallbackState) -> tuple[FallbackState, list[Event]]:
    order = TakeInventory(key=order_key(OWNER, "inventory", "", state.ordinal), refresh=True)
    return replace(state, listings=state.listings + 1, ordinal=state.ordinal + 1), [order]


def list_again(state: FallbackState, result: str, now: int) -> Result:
    """A lost listing is taken again, a failed one once; then it goes on without."""
    if state.planned or state.stage or not state.leads:
        return state, ()
    if result == "unknown" or state.listings < LISTINGS_MAX:
        return _list(state)
    return _plan(state, now)


def listing(state: FallbackState, event: TakeInventory, now: int) -> Result:
    return (state, ()) if state.planned else (replace(state, listing_key=event.key), ())


def listed(state: FallbackState, event: InventoryTaken, now: int) -> Result:
    """Kept for the case that the plan itself fails. A listing of another shutdown is not this one's."""
    if state.planned or state.stage or not state.in_episode or event.key != state.listing_key:
        return state, ()
    before = state.inventory if event.part > 1 else ()
    state = replace(state, inventory=before + event.pods, listed=event.part == event.parts)
    return _plan(state, now) if state.listed and state.leads else (state, ())


def plan_made(state: FallbackState, event: PlanMade, now: int) -> Result:
    return replace(state, planned=True, listing_key="", inventory=()), ()


def _plan(state: FallbackState, now: int) -> Result:
    """Every pod of the inventory into one wave, with the grace that it asks for itself."""
    pods = tuple({pod.uid: pod for pod in state.inventory}.values())
    left_seconds = max(0, state.deadline_ns - now) // NS_PER_SECOND
    first_ordinal = state.ordinal * ORDINALS_PER_PLAN + ORDINALS_PER_PLAN // 2
    decisions: list[Event] = []
    for pod in pods:
        asked_seconds = left_seconds if pod.grace_seconds is None else pod.grace_seconds
        seconds = max(0, min(asked_seconds, left_seconds))
        planned = PodPlanned(
            wave=0,
            grace_seconds=seconds,
            pod=pod,
            first_ordinal=first_ordinal,
            means="observe" if state.observing else "",
        )
        decisions += [planned, _stop(state, pod, 0, seconds * NS_PER_SECOND, now)]
    waited = {pod.uid: 0 for pod in pods}
    state, over = end_if_over(
        replace(
            state,
            planned=True,
            listing_key="",
            inventory=(),
            wave=0,
            waited=waited,
            ordinal=state.ordinal + 1,
        )
    )
    return state, [*decisions, *over]


def begin_waiting(state: FallbackState, event: ActorFailed, now: int, wave: str = "") -> list[Event]:
    """Every pod (of one wave) that has not begun begins now; who has it in his care takes it from there."""
    everybody: list[Handover | Care] = [*event.handover, *state.cares.values()]
    waiting = [each for each in everybody if not each.begun_ns and wave in ("", str(each.wave))]
    decisions: list[Event] = [engaged(event, tuple(each.pod.uid for each in waiting))]
    return decisions + [_stop(state, each.pod, each.wave, each.grace_ns, now) for each in waiting]


def _stop(state: FallbackState, pod: Pod, wave: int, grace_ns: int, now: int) -> PodStopBegan:
    deadline_ns = max(now, state.deadline_ns)
    return PodStopBegan(
        uid=pod.uid, wave=wave, grace_ns=min(grace_ns, deadline_ns - now), kill_by_ns=deadline_ns
    )


# --- the last word -----------------------------------------------------------------------------


def end_if_over(state: FallbackState) -> Result:
    """What the EpisodeActor would say once nothing is left to wait for."""
    if state.waited or not state.leads or state.stage:
        return state, ()
    return replace(state, stage="pods-ended"), [PodsEnded()]


def close_if_over(state: FallbackState) -> list[Event]:
    """The end of a cancelled shutdown."""
    return [EpisodeClosed(outcome="cancelled")] if state.leads and not state.waited else []


def take_up(state: FallbackState, event: DaemonStarted, now: int) -> list[Event]:
    """A start, by the same table as ever. In another boot or userspace the pods went with theirs."""
    same = state.moved_ns != now
    last: LastEpisode = "closed" if state.stage == "cancelled" else "released" if state.released else "open"
    found = Found(last, event.preparing, same, same, event.lock_inherited)
    resumed = Resumed(action=resume_action(found))
    return [resumed] if same else [*_last_words(state), resumed]


def _last_words(state: FallbackState) -> list[Event]:
    ended: EpisodeOutcome = "complete" if state.released else "truncated"
    outcome: EpisodeOutcome = "cancelled" if state.stage == "cancelled" else ended
    reason = "the machine went down before its end was seen"
    unseen: list[Event] = [
        PodEnded(uid=uid, wave=wave, outcome="unknown", reason=reason) for uid, wave in state.waited.items()
    ]
    return [*unseen, EpisodeClosed(outcome=outcome)]


def without_shutdown(state: FallbackState) -> FallbackState:
    """Pods of ours outlive the episode, like any other pod whose stop has begun."""
    cares = {uid: replace(care, former=True) for uid, care in state.cares.items()}
    return FallbackState(
        home=state.home,
        moved_ns=state.moved_ns,
        cares=cares,
        ordinal=state.ordinal,
        node=state.node,
        onlooker=state.onlooker,
        kubelet_lock=state.kubelet_lock,
    )


def afresh(state: FallbackState, now: int, in_episode: bool, start: DaemonStarted | None) -> FallbackState:
    """A fallback that failed at an episode's end must not release a lock of the next."""
    return state if in_episode else without_shutdown(state)
