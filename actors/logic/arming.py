"""Arming: the LogindActor's state, and how it gets the lock, waits, and gives it back.

Retried for ever, also after a first failure: a kubelet that starts while logind is preparing fails once and
stays unprotected until somebody restarts it (kubernetes#122674).
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result, State
from events.base import NS_PER_SECOND, order_key
from events.decisions import Arm, Armed, CancelOrder, ConfigAdopted, Disarm, Disarmed, Leave
from events.facts import BusLost, DaemonStarted, OrderEnded, Tick
from events.model import ShutdownKind

NAME = "LogindActor"

#: Pauses between attempts to arm, the last one for ever after: quick while a service restarts, then sparing.
BACKOFF_SECONDS = (1, 2, 4, 8, 15, 30)

#: The edge's word for "a shutdown runs already, no lock can be had".
OPERATION_IN_PROGRESS = "OperationInProgress"

#: A kubelet's lock that goes is reported; asked again all the same, seldom.
REFUSED_SECONDS = 300

#: Modes whose waves would race those of a kubelet's own graceful shutdown.
ALONE = ("api", "cri")
BESIDE_KUBELET = (
    "the kubelet's own graceful shutdown holds a lock: set its shutdownGracePeriod to 0s, or use mode observe"
)


class LogindState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    enabled: bool = False
    #: off: nothing wanted; arming: order under way; armed: lock and signal; listening: signal only
    phase: Literal["off", "arming", "armed", "listening", "waiting"] = "off"
    attempt: int = 0
    arm_key: str = ""
    #: The release, ours or the fallback's, whose outcome is not known yet.
    release_key: str = ""
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
    #: A mode that ends pods itself: beside a kubelet that does the same it is not armed (design, rule 8).
    alone: bool = False
    kubelet_lock: bool = False
    #: The lock was given back because of it.
    refused: bool = False


def arm(state: LogindState) -> Result:
    """After a cancel not before the release has ended: it would close the lock that arming finds held."""
    if state.release_key and not state.released:
        return replace(state, phase="waiting", retry_at_ns=NEVER_NS), []
    attempt = state.attempt + 1
    if state.refused:
        state = replace(state, refused=False)
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
    state, orders = _disarm(replace(state, phase="off", lock_held=False, retry_at_ns=NEVER_NS))
    return state, [*orders, Disarmed(reason="switched off by configuration")]


def _disarm(state: LogindState) -> Result:
    order = Disarm(key=order_key(NAME, "disarm", "", state.ordinal))
    return replace(state, ordinal=state.ordinal + 1), [order]


def cancel_release(state: LogindState) -> Result:
    """The machine stays up: a release that has not begun need not give the lock away first."""
    if not state.release_key:
        return state, []
    key = order_key(NAME, "cancel-release", "", state.ordinal)
    cancel = CancelOrder(key=key, target=state.release_key, waiting_only=True)
    return replace(state, ordinal=state.ordinal + 1), [cancel]


def order_ended(state: LogindState, event: OrderEnded, now: int) -> Result:
    what = event.key.split("/")[1]
    if what == "release":
        return _release_ended(state, event)
    if what == "arm" and state.phase == "off" and not state.enabled and event.result != "unknown":
        # Switched off while it was under way: it may have taken the lock after that was given back.
        return _disarm(state)
    if event.key != state.arm_key or state.phase != "arming":
        return state, ()
    if event.result == "done" and state.alone and state.kubelet_lock and not state.in_episode:
        return refuse(state, now)
    if event.result == "done":
        armed = Armed(grant_ns=state.grant_ns, attempt=state.attempt)
        return replace(state, phase="armed", attempt=0, lock_held=not state.released), [armed]
    if event.reason == OPERATION_IN_PROGRESS and state.in_episode:
        return replace(state, phase="listening", attempt=0), ()
    return _wait(state, event.reason or event.result, now)


def _release_ended(state: LogindState, event: OrderEnded) -> Result:
    """Whoever ordered it: the machine is let go, or, after a cancel, arming has waited for this."""
    if event.key == state.release_key:
        state = replace(state, release_key="")
    state = replace(state, lock_held=state.lock_held and event.result == "cancelled")
    if state.leaving:
        return state, [Leave(reason="the machine goes down")]
    held_back = state.phase == "waiting" and state.retry_at_ns == NEVER_NS
    return arm(state) if held_back else (state, ())


def _wait(state: LogindState, reason: str, now: int) -> Result:
    pause = BACKOFF_SECONDS[min(max(state.attempt, 1), len(BACKOFF_SECONDS)) - 1]
    retry_at_ns = now + pause * NS_PER_SECOND
    state = replace(state, phase="waiting", retry_at_ns=retry_at_ns)
    return state, [Disarmed(reason=reason, retry_at_ns=retry_at_ns)]


def refuse(state: LogindState, now: int) -> Result:
    """The lock is given back, and asked for again when the kubelet's has gone: somebody may mend it."""
    state, orders = _disarm(replace(state, lock_held=False))
    retry_at_ns = now + REFUSED_SECONDS * NS_PER_SECOND
    state = replace(state, phase="waiting", attempt=0, retry_at_ns=retry_at_ns, refused=True)
    return state, [*orders, Disarmed(reason=BESIDE_KUBELET, retry_at_ns=retry_at_ns)]


def bus_lost(state: LogindState, event: BusLost, now: int) -> Result:
    if state.phase in ("off", "waiting"):
        return state, ()
    return _wait(replace(state, attempt=1), event.error, now)


def retry(state: LogindState, event: Tick, now: int) -> Result:
    return arm(state)


def afresh(state: LogindState, now: int, in_episode: bool, start: DaemonStarted | None) -> LogindState:
    """Armed again after the longest pause, so that a bug that stays costs one record each time."""
    return replace(
        state,
        phase="waiting" if state.enabled else "off",
        attempt=0,
        retry_at_ns=now + BACKOFF_SECONDS[-1] * NS_PER_SECOND if state.enabled else NEVER_NS,
        in_episode=in_episode,
        released=state.released and in_episode,
        finishing=state.finishing and in_episode,
        release_key="",
    )
