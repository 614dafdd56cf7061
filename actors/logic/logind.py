"""LogindActor: is this node armed, and is the machine going down?

Arming is retried for ever, also after a first failure: a kubelet that starts while logind is preparing
fails once and stays unprotected until somebody restarts it (kubernetes#122674). A shutdown that runs
already is begun without a lock.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.arming import (
    ALONE,
    NAME,
    LogindState,
    afresh,
    arm,
    bus_lost,
    cancel_release,
    config_adopted,
    order_ended,
    refuse,
    retry,
)
from events.base import order_key
from events.decisions import (
    ConfigAdopted,
    EpisodeClosed,
    Leave,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownDetected,
    ShutdownWithdrawn,
    StatusesSettled,
)
from events.facts import (
    BusLost,
    DaemonStarted,
    LogindRead,
    OrderEnded,
    PrepareForShutdown,
    PreparingRead,
    StopRequested,
    Tick,
)

#: Actions of the resume table after which the episode goes on in this process.
GOES_ON = ("resume", "wait", "release-again")

#: ... and those after which the machine turned out to stay up.
WITHDRAWN_WHILE_AWAY = ("cancelled-while-away", "did-not-go-down")


def _logind_read(state: LogindState, event: LogindRead, now: int) -> Result:
    state = replace(state, grant_ns=event.grant_ns, kind=event.kind)
    if state.alone:
        state = replace(state, kubelet_lock=event.kubelet_lock)
        if event.kubelet_lock and state.phase == "armed" and not (state.in_episode or event.preparing):
            return refuse(state, now)
        if state.refused and state.phase == "waiting" and not event.kubelet_lock and not event.preparing:
            return arm(state)
    return _preparing(state, event.preparing)


def _preparing_read(state: LogindState, event: PreparingRead, now: int) -> Result:
    return _preparing(state, event.preparing)


def _preparing(state: LogindState, preparing: bool) -> Result:
    """The property as evidence: of a shutdown whose signal was missed, or of one withdrawn.

    In overtime it says nothing: who bypassed logind did not tell it.
    """
    if preparing == state.in_episode or not state.enabled or state.leaving:
        return state, ()
    return _detected(state) if preparing else _withdrawn(state)


def _signal(state: LogindState, event: PrepareForShutdown, now: int) -> Result:
    """In overtime logind has no say any more: neither its limit nor its cancel is that of the unit's stop."""
    if not state.enabled or state.leaving:
        return state, ()
    if not event.active:
        return _withdrawn(state) if state.in_episode else (state, ())
    state = replace(state, grant_ns=event.grant_ns, kind=event.kind, lock_held=event.lock_held)
    return _detected(state)


def _detected(state: LogindState, *, overtime: bool = False) -> Result:
    if state.released:
        return state, ()
    detected = ShutdownDetected(
        kind=state.kind,
        grant_ns=state.grant_ns,
        lock_held=state.lock_held,
        again=state.in_episode,
        overtime=overtime,
    )
    return state, [detected]


def _withdrawn(state: LogindState) -> Result:
    """After a cancel, or when the final unit failed after our release, the lock is taken anew."""
    reason: Literal["cancelled", "did-not-go-down"] = "did-not-go-down" if state.released else "cancelled"
    state = replace(state, in_episode=False, released=False, finishing=True, attempt=0)
    state, cancels = cancel_release(state)
    state, orders = arm(state)
    return state, [ShutdownWithdrawn(reason=reason), *cancels, *orders]


def _began(state: LogindState, event: ShutdownBegan, now: int) -> Result:
    return replace(state, in_episode=True, released=False, finishing=False), ()


def _settled(state: LogindState, event: StatusesSettled, now: int) -> Result:
    """As soon as possible, but not sooner (KEP-2000). Where the fallback was first, nothing keeps us."""
    if not state.in_episode:
        return state, ()
    if state.released:
        return state, [Leave(reason="the machine goes down")] if state.leaving else ()
    return _release(state)


def _release(state: LogindState) -> Result:
    order = ReleaseLock(key=order_key(NAME, "release", "", state.ordinal))
    return replace(state, released=True, ordinal=state.ordinal + 1), [order]


def _released(state: LogindState, event: ReleaseLock, now: int) -> Result:
    """Ordered by us, or by the fallback in our place."""
    return replace(state, released=True, release_key=event.key), ()


def _closed(state: LogindState, event: EpisodeClosed, now: int) -> Result:
    return replace(state, in_episode=False, released=False, finishing=False), ()


def _stop(state: LogindState, event: StopRequested, now: int) -> Result:
    """SIGTERM while the system stops: logind was bypassed, or its timer fired. Go on, in overtime."""
    ending = not event.system_stopping or not state.enabled or state.released
    if ending:
        return state, [Leave(reason="stopped by the service manager")]
    return _detected(replace(state, grant_ns=event.stop_time_ns, leaving=True), overtime=True)


def _started(state: LogindState, event: DaemonStarted, now: int) -> Result:
    """A new process has no connection yet, and perhaps the lock."""
    state = replace(
        state,
        phase="off",
        attempt=0,
        retry_at_ns=NEVER_NS,
        lock_held=event.lock_inherited,
        leaving=False,
        grant_ns=event.grant_ns or state.grant_ns,
        kind=event.kind,
        alone=event.mode in ALONE,
    )
    return state, ()


def _resumed(state: LogindState, event: Resumed, now: int) -> Result:
    """An episode that goes on is listened to at once; its configuration waits, so nobody else arms us."""
    if event.action in GOES_ON or state.finishing:
        state, orders = arm(state)
        again = _release(state) if event.action == "release-again" else (state, ())
        return again[0], [*orders, *again[1]]
    return _withdrawn(state) if event.action in WITHDRAWN_WHILE_AWAY else (state, ())


LOGIND = ActorType(
    NAME,
    LogindState,
    {
        ConfigAdopted: config_adopted,
        OrderEnded: order_ended,
        BusLost: bus_lost,
        Tick: retry,
        LogindRead: _logind_read,
        PreparingRead: _preparing_read,
        PrepareForShutdown: _signal,
        ShutdownBegan: _began,
        StatusesSettled: _settled,
        ReleaseLock: _released,
        EpisodeClosed: _closed,
        StopRequested: _stop,
        DaemonStarted: _started,
        Resumed: _resumed,
    },
    deadline=lambda state: state.retry_at_ns,
    afresh=afresh,
)
