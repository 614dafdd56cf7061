"""EpisodeActor: where is this shutdown? From the signal to the last word on it.

Waves run one after another in ascending priority (KEP-2712). The actor starts a wave when the one
before has ended, gives up when the budget is over, and honours a cancel at once.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.budget import REAP_MARGIN_NS, Layout, lay_out
from actors.logic.course import (
    NAME,
    EpisodeState,
    Phase,
    drain,
    list_pods,
    next_wave,
    open_pods,
)
from actors.logic.informed import INFORMED
from actors.logic.listing import inventory, joined, listing_ended
from actors.logic.start import started, without_shutdown
from actors.logic.wave import NAME as WAVE_NAME
from events.decisions import (
    PROJECTION_VERSION,
    ActorFailed,
    DeadlineMoved,
    EpisodeClosed,
    EpisodeOutcome,
    PodEnded,
    PodsEnded,
    ReleaseLock,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownDetected,
    ShutdownWithdrawn,
    WaveEnded,
)
from events.facts import DaemonStarted, InventoryTaken, OrderEnded, PodJoined, ReleaseRequested, Tick

#: Phases that a pod's end may change: in these the wait is bounded.
WAITING: tuple[Phase, ...] = ("listing", "waves", "draining", "cancelling")


# --- the beginning -----------------------------------------------------------------------------


def _detected(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    if state.phase == "idle":
        return _begin(state, event, now)
    if state.phase == "cancelling":
        fresh, closed = _close(state, "cancelled", followed=True)
        began, decisions = _begin(fresh, event, now)
        return began, [*closed, *decisions]
    if state.phase == "released":
        return state, ()
    return _move_deadline(state, event, now)


def _layout(state: EpisodeState, grant_ns: int, now: int) -> Layout:
    return lay_out(now, grant_ns, state.requested_ns, state.reserve_ns)


def _begin(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    layout = _layout(state, event.grant_ns, now)
    began = ShutdownBegan(
        kind=event.kind,
        grant_ns=event.grant_ns,
        requested_ns=state.requested_ns,
        budget_ns=layout.deadline_ns - now,
        deadline_ns=layout.deadline_ns,
        release_by_ns=layout.release_by_ns,
        lock_held=event.lock_held,
        budget="elastic" if state.elastic else "strict",
        projection_version=PROJECTION_VERSION,
    )
    state = replace(
        state,
        phase="listing",
        listing_failed=False,
        kind=event.kind,
        grant_ns=event.grant_ns,
        **layout._asdict(),
    )
    state, order = list_pods(state, refresh=False)
    return state, [began, order]


def _move_deadline(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    """logind restarted (another delay begins), or the service manager's stop time is all that is left."""
    layout = _layout(state, event.grant_ns, now)
    return replace(state, **layout._asdict()), [DeadlineMoved(overtime=event.overtime, **layout._asdict())]


# --- the waves ---------------------------------------------------------------------------------


def _wave_ended(state: EpisodeState, event: WaveEnded, now: int) -> Result:
    if state.phase != "waves" or event.wave != state.wave:
        return state, ()
    return next_wave(replace(state, carried_ns=event.unused_ns), now, [])


def _without_carried(state: EpisodeState, uid: str) -> EpisodeState:
    if uid not in state.carried:
        return state
    return replace(state, carried={each: wave for each, wave in state.carried.items() if each != uid})


def _pod_ended(state: EpisodeState, event: PodEnded, now: int) -> Result:
    if not state.roll.is_open(event.uid):
        return _without_carried(state, event.uid), ()
    state = replace(state, roll=state.roll.mark(event.uid))
    if state.roll.open_pods:
        return state, ()
    if state.phase == "cancelling":
        return _close(state, "cancelled")
    return drain(state, []) if state.phase == "draining" else (state, ())


