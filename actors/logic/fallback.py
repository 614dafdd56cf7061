"""FallbackActor: a page of code that cannot do much wrong, for when another actor's code did.

A failed actor's pods are handed over with its failure. A pod whose own actor failed gets the stop signal
(again, if need be), then what is left of its grace and of the budget, then SIGKILL. Where a wave or the
whole plan failed, every pod that has not begun begins now. And a bug of ours must not hold a machine: the
fallback orders the release when nobody else has.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from actors.logic.roll import Roll
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
from events.facts import ContainerExited, DaemonStarted, InventoryTaken, Tick
from events.model import Handover, Pod

NAME = "FallbackActor"

# Not imported: the fallback must not lean on the code that it stands in for.
EPISODE_NAME = "EpisodeActor"
HOOK_NAME = "HookActor"
WAVE_NAME = "WaveActor"


class Care(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod in our own care. ``left`` are its containers that still run."""

    pod: Pod
    wave: int
    since_ns: int
    kill_at_ns: int
    left: tuple[str, ...]
    killed: bool = False


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    deadline_ns: int = 0
    release_by_ns: int = NEVER_NS
    inventory: tuple[Pod, ...] = ()
    cares: dict[str, Care] = {}
    #: Whom the release waits for, once an actor that leads to it has failed.
    roll: Roll = Roll()
    watching: bool = False
    released: bool = False
    #: The EpisodeActor itself has failed: the last word on the episode is ours too.
    closes: bool = False
    boot_id: str = ""


def _began(state: FallbackState, event: ShutdownBegan, now: int) -> Result:
    return FallbackState(
        in_episode=True,
        deadline_ns=event.deadline_ns,
        release_by_ns=event.release_by_ns,
        boot_id=state.boot_id,
    ), ()


def _inventory(state: FallbackState, event: InventoryTaken, now: int) -> Result:
    """Kept for the case that the plan itself fails. A refresh after it does not matter here."""
    return replace(state, inventory=state.inventory + event.pods) if state.in_episode else state, ()


def _failed(state: FallbackState, event: ActorFailed, now: int) -> Result:
    if not state.in_episode:
        return state, ()
    reason = f"{event.actor} failed"
    if event.actor == HOOK_NAME:
        return _take(state, event.handover, now, reason)
    closes = state.closes or event.actor == EPISODE_NAME
    watching = state.watching or event.actor != WAVE_NAME
    state = replace(state, closes=closes, watching=watching)
    if event.actor == EPISODE_NAME and not event.handover:
        return _begin_unplanned(state, now, reason)
    return _begin(state, event.handover, now, reason)


# --- pods whose plan has failed ----------------------------------------------------------------


def _begin_unplanned(state: FallbackState, now: int, reason: str) -> Result:
    """The plan itself failed: every pod of the inventory is planned into one wave, with its own grace."""
    planned: list[Event] = []
    handover = []
    for pod in {pod.uid: pod for pod in state.inventory}.values():
        grace_seconds = max(0, pod.grace_seconds or 0)
        planned.append(PodPlanned(wave=0, grace_seconds=grace_seconds, pod=pod))
        handover.append(Handover(pod=pod, wave=0, grace_ns=grace_seconds * NS_PER_SECOND))
    state, decisions = _begin(state, tuple(handover), now, reason)
    return state, [*planned, *decisions]


def _begin(state: FallbackState, handover: tuple[Handover, ...], now: int, reason: str) -> Result:
    """Every pod that has not begun begins now; its own actor, which is well, takes it from there."""
    waiting = [each for each in handover if not each.begun_ns]
    decisions: list[Event] = [FallbackEngaged(pods=tuple(each.pod.uid for each in waiting), reason=reason)]
    for each in waiting:
        grace_ns = max(0, min(each.grace_ns, state.deadline_ns - now))
        decisions.append(
            PodStopBegan(
                uid=each.pod.uid, wave=each.wave, grace_ns=grace_ns, kill_by_ns=state.deadline_ns
            )
        )
    state = replace(state, roll=Roll.of(each.pod.uid for each in handover))
    state, release = _release_if_over(state)
    return state, [*decisions, *release]


# --- pods whose own actor has failed -----------------------------------------------------------


