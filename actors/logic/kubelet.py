"""KubeletActor: who ends the pods of a Kubernetes node, and what becomes of its kubelet meanwhile.

Pods that we stop ourselves a running kubelet would start again; so it is stopped first, and started again
when the machine stays up. It goes one way: what the API was to do passes to the runtime, never back (design,
rule 9). In mode process nobody asks this actor anything, and it has nothing to say.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.kubelet_unit import NAME, RETRY_SECONDS, KubeletState, order_ended, start, stop
from actors.policy.means import NODE_MODES, Health, choose
from actors.policy.plan import granted_periods
from events.base import NS_PER_SECOND
from events.decisions import (
    ConfigAdopted,
    DeleteRefused,
    EpisodeClosed,
    FallbackEngaged,
    HandedOver,
    MeansChosen,
    ShutdownBegan,
    ShutdownCancelled,
    WaveStarted,
)
from events.facts import (
    ApiRead,
    DaemonStarted,
    KubeletRead,
    LogindRead,
    OrderEnded,
    PrepareForShutdown,
    RuntimeRead,
    Tick,
)
from events.model import Means, Period

#: After a cancel what has begun is finished first, but not longer: at 40 s the node would count as lost.
FINISH_NS = 20 * NS_PER_SECOND

#: How often a kubelet that comes back in mid-shutdown is stopped again: somebody may insist.
STOPS_MAX = 3


# --- what is there -----------------------------------------------------------------------------


def _started(state: KubeletState, event: DaemonStarted, now: int) -> Result:
    """In another boot, or userspace, the service manager has started the kubelet itself."""
    if event.mode not in NODE_MODES and not state.mode:
        return state, ()
    home = f"{event.boot_id}/{event.userspace_id}"
    here = home == state.home
    state = replace(
        state,
        mode=event.mode if event.mode in NODE_MODES else "",
        home=home,
        kubelet=None,
        runtime=None,
        api=None,
        stopped=state.stopped and here,
        stop_key=state.stop_key if here else "",
        start_key=state.start_key if here else "",
        retry_at_ns=NEVER_NS,
    )
    return start(state) if state.stopped and not state.means else (state, ())


def _config(state: KubeletState, event: ConfigAdopted, now: int) -> Result:
    return (replace(state, wanted=event.means, periods=event.periods), ()) if state.mode else (state, ())


def _lock_read(state: KubeletState, event: LogindRead | PrepareForShutdown, now: int) -> Result:
    if not state.mode or event.kubelet_lock == state.kubelet_lock:
        return state, ()
    return replace(state, kubelet_lock=event.kubelet_lock), ()


def _kubelet_read(state: KubeletState, event: KubeletRead, now: int) -> Result:
    """One that comes back while we end its pods would start them again; one that dies carries nothing out."""
    state = replace(state, kubelet=event.active, stoppable=event.stoppable)
    if event.active is False and state.means == "api" and not state.handed_over:
        return _hand_over(state, "the kubelet does not run")
    ours = state.means == "cri" or state.handed_over
    back = event.active and ours and not state.stop_key and not state.cancelled
    if not back or state.stops >= STOPS_MAX:
        return state, ()
    state, order = stop(state)
    return state, [order]


def _runtime_read(state: KubeletState, event: RuntimeRead, now: int) -> Result:
    return replace(state, runtime=event.reachable), ()


def _api_read(state: KubeletState, event: ApiRead, now: int) -> Result:
    return replace(state, api=event.reachable, taints=event.taint), ()


# --- a shutdown --------------------------------------------------------------------------------


def _began(state: KubeletState, event: ShutdownBegan, now: int) -> Result:
    if not state.mode:
        return state, ()
    kubelet = False if state.stopped else state.kubelet
    health = Health(kubelet, state.runtime, state.api, state.stoppable)
    starved = _starved(state.periods, event.grant_ns)
    choice = choose(state.mode, event.kind, state.wanted, state.kubelet_lock, health, starved=starved)
    state = replace(
        state, means=choice.means, handed_over=False, cancelled=False, stops=0, retry_at_ns=NEVER_NS
    )
    taints = choice.means != "api" or state.taints
    chosen = MeansChosen(means=choice.means, reason=choice.reason, taints=taints)
    if choice.means != "cri":
        return state, [chosen]
    state, order = stop(state)
    return state, [chosen, order]


def _starved(periods: tuple[Period, ...], grant_ns: int) -> bool:
    """Does a wave that was to have time get none?"""
    granted = granted_periods(periods, grant_ns)
    return any(asked.seconds and not given.seconds for asked, given in zip(periods, granted, strict=True))


def _hand_over(state: KubeletState, reason: str) -> Result:
    if state.means != "api" or state.handed_over or state.cancelled:
        return state, ()
    state, order = stop(replace(state, handed_over=True))
    return state, [HandedOver(reason=reason), order]


def _wave_started(state: KubeletState, event: WaveStarted, now: int) -> Result:
    return _hand_over(state, "no delete ends the pods that are left") if event.handover else (state, ())


def _refused(state: KubeletState, event: DeleteRefused, now: int) -> Result:
    return _hand_over(state, f"the API server did not take a delete: {event.reason}")


def _fallback(state: KubeletState, event: FallbackEngaged, now: int) -> Result:
    """The fallback signals containers, and a kubelet would start them again."""
    return _hand_over(state, "the fallback ends pods")


# --- its end -----------------------------------------------------------------------------------


def _cancelled(state: KubeletState, event: ShutdownCancelled, now: int) -> Result:
    if not state.means:
        return state, ()
    start_by_ns = now + FINISH_NS if state.stopped else NEVER_NS
    return replace(state, cancelled=True, retry_at_ns=start_by_ns), ()


def _closed(state: KubeletState, event: EpisodeClosed, now: int) -> Result:
    """The machine stays up, and everything whose stop had begun is finished. Or another shutdown follows."""
    if not state.means:
        return state, ()
    state = replace(state, means="", handed_over=False, cancelled=False)
    return start(state) if state.stopped and not event.followed else (state, ())


def _retry(state: KubeletState, event: Tick, now: int) -> Result:
    """In a shutdown the kubelet stays away."""
    state = replace(state, retry_at_ns=NEVER_NS)
    return (state, ()) if state.means and not state.cancelled else start(state)


def _afresh(state: KubeletState, now: int, in_episode: bool, start: DaemonStarted | None) -> KubeletState:
    """Outside of a shutdown the kubelet is started again if it may be we who stopped it."""
    means: Means = state.means if in_episode else ""
    retry_at_ns = now + RETRY_SECONDS[0] * NS_PER_SECOND if state.stopped and not in_episode else NEVER_NS
    return replace(state, means=means, stop_key="", start_key="", retry_at_ns=retry_at_ns)


KUBELET = ActorType(
    NAME,
    KubeletState,
    {
        DaemonStarted: _started,
        ConfigAdopted: _config,
        LogindRead: _lock_read,
        PrepareForShutdown: _lock_read,
        KubeletRead: _kubelet_read,
        RuntimeRead: _runtime_read,
        ApiRead: _api_read,
        ShutdownBegan: _began,
        WaveStarted: _wave_started,
        DeleteRefused: _refused,
        FallbackEngaged: _fallback,
        ShutdownCancelled: _cancelled,
        EpisodeClosed: _closed,
        OrderEnded: order_ended,
        Tick: _retry,
    },
    deadline=lambda state: state.retry_at_ns,
    afresh=_afresh,
)
