"""LogindActor: is this node armed, and is the machine going down?

Arming is retried for ever, also after a first failure: a kubelet that starts while logind is preparing
fails once and stays unprotected until somebody restarts it (kubernetes#122674). A shutdown that runs
already is begun without a lock.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from events.base import NS_PER_SECOND, order_key
from events.decisions import (
    Arm,
    Armed,
    ConfigAdopted,
    Disarm,
    Disarmed,
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
from events.model import ShutdownKind

NAME = "LogindActor"

#: Pauses between attempts to arm, the last one for ever after: quick while a service restarts, then sparing.
BACKOFF_SECONDS = (1, 2, 4, 8, 15, 30)

#: The edge's word for "a shutdown runs already, no lock can be had".
OPERATION_IN_PROGRESS = "OperationInProgress"

#: Actions of the resume table after which the episode goes on in this process.
GOES_ON = ("resume", "wait", "release-again")

#: ... and those after which the machine turned out to stay up.
WITHDRAWN_WHILE_AWAY = ("cancelled-while-away", "did-not-go-down")


class LogindState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    enabled: bool = False
    #: off: nothing wanted; arming: order under way; armed: lock and signal; listening: signal only
    phase: Literal["off", "arming", "armed", "listening", "waiting"] = "off"
    attempt: int = 0
    arm_key: str = ""
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS
    lock_held: bool = False
    grant_ns: int = 0
    kind: ShutdownKind = "unknown"
    in_episode: bool = False
    released: bool = False
    #: Pods of a cancelled shutdown may still be going down; the configuration waits for its end.
    finishing: bool = False
    leaving: bool = False


def _arm(state: LogindState) -> Result:
    attempt = state.attempt + 1
    key = order_key(NAME, "arm", "", state.ordinal)
    order = Arm(key=key, lock=not state.released, attempt=attempt)
    return replace(
        state,
        phase="arming",
        attempt=attempt,
        arm_key=key,
        ordinal=state.ordinal + 1,
        retry_at_ns=NEVER_NS,
    ), [order]


def _config_adopted(state: LogindState, event: ConfigAdopted, now: int) -> Result:
    state = replace(state, enabled=event.enabled)
    if event.enabled:
        return _arm(replace(state, attempt=0)) if state.phase in ("off", "waiting") else (state, ())
    if state.phase == "off" and not state.lock_held:
        return state, [Disarmed(reason="switched off by configuration")]
    order = Disarm(key=order_key(NAME, "disarm", "", state.ordinal))
    state = replace(state, phase="off", ordinal=state.ordinal + 1, lock_held=False, retry_at_ns=NEVER_NS)
    return state, [order, Disarmed(reason="switched off by configuration")]


def _order_ended(state: LogindState, event: OrderEnded, now: int) -> Result:
    what = event.key.split("/")[1]
    if what == "release":
        state = replace(state, lock_held=False)
        return state, [Leave(reason="the machine goes down")] if state.leaving else ()
    if event.key != state.arm_key or state.phase != "arming":
        return state, ()
    if event.result == "done":
        armed = Armed(grant_ns=state.grant_ns, attempt=state.attempt)
        return replace(state, phase="armed", attempt=0, lock_held=not state.released), [armed]
    if event.reason == OPERATION_IN_PROGRESS and state.in_episode:
        return replace(state, phase="listening", attempt=0), ()
    return _wait(state, event.reason or event.result, now)


def _wait(state: LogindState, reason: str, now: int) -> Result:
    pause = BACKOFF_SECONDS[min(max(state.attempt, 1), len(BACKOFF_SECONDS)) - 1]
    retry_at_ns = now + pause * NS_PER_SECOND
    state = replace(state, phase="waiting", retry_at_ns=retry_at_ns)
    return state, [Disarmed(reason=reason, retry_at_ns=retry_at_ns)]


def _bus_lost(state: LogindState, event: BusLost, now: int) -> Result:
    if state.phase in ("off", "waiting"):
        return state, ()
    return _wait(replace(state, attempt=1), event.error, now)


def _tick(state: LogindState, event: Tick, now: int) -> Result:
    return _arm(state)


def _logind_read(state: LogindState, event: LogindRead, now: int) -> Result:
    state = replace(state, grant_ns=event.grant_ns, kind=event.kind)
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
    state, orders = _arm(state)
    return state, [ShutdownWithdrawn(reason=reason), *orders]


def _began(state: LogindState, event: ShutdownBegan, now: int) -> Result:
    return replace(state, in_episode=True, released=False, finishing=False), ()


def _settled(state: LogindState, event: StatusesSettled, now: int) -> Result:
    """As soon as possible, but not sooner (KEP-2000, goals). Where the fallback was first, nothing keeps us."""
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
    return replace(state, released=True), ()


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
    )
    return state, ()


def _resumed(state: LogindState, event: Resumed, now: int) -> Result:
    """An episode that goes on is listened to at once; its configuration waits, so nobody else arms us."""
    if event.action in GOES_ON or state.finishing:
        state, orders = _arm(state)
        again = _release(state) if event.action == "release-again" else (state, ())
        return again[0], [*orders, *again[1]]
    return _withdrawn(state) if event.action in WITHDRAWN_WHILE_AWAY else (state, ())


def _afresh(state: LogindState, now: int, in_episode: bool) -> LogindState:
    """Armed again after the longest pause, so that a bug that stays costs one record each time."""
    return replace(
        state,
        phase="waiting" if state.enabled else "off",
        attempt=0,
        retry_at_ns=now + BACKOFF_SECONDS[-1] * NS_PER_SECOND if state.enabled else NEVER_NS,
        in_episode=in_episode,
        released=state.released and in_episode,
        finishing=state.finishing and in_episode,
    )


LOGIND = ActorType(
    NAME,
    LogindState,
    {
        ConfigAdopted: _config_adopted,
        OrderEnded: _order_ended,
        BusLost: _bus_lost,
        Tick: _tick,
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
    afresh=_afresh,
)
