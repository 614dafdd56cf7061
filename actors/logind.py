"""LogindActor: is this node armed, and does the machine go down? Two regions:

1. The delay lock (systemd: an inhibitor) and the signal. Arming takes the lock first, and is retried for ever
(a kubelet that starts while logind prepares stays unprotected, kubernetes#122674). 2. The shutdown that
logind prepares. ``PreparingForShutdown`` shows a missed signal or a cancel; after the last status the lock is
released.

They meet in four places: arming waits for the end of a release; a shutdown keeps the lock although a kubelet
holds one; a cancel arms anew; after a release, a machine that stays up takes the lock again.

When logind restarts in a shutdown, the bus is lost first: the actor tries again, and waves go on. Then logind
has forgotten the shutdown (a cancel), or signals it again (a new deadline). While it prepares it gives no
second lock, so without a stored one the actor only listens.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Result,
    Row,
    State,
    Transitions,
    ignored,
)
from ebbtide.events import facts
from ebbtide.events.base import NS_PER_SECOND, Event, order_key, parse_order_key
from ebbtide.events.decisions import (
    Arm,
    Armed,
    CancelOrder,
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
from ebbtide.events.values import ShutdownKind

NAME = "LogindActor"

#: listening: no lock, only the signal; retrying: arming has failed, or the bus was lost; refused: given back
#: because a kubelet holds a lock; releasing: a cancelled shutdown's release has not ended, and would close
#: the lock that arming finds held.
LOCK_PHASES = ("off", "arming", "armed", "listening", "retrying", "refused", "releasing")

#: cancelled: pods may still go down, and the configuration waits for their end; preparing: the lock holds the
#: shutdown back; released: it goes on without us; overtime: SIGTERM while the system stops, so logind was
#: bypassed, or its timer fired.
SHUTDOWN_PHASES = ("disabled", "up", "cancelled", "preparing", "released", "overtime")

#: Between attempts to arm; the last one for ever.
BACKOFF_SECONDS = (1, 2, 4, 8, 15, 30)

#: logind gives no lock when a shutdown runs already.
OPERATION_IN_PROGRESS = "OperationInProgress"

#: The edge reports when a kubelet's lock goes; this is a second way.
REFUSED_SECONDS = 300

#: Modes whose waves would race the kubelet's own graceful shutdown.
MODES_ENDING_PODS = ("api", "cri")
KUBELET_LOCK_HELD = (
    "the kubelet's own graceful shutdown holds a lock: set its shutdownGracePeriod to 0s, or use mode observe"
)

#: After these the episode goes on in this process.
RESUMING_ACTIONS = ("resume", "wait", "release-again")

#: The machine stays up.
WITHDRAWN_ACTIONS = ("cancelled-while-away", "did-not-go-down")


class LogindState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    enabled: bool = False
    #: Of `LOCK_PHASES`; ``waiting`` is three of them.
    phase: Literal["off", "arming", "armed", "listening", "waiting"] = "off"
    attempt: int = 0
    arm_key: str = ""
    #: The open release, ours or the fallback's.
    release_key: str = ""
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS
    lock_held: bool = False
    grant_ns: int = 0
    kind: ShutdownKind = "unknown"
    in_episode: bool = False
    released: bool = False
    finishing: bool = False
    leaving: bool = False
    #: The mode ends pods, so it is not armed beside a kubelet that does the same.
    alone: bool = False
    kubelet_lock: bool = False
    #: The lock was given back because of it.
    refused: bool = False


def lock_phase(state: LogindState) -> str:
    if state.phase != "waiting":
        return state.phase
    if state.retry_at_ns == NEVER_NS:
        return "releasing"
    return "refused" if state.refused else "retrying"


def shutdown_phase(state: LogindState) -> str:
    if not state.enabled and not state.in_episode:
        return "disabled"
    if state.leaving:
        return "overtime"
    if state.in_episode:
        return "released" if state.released else "preparing"
    return "cancelled" if state.finishing else "up"


def phase_of(state: LogindState) -> str:
    return f"{lock_phase(state)}+{shutdown_phase(state)}"


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (LOCK_PHASES, SHUTDOWN_PHASES), phase_of,
        # --- the process: both regions
        Row(EVERY, facts.DaemonStarted, _started, "off disabled up cancelled preparing released"),
        Row(EVERY, Resumed, _resumed, "= arming releasing cancelled released",
            decides=(Arm, ReleaseLock, ShutdownWithdrawn, CancelOrder)),
        # --- the lock
        Row("off retrying refused releasing", ConfigAdopted,
            lambda state, event, now: (
                _arm(replace(state, enabled=True, attempt=0)) if event.enabled else _switch_off(state)),
            "= off arming releasing disabled up cancelled",
            decides=(Arm, Disarm, Disarmed)),
        Row("arming armed listening", ConfigAdopted,
            lambda state, event, now: (
                (replace(state, enabled=True), ()) if event.enabled else _switch_off(state)),
            "= off disabled", decides=(Disarm, Disarmed)),
        Row("retrying refused", facts.Tick, lambda state, event, now: _arm(state), "arming releasing",
            decides=(Arm,)),
        ignored("off arming armed listening releasing", facts.Tick),
        Row("arming", facts.OrderEnded, _arming_ended, "= armed listening retrying refused",
            decides=(Armed, Disarm, Disarmed, Leave)),
        Row("off", facts.OrderEnded, _order_ended_while_off, decides=(Disarm, Leave)),
        Row("armed listening retrying refused releasing", facts.OrderEnded, _order_ended,
            "= arming", decides=(Arm, Leave)),
        Row("arming armed listening", facts.BusLost, _bus_lost, "retrying", decides=(Disarmed,)),
        Row("refused", facts.BusLost, _bus_lost, "=", decides=(Disarmed,)),
        ignored("off retrying releasing", facts.BusLost),
        Row("armed", facts.LogindRead, _logind_read_armed, "= refused arming releasing cancelled",
            decides=(Disarm, Disarmed, ShutdownDetected, ShutdownWithdrawn, CancelOrder, Arm)),
        Row("refused releasing", facts.LogindRead, _logind_read_refused, "= arming releasing cancelled",
            decides=(Arm, ShutdownDetected, ShutdownWithdrawn, CancelOrder)),
        Row("off arming listening retrying", facts.LogindRead, _logind_read, "= arming releasing cancelled",
            decides=(ShutdownDetected, ShutdownWithdrawn, CancelOrder, Arm)),
        # --- the shutdown
        Row("up cancelled preparing released", facts.PreparingRead, _preparing_read,
            "= arming releasing cancelled",
            decides=(ShutdownDetected, ShutdownWithdrawn, CancelOrder, Arm)),
        ignored("disabled overtime", facts.PreparingRead),
        Row("up cancelled", facts.PrepareForShutdown, _signal, decides=(ShutdownDetected,)),
        # A second ``true``, from a restarted logind, is the same episode with a new deadline.
        Row("preparing released", facts.PrepareForShutdown,
            lambda state, event, now: _signal(state, event, now) if event.active else _withdrawn(state),
            "= arming releasing cancelled",
            decides=(ShutdownDetected, ShutdownWithdrawn, CancelOrder, Arm)),
        # In overtime the unit's stop counts, not logind's limit or cancel.
        ignored("disabled overtime", facts.PrepareForShutdown),
        Row("disabled released", facts.StopRequested, _stop, decides=(Leave,)),
        Row("up cancelled preparing overtime", facts.StopRequested, _stop_requested,
            "= overtime", decides=(Leave, ShutdownDetected)),
        Row("disabled up cancelled preparing released", ShutdownBegan, _began, "preparing"),
        Row("overtime", ShutdownBegan, _began),
        Row("preparing", StatusesSettled, lambda state, event, now: _release(state), "released",
            decides=(ReleaseLock,)),
        Row("overtime", StatusesSettled, _settled_in_overtime, decides=(ReleaseLock, Leave)),
        ignored("disabled up cancelled released", StatusesSettled),
        Row("preparing", ReleaseLock, _released, "released"),
        Row("disabled up cancelled released overtime", ReleaseLock, _released),
        Row("disabled", EpisodeClosed, _closed),
        Row("up cancelled preparing released overtime", EpisodeClosed, _closed, "= up disabled"),
    )
# fmt: on


_FIELDS_BY_PHASE = {
    "up": (False, False, False),
    "cancelled": (False, False, True),
    "preparing": (True, False, False),
}


def enter_shutdown_phase(state: LogindState, phase: Literal["up", "cancelled", "preparing"]) -> LogindState:
    """The inverse of `shutdown_phase` for these phases. Overtime stays overtime."""
    in_episode, released, finishing = _FIELDS_BY_PHASE[phase]
    return replace(state, in_episode=in_episode, released=released, finishing=finishing)


# --- the process begins


def _started(state: LogindState, event: facts.DaemonStarted, now: int) -> Result:
    return replace(
        state,
        phase="off",
        attempt=0,
        retry_at_ns=NEVER_NS,
        lock_held=event.lock_inherited,
        leaving=False,
        grant_ns=event.grant_ns or state.grant_ns,
        kind=event.kind,
        alone=event.mode in MODES_ENDING_PODS,
    ), ()


def _resumed(state: LogindState, event: Resumed, now: int) -> Result:
    """In a running episode the configuration waits, and so does not arm."""
    if event.action in RESUMING_ACTIONS or state.finishing:
        # Listen first: a cancel of this shutdown must not be missed.
        state, orders = _arm(state)
        again = _release(state) if event.action == "release-again" else (state, ())
        return again[0], [*orders, *again[1]]
    return _withdrawn(state) if event.action in WITHDRAWN_ACTIONS else (state, ())


def _switch_off(state: LogindState) -> Result:
    state = replace(state, enabled=False)
    disarmed = Disarmed(reason="switched off by configuration")
    # No lock to give back, but status and metrics need the answer.
    if state.phase == "off" and not state.lock_held:
        return state, [disarmed]
    state, orders = _disarm(replace(state, phase="off", lock_held=False, retry_at_ns=NEVER_NS))
    return state, [*orders, disarmed]


# --- the lock


def _arm(state: LogindState) -> Result:
    """Waits for the end of a cancelled shutdown's release, which would close the lock."""
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