def _actor_failed(state: EpisodeState, event: ActorFailed, now: int) -> Result:
    """A wave that cannot report its end is not waited for; the fallback begins what it has not begun."""
    if event.actor != WAVE_NAME or event.subject != str(state.wave) or state.phase != "waves":
        return state, ()
    return next_wave(replace(state, carried_ns=0), now, [])


# --- the end -----------------------------------------------------------------------------------


def _let_go(state: EpisodeState, event: ReleaseRequested, now: int) -> Result:
    """After a cancel there is nothing to let go: what has begun is finished."""
    return (state, ()) if state.phase == "cancelling" else _give_up(state, event, now)


def _give_up(state: EpisodeState, event: Tick | ReleaseRequested, now: int) -> Result:
    """The budget is over, or somebody said so: what is left is named, and nothing more is waited for."""
    if state.phase not in WAITING:
        return state, ()
    if state.given_up:
        return _close_unseen(state)
    ended = PodsEnded(unfinished=tuple(state.roll.missing()))
    if state.phase == "cancelling":
        return replace(state, given_up=True), [ended]
    return replace(state, phase="flushing"), [ended]


def _close_unseen(state: EpisodeState) -> Result:
    """Nobody has answered for these pods: their actor has failed, and the fallback too."""
    reason = "nobody was left to see its end"
    unseen = [
        PodEnded(uid=uid, wave=wave, outcome="unknown", reason=reason)
        for uid, wave in open_pods(state).items()
    ]
    state, closed = _close(state, "cancelled")
    return state, [*unseen, *closed]


def _released(state: EpisodeState, event: ReleaseLock, now: int) -> Result:
    """By the fallback, perhaps: then what is left gets its last word here."""
    state, ended = _let_go(state, ReleaseRequested(asked_by=0), now)
    return replace(state, phase="released"), ended


def _withdrawn(state: EpisodeState, event: ShutdownWithdrawn, now: int) -> Result:
    """Honoured in the middle (the kubelet waits until all groups are done, facts-kubelet 1.4)."""
    cancelled = ShutdownCancelled(reason=event.reason)
    state, decisions = _end_cancelled(replace(state, phase="cancelling"))
    return state, [cancelled, *decisions]


def _end_cancelled(state: EpisodeState) -> Result:
    return (state, ()) if state.roll.open_pods else _close(state, "cancelled")


def _close(state: EpisodeState, outcome: EpisodeOutcome, *, followed: bool = False) -> Result:
    closed = EpisodeClosed(outcome=outcome, last_wave=state.wave, followed=followed)
    return without_shutdown(state), [closed]


def _afresh(
    state: EpisodeState, now: int, in_episode: bool, start: DaemonStarted | None
) -> EpisodeState | None:
    """A shutdown that this actor has failed in is the fallback's to the end, also in another process.

    What ends it may be the start of another boot, which a failed actor does not hear of.
    """
    if in_episode:
        return None
    state = replace(without_shutdown(state), carried={})
    return state if start is None else replace(state, boot_id=start.boot_id, userspace_id=start.userspace_id)


def _deadline(state: EpisodeState) -> int:
    """A pod that survives SIGKILL holds neither a machine nor, after a cancel, the episode."""
    if state.phase not in WAITING:
        return NEVER_NS
    give_up_ns = Layout(state.deadline_ns, state.kill_by_ns, state.release_by_ns).give_up_ns
    return give_up_ns + REAP_MARGIN_NS if state.given_up else give_up_ns


EPISODE = ActorType(
    NAME,
    EpisodeState,
    {
        **INFORMED,
        ShutdownDetected: _detected,
        InventoryTaken: inventory,
        PodJoined: joined,
        OrderEnded: listing_ended,
        WaveEnded: _wave_ended,
        PodEnded: _pod_ended,
        Tick: _give_up,
        ReleaseRequested: _let_go,
        ReleaseLock: _released,
        ActorFailed: _actor_failed,
        ShutdownWithdrawn: _withdrawn,
        DaemonStarted: started,
    },
    deadline=_deadline,
    afresh=_afresh,
)
