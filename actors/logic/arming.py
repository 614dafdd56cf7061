"""Arming: the LogindActor's state, and how it gets the lock, waits, and gives it back.

Retried for ever, also after a first failure: a kubelet that starts while logind is preparing fails once and
stays unprotected until somebody restarts it (kubernetes#122674).
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result, State
from events.base import NS_PER_SECOND, order_key
from events.decisions import Arm, Armed, ConfigAdopted, Disarm, Disarmed, Leave
from events.facts import BusLost, OrderEnded, Tick
from events.model import ShutdownKind

NAME = "LogindActor"

#: Pauses between attempts to arm, the last one for ever after: quick while a service restarts, then sparing.
BACKOFF_SECONDS = (1, 2, 4, 8, 15, 30)

#: The edge's word for "a shutdown runs already, no lock can be had".
OPERATION_IN_PROGRESS = "OperationInProgress"


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


def arm(state: LogindState) -> Result:
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


def config_adopted(state: LogindState, event: ConfigAdopted, now: int) -> Result:
    state = replace(state, enabled=event.enabled)
    if event.enabled:
        return arm(replace(state, attempt=0)) if state.phase in ("off", "waiting") else (state, ())
    if state.phase == "off" and not state.lock_held:
        return state, [Disarmed(reason="switched off by configuration")]
    order = Disarm(key=order_key(NAME, "disarm", "", state.ordinal))
    state = replace(state, phase="off", ordinal=state.ordinal + 1, lock_held=False, retry_at_ns=NEVER_NS)
    return state, [order, Disarmed(reason="switched off by configuration")]


def order_ended(state: LogindState, event: OrderEnded, now: int) -> Result:
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


def bus_lost(state: LogindState, event: BusLost, now: int) -> Result:
    if state.phase in ("off", "waiting"):
        return state, ()
    return _wait(replace(state, attempt=1), event.error, now)


def retry(state: LogindState, event: Tick, now: int) -> Result:
    return arm(state)


def afresh(state: LogindState, now: int, in_episode: bool) -> LogindState:
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