def _disarm(state: LogindState) -> Result:
    order = Disarm(key=order_key(NAME, "disarm", "", state.ordinal))
    return replace(state, ordinal=state.ordinal + 1), [order]


def _arming_ended(state: LogindState, event: facts.OrderEnded, now: int) -> Result:
    if event.key != state.arm_key:
        return _order_ended(state, event, now)
    # Both would end the same pods. In a shutdown Ebbtide finishes what it began.
    if event.result == "done" and state.alone and state.kubelet_lock and not state.in_episode:
        return _refuse_to_arm(state, now)
    if event.result == "done":
        armed = Armed(grant_ns=state.grant_ns, attempt=state.attempt)
        return replace(state, phase="armed", attempt=0, lock_held=not state.released), [armed]
    if event.reason == OPERATION_IN_PROGRESS and state.in_episode:
        return replace(state, phase="listening", attempt=0), ()
    return _wait_to_retry(state, event.reason or event.result, now)


def _order_ended_while_off(state: LogindState, event: facts.OrderEnded, now: int) -> Result:
    """Arming was under way: it may have taken the lock after the disarming."""
    if parse_order_key(event.key).what == "arm" and not state.enabled and event.result != "unknown":
        return _disarm(state)
    return _order_ended(state, event, now)


def _order_ended(state: LogindState, event: facts.OrderEnded, now: int) -> Result:
    if parse_order_key(event.key).what != "release":
        return state, ()
    if event.key == state.release_key:
        state = replace(state, release_key="")
    # Unless the release never began, the lock counts as gone.
    state = replace(state, lock_held=state.lock_held and event.result == "cancelled")
    if state.leaving:
        return state, [Leave(reason="the machine goes down")]
    return _arm(state) if lock_phase(state) == "releasing" else (state, ())


