"""FallbackActor: a page of code that cannot do much wrong, for when another actor's code did.

It follows every pod from afar. When an actor fails, every pod in that actor's care that has not ended gets
the stop signal (again, if need be), then what is left of its grace and of the budget, then SIGKILL. It
also orders the release when nobody else does: a bug of ours must not hold a machine.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from actors.logic.container import OWNER as HOOK_NAME
from actors.logic.wave import NAME as WAVE_NAME
from events.base import NS_PER_SECOND, Event, order_key
from events.decisions import (
    ActorFailed,
    DeadlineMoved,
    EpisodeClosed,
    EpisodeOutcome,
    FallbackEngaged,
    KillContainer,
    PodEnded,
    PodPlanned,
    PodStopBegan,
    ReleaseLock,
    SendSignal,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownWithdrawn,
)
from events.facts import ContainerExited, DaemonStarted, Tick
from events.model import Pod

NAME = "FallbackActor"

#: Not imported: the fallback must not lean on the code that it stands in for.
EPISODE_NAME = "EpisodeActor"

#: Starts that failed at one place of the journal before a start goes straight to the fallback.
FAILED_STARTS_MAX = 2


class Care(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod as the fallback sees it. ``taken_ns``: since when it is in our care (0: not)."""

    pod: Pod
    wave: int
    grace_ns: int
    begun_ns: int = 0
    taken_ns: int = 0
    kill_at_ns: int = NEVER_NS
    killed: bool = False
    exited: tuple[str, ...] = ()
    ended: bool = False


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    kill_by_ns: int = 0
    release_by_ns: int = NEVER_NS
    cares: dict[str, Care] = {}
    open_pods: int = 0
    taken: bool = False
    #: An actor that others wait for has failed: release as soon as the pods have ended.
    watching: bool = False
    released: bool = False
    #: The EpisodeActor itself has failed: the last word on the episode is ours too.
    closes: bool = False
    boot_id: str = ""


def _began(state: FallbackState, event: ShutdownBegan, now: int) -> Result:
    return FallbackState(
        in_episode=True,
        kill_by_ns=event.deadline_ns,
        release_by_ns=event.release_by_ns,
        boot_id=state.boot_id,
    ), ()


def _planned(state: FallbackState, event: PodPlanned, now: int) -> Result:
    care = Care(pod=event.pod, wave=event.wave, grace_ns=event.grace_seconds * NS_PER_SECOND)
    cares = {**state.cares, event.pod.uid: care}
    return replace(state, cares=cares, open_pods=state.open_pods + 1), ()


def _with(state: FallbackState, uid: str, care: Care) -> FallbackState:
    return replace(state, cares={**state.cares, uid: care})


def _stop_began(state: FallbackState, event: PodStopBegan, now: int) -> Result:
    care = state.cares.get(event.uid)
    if care is None:
        return state, ()
    return _with(state, event.uid, replace(care, begun_ns=now, grace_ns=event.grace_ns)), ()


def _pod_ended(state: FallbackState, event: PodEnded, now: int) -> Result:
    care = state.cares.get(event.uid)
    if care is None or care.ended:
        return state, ()
    state = _with(state, event.uid, replace(care, ended=True))
    state = replace(state, open_pods=state.open_pods - 1)
    return _release(state) if state.watching and not state.open_pods else (state, ())