def _take(state: FallbackState, handover: tuple[Handover, ...], now: int, reason: str) -> Result:
    decisions: list[Event] = [FallbackEngaged(pods=tuple(each.pod.uid for each in handover), reason=reason)]
    cares = dict(state.cares)
    for each in handover:
        care = _care(each, state.deadline_ns, now)
        cares[each.pod.uid] = care
        decisions.extend(_signals(care) if care.left else [_ended(care, now)])
    return replace(state, cares=cares), decisions


def _care(each: Handover, deadline_ns: int, now: int) -> Care:
    since_ns = each.begun_ns or now
    return Care(
        pod=each.pod,
        wave=each.wave,
        since_ns=since_ns,
        kill_at_ns=max(now, min(since_ns + each.grace_ns, deadline_ns)),
        left=tuple(c.name for c in each.pod.containers if c.running and c.name not in each.exited),
    )


def _signals(care: Care) -> list[Event]:
    return [
        SendSignal(
            key=order_key(NAME, f"stop:{each.name}", care.pod.uid),
            uid=care.pod.uid,
            container=each.name,
            signal=each.stop_signal,
        )
        for each in care.pod.containers
        if each.name in care.left
    ]


def _exited(state: FallbackState, event: ContainerExited, now: int) -> Result:
    care = state.cares.get(event.uid)
    if care is None or event.container not in care.left:
        return state, ()
    care = replace(care, left=tuple(name for name in care.left if name != event.container))
    state = replace(state, cares={**state.cares, event.uid: care})
    return state, [] if care.left else [_ended(care, now)]


def _ended(care: Care, now: int) -> PodEnded:
    return PodEnded(
        uid=care.pod.uid,
        wave=care.wave,
        outcome="killed" if care.killed else "graceful",
        reason="ended by the fallback, with SIGKILL" if care.killed else "ended under the fallback",
        elapsed_ns=now - care.since_ns,
    )


def _kills(care: Care) -> list[Event]:
    return [
        KillContainer(
            key=order_key(NAME, f"kill:{name}", care.pod.uid), uid=care.pod.uid, container=name
        )
        for name in care.left
    ]


# --- the end -----------------------------------------------------------------------------------


def _tick(state: FallbackState, event: Tick, now: int) -> Result:
    decisions: list[Event] = []
    cares = dict(state.cares)
    for uid, care in state.cares.items():
        if care.left and not care.killed and care.kill_at_ns <= now:
            cares[uid] = replace(care, killed=True)
            decisions.extend(_kills(care))
    state = replace(state, cares=cares)
    if state.release_by_ns > now:
        return state, decisions
    state, release = _release(state)
    return state, [*decisions, *release]


def _pod_ended(state: FallbackState, event: PodEnded, now: int) -> Result:
    if not state.watching or not state.roll.is_open(event.uid):
        return state, ()
    return _release_if_over(replace(state, roll=state.roll.mark(event.uid)))


def _release_if_over(state: FallbackState) -> Result:
    return _release(state) if state.watching and not state.roll.open_pods else (state, ())


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
    """Pods in our care outlive the episode, like any other pod whose stop has begun."""
    left = {uid: care for uid, care in state.cares.items() if care.left}
    return FallbackState(boot_id=state.boot_id, cares=left), ()


def _moved(state: FallbackState, event: DeadlineMoved, now: int) -> Result:
    return replace(state, deadline_ns=event.deadline_ns, release_by_ns=event.release_by_ns), ()


def _started(state: FallbackState, event: DaemonStarted, now: int) -> Result:
    """In another boot the processes are gone, and so is what we cared for."""
    if event.boot_id == state.boot_id:
        return state, ()
    state = replace(state, boot_id=event.boot_id, cares={})
    outcome: EpisodeOutcome = "complete" if state.released else "truncated"
    return state, [EpisodeClosed(outcome=outcome)] if state.closes else ()


def _deadline(state: FallbackState) -> int:
    kills = (care.kill_at_ns for care in state.cares.values() if care.left and not care.killed)
    return min(state.release_by_ns, min(kills, default=NEVER_NS))


FALLBACK = ActorType(
    NAME,
    FallbackState,
    {
        ShutdownBegan: _began,
        InventoryTaken: _inventory,
        ActorFailed: _failed,
        PodEnded: _pod_ended,
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
