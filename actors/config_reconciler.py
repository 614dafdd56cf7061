"""ConfigReconciler: the configuration, logind's grant, and the gap between them.

A grant that is too small is a warning and a smaller plan (the kubelet refuses to work: kubernetes#102818). A
drop-in raises the grant, and never lowers what other files ask for.

A shutdown keeps the configuration that it began with. One drop-in order runs at a time.
"""

from __future__ import annotations

from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Result, Row, State, Transitions, ignored, takes
from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds, shutdown_enabled
from ebbtide.events import facts, kinds
from ebbtide.events.base import NS_PER_SECOND, Event, order_key
from ebbtide.events.decisions import (
    ConfigAdopted,
    ConfigDeferred,
    EpisodeClosed,
    GrantAssessed,
    RemoveDropIn,
    ShutdownBegan,
    WriteDropIn,
)
from ebbtide.events.values import Settings

NAME = "ConfigReconciler"

#: The pause after a failed drop-in order.
RETRY_NS = 60 * NS_PER_SECOND


#: in-shutdown: a new configuration waits.
SHUTDOWN_PHASES = ("up", "in-shutdown")

#: retry-due: the last order failed.
DROP_IN_PHASES = ("at-rest", "ordered", "retry-due")


class ConfigState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    settings: Settings | None = None
    pending: Settings | None = None
    in_episode: bool = False
    preparing: bool = False
    enabled: bool = False
    needed_ns: int = 0
    grant_ns: int = -1
    drop_ins: facts.DropInsRead | None = None
    assessed: GrantAssessed | None = None
    order_open: kinds.Key = ""
    #: The files were read since the open order, and not compared yet.
    read_meanwhile: bool = False
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS


def drop_in_phase(state: ConfigState) -> str:
    if state.order_open:
        return "ordered"
    return "at-rest" if state.retry_at_ns == NEVER_NS else "retry-due"


def phase_of(state: ConfigState) -> str:
    return f"{'in-shutdown' if state.in_episode else 'up'}+{drop_in_phase(state)}"


_RECONCILES = (GrantAssessed, WriteDropIn, RemoveDropIn)
_ADOPTS = (ConfigAdopted, *_RECONCILES)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (SHUTDOWN_PHASES, DROP_IN_PHASES), phase_of,
        Row(EVERY, facts.DaemonStarted, _started, "= at-rest"),
        # --- the configuration
        Row("up", facts.SettingsLoaded, lambda state, event, now: _adopt(state, event.settings),
            "= ordered", _ADOPTS),
        Row("in-shutdown", facts.SettingsLoaded,
            lambda state, event, now: (replace(state, pending=event.settings), [ConfigDeferred()]),
            decides=(ConfigDeferred,)),
        Row(EVERY, ShutdownBegan, takes(in_episode=True, preparing=True), "in-shutdown"),
        Row("up", EpisodeClosed, _closed, "= ordered", _ADOPTS),
        Row("in-shutdown", EpisodeClosed, _closed, "= up ordered", _ADOPTS),
        # --- the drop-in
        Row(EVERY, facts.LogindRead, _logind_read, "= ordered", _RECONCILES),
        Row(EVERY, facts.PreparingRead, _preparing_read, "= ordered", _RECONCILES),
        Row(EVERY, facts.DropInsRead, _drop_ins_read, "= at-rest ordered", _RECONCILES),
        Row("ordered", facts.OrderEnded, _drop_in_ended, "= at-rest retry-due", _RECONCILES),
        ignored("at-rest retry-due", facts.OrderEnded),
        Row("retry-due", facts.Tick, _tick, "at-rest ordered", _RECONCILES),
        ignored("at-rest ordered", facts.Tick),
    )
# fmt: on


# --- the configuration


def _adopt(state: ConfigState, settings: Settings) -> Result:
    periods = effective_periods(settings)
    on = shutdown_enabled(settings)
    requested_ns = requested_seconds(periods) * NS_PER_SECOND
    reserve_ns = settings.reserve_seconds * NS_PER_SECOND
    adopted = ConfigAdopted(
        enabled=on,
        periods=periods,
        requested_ns=requested_ns,
        reserve_ns=reserve_ns,
        budget=settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
        status_flush_ns=settings.status_flush_seconds * NS_PER_SECOND,
        trace_flush_ns=settings.trace_flush_ns,
        means=settings.means,
        unready=settings.unready,
        left_pods=settings.left_pods,
        projection_version=settings.projection_version,
        resource=settings.resource,
    )
    state = replace(
        state, settings=settings, pending=None, enabled=on, needed_ns=requested_ns + reserve_ns if on else 0
    )
    return _reconcile(state, [adopted])