def _failed(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """A HookActor's pod is taken over; for any other actor, what has not begun begins now."""
    if not state.in_episode:
        return state, ()
    if event.actor == HOOK_NAME:
        return _take(state, (event.subject,), now, f"{event.actor} failed")
    watching = event.actor != WAVE_NAME
    state = replace(state, watching=watching, closes=state.closes or event.actor == EPISODE_NAME)
    state, decisions = _begin_all(state, now, f"{event.actor} failed")
    if state.open_pods or not watching:
        return state, decisions
    state, release = _release(state)
    return state, [*decisions, *release]


def _begin_all(state: FallbackState, now: int, reason: str) -> Result:
    waiting = [uid for uid, care in state.cares.items() if not care.begun_ns and not care.ended]
    decisions: list[Event] = [FallbackEngaged(pods=tuple(waiting), reason=reason)]
    for uid in waiting:
        care = state.cares[uid]
        grace_ns = max(0, min(care.grace_ns, state.kill_by_ns - now))
        decisions.append(
            PodStopBegan(uid=uid, wave=care.wave, grace_ns=grace_ns, kill_by_ns=state.kill_by_ns)
        )
    return state, decisions


def _take(state: FallbackState, uids: tuple[str, ...], now: int, reason: str) -> Result:
    decisions: list[Event] = [FallbackEngaged(pods=uids, reason=reason)]
    state = replace(state, taken=True)
    for uid in uids:
        care = state.cares.get(uid)
        if care is None or care.ended or care.taken_ns:
            continue
        since_ns = care.begun_ns or now
        kill_at_ns = max(now, min(since_ns + care.grace_ns, state.kill_by_ns))
        state = _with(state, uid, replace(care, taken_ns=now, kill_at_ns=kill_at_ns))
        decisions.extend(_signals(care))
    return state, decisions


def _signals(care: Care) -> list[Event]:
    return [
        SendSignal(
            key=order_key(NAME, f"stop:{each.name}", care.pod.uid),
            uid=care.pod.uid,
            container=each.name,
            signal=each.stop_signal,
        )
        for each in care.pod.containers
        if each.running and each.name not in care.exited
    ]


def _exited(state: FallbackState, event: ContainerExited, now: int) -> Result:
    care = state.cares.get(event.uid)
    if care is None or care.ended:
        return state, ()
    care = replace(care, exited=(*care.exited, event.container))
    state = _with(state, event.uid, care)
    left = [each for each in care.pod.containers if each.running and each.name not in care.exited]
    if left or not care.taken_ns:
        return state, ()
    return state, [_ended(care, now)]


def _ended(care: Care, now: int) -> PodEnded:
    return PodEnded(
        uid=care.pod.uid,
        wave=care.wave,
        outcome="killed" if care.killed else "graceful",
        reason="ended by the fallback, with SIGKILL" if care.killed else "ended under the fallback",
        elapsed_ns=now - (care.begun_ns or care.taken_ns),
    )


def _tick(state: FallbackState, event: Tick, now: int) -> Result:
    decisions: list[Event] = []
    for uid, care in state.cares.items():
        if not care.ended and not care.killed and care.kill_at_ns <= now:
            state = _with(state, uid, replace(care, killed=True))
            decisions.extend(_kills(care))
    if state.release_by_ns > now:
        return state, decisions
    state, release = _release(state)
    return state, [*decisions, *release]


def _kills(care: Care) -> list[Event]:
    return [
        KillContainer(
            key=order_key(NAME, f"kill:{each.name}", care.pod.uid), uid=care.pod.uid, container=each.name
        )
        for each in care.pod.containers
        if each.running and each.name not in care.exited
    ]


def _release(state: FallbackState) -> Result:
    if state.released or not state.in_episode:
        return replace(state, release_by_ns=NEVER_NS), ()
    state = replace(state, released=True, release_by_ns=NEVER_NS)
    return state, [ReleaseLock(key=order_key(NAME, "release"))]


def _seen_release(state: FallbackState, event: ReleaseLock, now: int) -> Result:
    return replace(state, released=True, release_by_ns=NEVER_NS), ()


def _stands_down(state: FallbackState, event: ShutdownCancelled, now: int) -> Result:
    """Pods in our care are still followed to their end; nothing is released for a machine that stays."""
    return replace(state, in_episode=False, release_by_ns=NEVER_NS, watching=False), ()


def _withdrawn(state: FallbackState, event: ShutdownWithdrawn, now: int) -> Result:
    return (state, [EpisodeClosed(outcome="cancelled")]) if state.closes else (state, ())


def _closed(state: FallbackState, event: EpisodeClosed, now: int) -> Result:
    return FallbackState(boot_id=state.boot_id), ()


def _moved(state: FallbackState, event: DeadlineMoved, now: int) -> Result:
    return replace(state, kill_by_ns=event.kill_by_ns, release_by_ns=event.release_by_ns), ()


def _started(state: FallbackState, event: DaemonStarted, now: int) -> Result:
    """Two starts that failed at the same place: whatever it is, it is not tried a third time."""
    new_boot = event.boot_id != state.boot_id
    state = replace(state, boot_id=event.boot_id)
    if new_boot:
        outcome: EpisodeOutcome = "complete" if state.released else "truncated"
        return state, [EpisodeClosed(outcome=outcome)] if state.closes else ()
    if event.failed_starts < FAILED_STARTS_MAX or not state.in_episode:
        return state, ()
    begun = tuple(uid for uid, care in state.cares.items() if care.begun_ns and not care.ended)
    state, decisions = _take(replace(state, watching=True), begun, now, "starts failed")
    state, more = _begin_all(state, now, "starts failed")
    return state, [*decisions, *more]


def _deadline(state: FallbackState) -> int:
    """The pods are looked through only once some are ours: following them must stay cheap."""
    if not state.taken:
        return state.release_by_ns
    kills = [c.kill_at_ns for c in state.cares.values() if c.taken_ns and not c.ended and not c.killed]
    return min([*kills, state.release_by_ns])


FALLBACK = ActorType(
    NAME,
    FallbackState,
    {
        ShutdownBegan: _began,
        PodPlanned: _planned,
        PodStopBegan: _stop_began,
        PodEnded: _pod_ended,
        ActorFailed: _failed,
        ContainerExited: _exited,
        Tick: _tick,
        ReleaseLock: _seen_release,
        ShutdownCancelled: _stands_down,
        ShutdownWithdrawn: _withdrawn,
        EpisodeClosed: _closed,
        DeadlineMoved: _moved,
        DaemonStarted: _started,
    },
    deadline=_deadline,
)
