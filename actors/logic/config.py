"""ConfigReconciler: what is asked of this node, what logind grants, and how to close the gap.

The kubelet refuses to work when the grant is too small (kubernetes#102818). Here too little is a
warning and a smaller plan; raising it is tried with a drop-in, which never lowers what others ask for.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, ActorType, Result, State
from actors.policy.periods import effective_periods, enabled, requested_seconds
from events.base import NS_PER_SECOND, Event, order_key
from events.decisions import (
    ConfigAdopted,
    ConfigDeferred,
    EpisodeClosed,
    GrantAssessed,
    RemoveDropIn,
    ShutdownBegan,
    WriteDropIn,
)
from events.facts import (
    DaemonStarted,
    DropInsRead,
    LogindRead,
    OrderEnded,
    PreparingRead,
    SettingsLoaded,
    Tick,
)
from events.model import Settings

NAME = "ConfigReconciler"

#: How long after a drop-in that could not be written it is tried again.
RETRY_NS = 60 * NS_PER_SECOND


class ConfigState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    settings: Settings | None = None
    pending: Settings | None = None
    in_episode: bool = False
    preparing: bool = False
    enabled: bool = False
    needed_ns: int = 0
    grant_ns: int = -1
    drop_ins: DropInsRead | None = None
    assessed: GrantAssessed | None = None
    order_open: str = ""
    #: The files were read again while an order was open: what they say then is not answered yet.
    read_meanwhile: bool = False
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS


def _settings_loaded(state: ConfigState, event: SettingsLoaded, now: int) -> Result:
    if state.in_episode:
        return replace(state, pending=event.settings), [ConfigDeferred()]
    return _adopt(state, event.settings)


def _adopt(state: ConfigState, settings: Settings) -> Result:
    periods = effective_periods(settings)
    on = enabled(settings)
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
    )
    state = replace(
        state, settings=settings, pending=None, enabled=on, needed_ns=requested_ns + reserve_ns if on else 0
    )
    return _reconcile(state, [adopted])


def _reconcile(state: ConfigState, decisions: list[Event]) -> Result:
    """Say what changed about the grant, and order a drop-in where one is due."""
    assessed = _assess(state)
    if assessed is not None and assessed != state.assessed:
        state = replace(state, assessed=assessed)
        decisions.append(assessed)
    order = _drop_in_order(state)
    if order is not None:
        state = replace(state, order_open=order.key, ordinal=state.ordinal + 1, retry_at_ns=NEVER_NS)
        decisions.append(order)
    return state, decisions


def _assess(state: ConfigState) -> GrantAssessed | None:
    if not state.enabled or state.grant_ns < 0:
        return None
    sufficient = state.grant_ns >= state.needed_ns
    overridden_by = "" if sufficient or state.drop_ins is None else state.drop_ins.overridden_by
    return GrantAssessed(
        needed_ns=state.needed_ns, grant_ns=state.grant_ns, sufficient=sufficient, overridden_by=overridden_by
    )


def _drop_in_order(state: ConfigState) -> WriteDropIn | RemoveDropIn | None:
    """No drop-in is touched while preparing: it would move the property, not the timer (design, rule 3)."""
    files = state.drop_ins
    blocked = state.in_episode or state.preparing or state.order_open or state.retry_at_ns != NEVER_NS
    if files is None or blocked or state.settings is None:
        return None
    wanted = _wanted_seconds(state, files)
    if wanted and files.ours_ns != wanted * NS_PER_SECOND:
        return WriteDropIn(key=order_key(NAME, "drop-in", "", state.ordinal), seconds=wanted)
    if not wanted and files.ours_ns is not None:
        return RemoveDropIn(key=order_key(NAME, "drop-in", "", state.ordinal))
    return None


def _wanted_seconds(state: ConfigState, files: DropInsRead) -> int:
    """Our need or the largest value of any other file, so that nobody's own need is cut (design, rule 4).

    A grant that no file stands for any more lasts only until logind reads its files again.
    """
    assert state.settings is not None
    if not state.enabled or not state.settings.raise_grant:
        return 0
    if files.ours_ns is None and min(state.grant_ns, files.others_ns) >= state.needed_ns:
        return 0
    return -(-max(files.others_ns, state.needed_ns) // NS_PER_SECOND)


def _logind_read(state: ConfigState, event: LogindRead, now: int) -> Result:
    return _reconcile(replace(state, grant_ns=event.grant_ns, preparing=event.preparing), [])


def _preparing_read(state: ConfigState, event: PreparingRead, now: int) -> Result:
    return _reconcile(replace(state, preparing=event.preparing), [])


def _drop_ins_read(state: ConfigState, event: DropInsRead, now: int) -> Result:
    read_meanwhile = bool(state.order_open)
    return _reconcile(replace(state, drop_ins=event, retry_at_ns=NEVER_NS, read_meanwhile=read_meanwhile), [])


def _order_ended(state: ConfigState, event: OrderEnded, now: int) -> Result:
    if event.key != state.order_open:
        return state, ()
    retry_at_ns = NEVER_NS if event.result == "done" else now + RETRY_NS
    again = state.read_meanwhile and event.result == "done"
    state = replace(state, order_open="", retry_at_ns=retry_at_ns, read_meanwhile=False)
    return _reconcile(state, []) if again else (state, ())


def _tick(state: ConfigState, event: Tick, now: int) -> Result:
    return _reconcile(replace(state, retry_at_ns=NEVER_NS), [])


def _began(state: ConfigState, event: ShutdownBegan, now: int) -> Result:
    return replace(state, in_episode=True, preparing=True), ()


def _closed(state: ConfigState, event: EpisodeClosed, now: int) -> Result:
    """What waited is adopted now. What did not wait is said again, for an actor that began afresh.

    Not between two shutdowns of one step: "off" would disarm, and unplan, the one that begins.
    """
    if event.followed:
        return state, ()
    state = replace(state, in_episode=False, preparing=False)
    settings = state.pending or state.settings
    return _reconcile(state, []) if settings is None else _adopt(state, settings)


def _started(state: ConfigState, event: DaemonStarted, now: int) -> Result:
    """What a former process saw of logind is stale; its deadlines may be of another boot."""
    preparing = state.preparing if event.preparing is None else event.preparing
    return replace(
        state, grant_ns=-1, drop_ins=None, assessed=None, retry_at_ns=NEVER_NS, preparing=preparing
    ), ()


def _afresh(state: ConfigState, now: int, in_episode: bool, start: DaemonStarted | None) -> ConfigState:
    return replace(state, in_episode=in_episode, order_open="", read_meanwhile=False, retry_at_ns=NEVER_NS)


CONFIG = ActorType(
    NAME,
    ConfigState,
    {
        SettingsLoaded: _settings_loaded,
        LogindRead: _logind_read,
        PreparingRead: _preparing_read,
        DropInsRead: _drop_ins_read,
        OrderEnded: _order_ended,
        Tick: _tick,
        ShutdownBegan: _began,
        EpisodeClosed: _closed,
        DaemonStarted: _started,
    },
    deadline=lambda state: state.retry_at_ns,
    afresh=_afresh,
)