def _reconcile(state: ConfigState, decisions: list[Event]) -> Result:
    if state.enabled and state.grant_ns >= 0:
        sufficient = state.grant_ns >= state.needed_ns
        assessed = GrantAssessed(
            needed_ns=state.needed_ns,
            grant_ns=state.grant_ns,
            sufficient=sufficient,
            overridden_by="" if sufficient or state.drop_ins is None else state.drop_ins.overridden_by,
        )
        # Only a change: logind is read every few seconds.
        if assessed != state.assessed:
            state = replace(state, assessed=assessed)
            decisions.append(assessed)
    # While logind prepares, a file does not change its timer. One order at a time: a reading does not show
    # which of two it follows.
    files = state.drop_ins
    blocked = state.in_episode or state.preparing or drop_in_phase(state) != "at-rest"
    if files is None or blocked or state.settings is None:
        return state, decisions
    key, wanted = order_key(NAME, "drop-in", "", state.ordinal), _wanted_seconds(state, files)
    order: WriteDropIn | RemoveDropIn
    if wanted and files.ours_ns != wanted * NS_PER_SECOND:
        order = WriteDropIn(key=key, seconds=wanted)
    elif not wanted and files.ours_ns is not None:
        order = RemoveDropIn(key=key)
    else:
        return state, decisions
    state = replace(state, order_open=key, ordinal=state.ordinal + 1, retry_at_ns=NEVER_NS)
    return state, [*decisions, order]


def _wanted_seconds(state: ConfigState, files: facts.DropInsRead) -> int:
    """Our need or the largest value of another file, so that no other need is cut. 0: no drop-in.

    A grant without a file lasts only until logind reads its files again.
    """
    assert state.settings is not None
    if not state.enabled or not state.settings.raise_grant:
        return 0
    if files.ours_ns is None and min(state.grant_ns, files.others_ns) >= state.needed_ns:
        return 0
    return -(-max(files.others_ns, state.needed_ns) // NS_PER_SECOND)


# --- logind and its files


def _logind_read(state: ConfigState, event: facts.LogindRead, now: int) -> Result:
    return _reconcile(replace(state, grant_ns=event.grant_ns, preparing=event.preparing), [])


def _preparing_read(state: ConfigState, event: facts.PreparingRead, now: int) -> Result:
    return _reconcile(replace(state, preparing=event.preparing), [])


def _drop_ins_read(state: ConfigState, event: facts.DropInsRead, now: int) -> Result:
    read_meanwhile = bool(state.order_open)
    return _reconcile(replace(state, drop_ins=event, retry_at_ns=NEVER_NS, read_meanwhile=read_meanwhile), [])


def _drop_in_ended(state: ConfigState, event: facts.OrderEnded, now: int) -> Result:
    if event.key != state.order_open:
        return state, ()
    retry_at_ns = NEVER_NS if event.result == "done" else now + RETRY_NS
    again = state.read_meanwhile and event.result == "done"
    state = replace(state, order_open="", retry_at_ns=retry_at_ns, read_meanwhile=False)
    return _reconcile(state, []) if again else (state, ())


def _tick(state: ConfigState, event: facts.Tick, now: int) -> Result:
    return _reconcile(replace(state, retry_at_ns=NEVER_NS), [])


# --- a shutdown


def _closed(state: ConfigState, event: EpisodeClosed, now: int) -> Result:
    """Adopts the new configuration, or the old one for actors that began afresh. Not between two shutdowns of
    one step: "off" would disarm the second one.
    """
    if event.followed:
        return state, ()
    state = replace(state, in_episode=False, preparing=False)
    settings = state.pending or state.settings
    return _reconcile(state, []) if settings is None else _adopt(state, settings)


def _started(state: ConfigState, event: facts.DaemonStarted, now: int) -> Result:
    """Logind's data is stale; deadlines may be of another boot."""
    preparing = state.preparing if event.preparing is None else event.preparing
    return replace(
        state, grant_ns=-1, drop_ins=None, assessed=None, retry_at_ns=NEVER_NS, preparing=preparing
    ), ()


def _afresh(state: ConfigState, now: int, in_episode: bool, start: facts.DaemonStarted | None) -> ConfigState:
    return replace(state, in_episode=in_episode, order_open="", read_meanwhile=False, retry_at_ns=NEVER_NS)


CONFIG = ActorType(
    NAME,
    ConfigState,
    _transitions(),
    deadline=lambda state: state.retry_at_ns,
    afresh=_afresh,
)
