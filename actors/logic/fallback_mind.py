"""What the fallback keeps in mind of a shutdown that others carry out, for when they fail."""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import Handler, Result
from actors.logic.care import FallbackState
from actors.logic.let_go import without_kubelet
from events.base import Event
from events.decisions import DeadlineMoved, MeansChosen, ShutdownBegan, ShutdownDetected, WaveStarted
from events.facts import LogindRead, PrepareForShutdown


def _detected(state: FallbackState, event: ShutdownDetected, now: int) -> Result:
    return (state, ()) if state.in_episode else (replace(state, detected=event), ())


def _began(state: FallbackState, event: ShutdownBegan, now: int) -> Result:
    began = FallbackState(
        in_episode=True,
        deadline_ns=event.deadline_ns,
        release_by_ns=event.release_by_ns,
        failed=state.failed,
        cares=state.cares,
        home=state.home,
        ordinal=state.ordinal,
        node=state.node,
        onlooker=state.onlooker,
        kubelet_lock=state.kubelet_lock,
    )
    failed_now = state.node and state.kubelet_failed_ns == now
    return without_kubelet(began, []) if failed_now else (began, ())


def _moved(state: FallbackState, event: DeadlineMoved, now: int) -> Result:
    return replace(state, deadline_ns=event.deadline_ns, release_by_ns=event.release_by_ns), ()


def _wave_started(state: FallbackState, event: WaveStarted, now: int) -> Result:
    return replace(state, wave=event.wave), ()


def _means(state: FallbackState, event: MeansChosen, now: int) -> Result:
    return (replace(state, observing=True), ()) if event.means == "observe" else (state, ())


def _lock_read(state: FallbackState, event: LogindRead | PrepareForShutdown, now: int) -> Result:
    if not state.node or event.kubelet_lock == state.kubelet_lock:
        return state, ()
    return replace(state, kubelet_lock=event.kubelet_lock), ()


KEPT_IN_MIND: dict[type[Event], Handler] = {
    ShutdownDetected: _detected,
    ShutdownBegan: _began,
    MeansChosen: _means,
    LogindRead: _lock_read,
    PrepareForShutdown: _lock_read,
    DeadlineMoved: _moved,
    WaveStarted: _wave_started,
}