def _wait_to_retry(state: LogindState, reason: str, now: int) -> Result:
    pause = BACKOFF_SECONDS[min(max(state.attempt, 1), len(BACKOFF_SECONDS)) - 1]
    retry_at_ns = now + pause * NS_PER_SECOND
    state = replace(state, phase="waiting", retry_at_ns=retry_at_ns)
    return state, [Disarmed(reason=reason, retry_at_ns=retry_at_ns)]


def _refuse_to_arm(state: LogindState, now: int) -> Result:
    state, orders = _disarm(replace(state, lock_held=False))
    retry_at_ns = now + REFUSED_SECONDS * NS_PER_SECOND
    state = replace(state, phase="waiting", attempt=0, retry_at_ns=retry_at_ns, refused=True)
    return state, [*orders, Disarmed(reason=KUBELET_LOCK_HELD, retry_at_ns=retry_at_ns)]


def _bus_lost(state: LogindState, event: facts.BusLost, now: int) -> Result:
    # A lost bus is mostly back at once. Without a lock, too: a cancel comes over the bus.
    return _wait_to_retry(replace(state, attempt=1), event.error, now)


# --- logind's properties


def _logind_read(state: LogindState, event: facts.LogindRead, now: int) -> Result:
    return _compare_preparing(_with_properties(state, event), event.preparing)


