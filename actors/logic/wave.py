"""WaveActor: one priority range. It starts its pods, watches its deadline, and names who is late.

A wave ends when its pods have ended, or at its deadline; stragglers stay somebody's job (their own
HookActor's) while the next wave runs, and are followed to their end. Where a running kubelet unmounts
volumes, the wave waits for that as well while it has time: the drivers that it needs come later
(kubernetes#115148).
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from actors.logic.roll import Roll
from events.base import NS_PER_SECOND, Event, order_key
from events.decisions import (
    AwaitUnmounts,
    CancelOrder,
    DeadlineMoved,
    HandedOver,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ShutdownCancelled,
    StragglerEnded,
    WaveEnded,
    WaveStarted,
)
from events.facts import OrderEnded, Tick, VolumesUnmounted

NAME = "WaveActor"

#: Outcomes of pods whose end nobody has seen: they complete no wave, and are no straggler's end.
UNSEEN: tuple[PodOutcome, ...] = ("failed", "unknown")


class WaveState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    wave: int = -1
    deadline_ns: int = 0
    kill_by_ns: int = 0
    #: In the order in which the pods were started.
    roll: Roll = Roll()
    over: bool = False
    #: Pods whose volumes are still mounted, as far as is known.
    mounted: tuple[str, ...] = ()
    unmount_key: str = ""


def _started(state: WaveState, event: WaveStarted, now: int) -> Result:
    state = WaveState(
        wave=event.wave,
        deadline_ns=event.deadline_ns,
        kill_by_ns=event.kill_by_ns,
        roll=Roll.of(pod.uid for pod in event.pods),
    )
    begun: list[Event] = [_begin(state, pod.uid, pod.grace_seconds * NS_PER_SECOND) for pod in event.pods]
    if event.deadline_ns > now:
        state, order = _await_unmounts(state, event, now)
        return state, [*begun, *order]
    state, ended = _overrun(state)
    return state, [*begun, *ended]


def _await_unmounts(state: WaveState, event: WaveStarted, now: int) -> tuple[WaveState, list[Event]]:
    """Nothing where no pod has any. The wave's own deadline makes the key another in each shutdown."""
    mounted = tuple(pod.uid for pod in event.pods if pod.volumes)
    if not mounted:
        return state, []
    key = order_key(NAME, "unmount", str(event.wave), event.deadline_ns)
    order = AwaitUnmounts(key=key, uids=mounted, timeout_ns=event.deadline_ns - now)
    return replace(state, mounted=mounted, unmount_key=key), [order]


def _begin(state: WaveState, uid: str, grace_ns: int) -> PodStopBegan:
    return PodStopBegan(uid=uid, wave=state.wave, grace_ns=grace_ns, kill_by_ns=state.kill_by_ns)


def _late(state: WaveState, event: PodPlanned, now: int) -> Result:
    """A pod that was not in the inventory, planned into this running wave: it gets what is left of it."""
    left_ns = max(0, state.deadline_ns - now)
    state = replace(state, roll=state.roll.join(event.pod.uid))
    return state, [_begin(state, event.pod.uid, min(event.grace_seconds * NS_PER_SECOND, left_ns))]


def _pod_ended(state: WaveState, event: PodEnded, now: int) -> Result:
    if not state.roll.is_open(event.uid) or event.outcome in UNSEEN:
        return state, ()
    state = replace(state, roll=state.roll.mark(event.uid))
    return (state, _straggler(state, event.uid, now)) if state.over else _complete(state, now)


def _unmounted(state: WaveState, event: VolumesUnmounted, now: int) -> Result:
    if event.uid not in state.mounted:
        return state, ()
    return _complete(replace(state, mounted=tuple(uid for uid in state.mounted if uid != event.uid)), now)


def _handed_over(state: WaveState, event: HandedOver, now: int) -> Result:
    """A kubelet that is stopped unmounts nothing any more."""
    if not state.mounted:
        return state, ()
    cancels = _stop_looking(state)
    state, ended = _complete(replace(state, mounted=()), now)
    return state, [*cancels, *ended]


def _stop_looking(state: WaveState) -> list[Event]:
    if not state.mounted:
        return []
    key = order_key(NAME, "look-away", str(state.wave), state.deadline_ns)
    return [CancelOrder(key=key, target=state.unmount_key)]


def _unmounts_ended(state: WaveState, event: OrderEnded, now: int) -> Result:
    """However: from now on nobody tells of them, so nobody waits for them."""
    if event.key != state.unmount_key or event.result == "timed-out":
        return state, ()
    return _complete(replace(state, mounted=()), now)


def _complete(state: WaveState, now: int) -> Result:
    if state.over or state.roll.open_pods or state.mounted:
        return state, ()
    unused_ns = max(0, state.deadline_ns - now)
    ended = WaveEnded(wave=state.wave, outcome="complete", unused_ns=unused_ns)
    return replace(state, over=True), [ended]


def _straggler(state: WaveState, uid: str, now: int) -> list[Event]:
    """After a cancel a pod may end before the deadline: it is not late."""
    late_ns = now - state.deadline_ns
    return [StragglerEnded(wave=state.wave, uid=uid, late_ns=late_ns)] if late_ns >= 0 else []


def _tick(state: WaveState, event: Tick, now: int) -> Result:
    return _overrun(state)


def _given_up(state: WaveState, event: PodsEnded, now: int) -> Result:
    """Nobody waits any longer, before this wave's own end."""
    return (state, ()) if state.over else _overrun(state)


def _moved(state: WaveState, event: DeadlineMoved, now: int) -> Result:
    deadline_ns = min(state.deadline_ns, event.deadline_ns)
    return replace(state, deadline_ns=deadline_ns, kill_by_ns=event.kill_by_ns), ()


def _overrun(state: WaveState) -> Result:
    late = tuple(state.roll.missing())
    ended = WaveEnded(wave=state.wave, outcome="overran", stragglers=late, mounted=state.mounted)
    return replace(state, over=True), [ended]


def _cancelled(state: WaveState, event: ShutdownCancelled, now: int) -> Result:
    if state.over:
        return state, ()
    ended = WaveEnded(wave=state.wave, outcome="cancelled")
    return replace(state, over=True, mounted=()), [*_stop_looking(state), ended]


WAVE = ActorType(
    NAME,
    WaveState,
    {
        WaveStarted: _started,
        PodPlanned: _late,
        PodEnded: _pod_ended,
        VolumesUnmounted: _unmounted,
        OrderEnded: _unmounts_ended,
        HandedOver: _handed_over,
        Tick: _tick,
        PodsEnded: _given_up,
        DeadlineMoved: _moved,
        ShutdownCancelled: _cancelled,
    },
    deadline=lambda state: NEVER_NS if state.over else state.deadline_ns,
)