def _logind_read_armed(state: LogindState, event: facts.LogindRead, now: int) -> Result:
    state = _with_properties(state, event)
    if state.alone and event.kubelet_lock and not (state.in_episode or event.preparing):
        return _refuse_to_arm(state, now)
    return _compare_preparing(state, event.preparing)


def _logind_read_refused(state: LogindState, event: facts.LogindRead, now: int) -> Result:
    state = _with_properties(state, event)
    if state.alone and state.refused and not event.kubelet_lock and not event.preparing:
        return _arm(state)
    return _compare_preparing(state, event.preparing)


def _with_properties(state: LogindState, event: facts.LogindRead) -> LogindState:
    kubelet_lock = event.kubelet_lock if state.alone else state.kubelet_lock
    return replace(state, grant_ns=event.grant_ns, kind=event.kind, kubelet_lock=kubelet_lock)


def _preparing_read(state: LogindState, event: facts.PreparingRead, now: int) -> Result:
    """logind answers again: do not wait for the next pause."""
    state, decisions = _compare_preparing(state, event.preparing)
    if lock_phase(state) != "retrying":
        return state, decisions
    state, orders = _arm(replace(state, attempt=0))
    return state, [*decisions, *orders]


def _compare_preparing(state: LogindState, preparing: bool) -> Result:
    """Not in overtime, which bypasses logind."""
    if preparing == state.in_episode or not state.enabled or state.leaving:
        return state, ()
    return _detected(state) if preparing else _withdrawn(state)


# --- the shutdown


def _signal(state: LogindState, event: facts.PrepareForShutdown, now: int) -> Result:
    if not event.active:
        return state, ()
    # The running timer has the signal's limit.
    state = replace(state, grant_ns=event.grant_ns, kind=event.kind, lock_held=event.lock_held)
    return _detected(state)


def _stop_requested(state: LogindState, event: facts.StopRequested, now: int) -> Result:
    if not event.system_stopping or state.released:
        return _stop(state, event, now)
    return _detected(replace(state, grant_ns=event.stop_time_ns, leaving=True), overtime=True)


def _stop(state: LogindState, event: facts.StopRequested, now: int) -> Result:
    return state, [Leave(reason="stopped by the service manager")]


def _detected(state: LogindState, *, overtime: bool = False) -> Result:
    """After a release no lock holds the machine back, so no new shutdown begins."""
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


def _began(state: LogindState, event: ShutdownBegan, now: int) -> Result:
    return enter_shutdown_phase(state, "preparing"), ()


def _withdrawn(state: LogindState) -> Result:
    """The lock is taken anew, also after a release. A release that has not begun is cancelled."""
    reason: Literal["cancelled", "did-not-go-down"] = "did-not-go-down" if state.released else "cancelled"
    state = replace(enter_shutdown_phase(state, "cancelled"), attempt=0)
    decisions: list[Event] = [ShutdownWithdrawn(reason=reason)]
    if state.release_key:
        key = order_key(NAME, "cancel-release", "", state.ordinal)
        decisions.append(CancelOrder(key=key, target=state.release_key, waiting_only=True))
        state = replace(state, ordinal=state.ordinal + 1)
    state, orders = _arm(state)
    return state, [*decisions, *orders]


def _settled_in_overtime(state: LogindState, event: StatusesSettled, now: int) -> Result:
    if not state.in_episode:
        return state, ()
    return (state, [Leave(reason="the machine goes down")]) if state.released else _release(state)


def _release(state: LogindState) -> Result:
    order = ReleaseLock(key=order_key(NAME, "release", "", state.ordinal))
    return replace(state, released=True, ordinal=state.ordinal + 1), [order]


def _released(state: LogindState, event: ReleaseLock, now: int) -> Result:
    return replace(state, released=True, release_key=event.key), ()


def _closed(state: LogindState, event: EpisodeClosed, now: int) -> Result:
    return enter_shutdown_phase(state, "up"), ()


def _afresh(state: LogindState, now: int, in_episode: bool, start: facts.DaemonStarted | None) -> LogindState:
    """Arms after the longest pause: a lasting defect costs one record each time."""
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


LOGIND = ActorType(
    NAME,
    LogindState,
    _transitions(),
    deadline=lambda state: state.retry_at_ns,
    afresh=_afresh,
)
