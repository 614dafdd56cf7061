"""KubeletActor: who ends a Kubernetes node's pods, and the kubelet's unit meanwhile.

Two regions: the means of this shutdown, which changes once at most, from the API to the runtime (the
hand-over); and the kubelet's unit. A running kubelet starts again what Ebbtide stops, so it is stopped first.
A kubelet may run without working: its health endpoint shows that, else its pods do.
"""

from __future__ import annotations

from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Handler, Result, Row, State, Transitions, ignored
from ebbtide.actors.policy.grace_periods import FLOOR_NS, granted_periods
from ebbtide.actors.policy.termination_mode import NODE_MODES, SIGN_NS, ModeChoice, NodeHealth, choose_mode
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, Event, order_key
from ebbtide.events.values import Period, TerminationMode

NAME = "KubeletActor"

#: Pauses between starts, the last one for ever: the cluster loses a node without a kubelet.
RETRY_SECONDS = (10, 20, 40, 80, 160, 300)

#: How long running stops have after a cancel. At 40 s the cluster counts the node as lost.
FINISH_NS = 20 * NS_PER_SECOND

#: Stops of a kubelet that returns in mid-shutdown.
STOPS_MAX = 3

#: no-node: mode process. idle: no shutdown. handed-over: begun as api. cancelled: the machine stays up, and
#: running stops are finished.
MODE_PHASES = ("no-node", "idle", "observe", "api", "cri", "handed-over", "cancelled")

RUNTIME_LOST_REASON = "the container runtime has stopped answering"

#: stopped: by Ebbtide. start-due: at ``retry_at_ns``, after a cancel or a failed start.
UNIT_PHASES = ("untouched", "stopping", "stopped", "start-due", "starting")


class KubeletState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    #: Empty outside of a Kubernetes node's modes.
    mode: kinds.Word = ""
    #: The boot and userspace of Ebbtide's last order to the unit.
    home: str = ""
    wanted: BoundedDict[kinds.Word, kinds.Word] = {}
    periods: tuple[Period, ...] = ()
    # None: not known yet.
    kubelet_lock: bool = False
    kubelet: bool | None = None
    runtime: bool | None = None
    api: bool | None = None
    taints: bool = True
    stoppable: bool = True
    # This shutdown.
    means: TerminationMode = ""
    handed_over: bool = False
    #: By Ebbtide.
    stopped: bool = False
    stops: int = 0
    #: On record: it returned after the last stop.
    runs_on: bool = False
    cancelled: bool = False
    starts: int = 0
    stop_key: str = ""
    start_key: str = ""
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS
    #: By its health endpoint.
    healthy: bool | None = None
    #: Deleted pods without a hook and without an ended container, by UID: when the kubelet should have
    #: stopped one. 0: their wave has not begun.
    plain: BoundedDict[kinds.Uid, int] = {}
    #: In this wave a container of a deleted pod ended.
    ends: bool = False
    #: It answered in this userspace, and does not any more.
    runtime_lost: bool = False
    runtime_answered: bool = False
    #: The running wave and its deadline.
    wave: int = -1
    wave_until_ns: int = 0


def mode_phase(state: KubeletState) -> str:
    if not state.means:
        return "idle" if state.mode else "no-node"
    if state.cancelled:
        return "cancelled"
    return "handed-over" if state.handed_over else state.means


def unit_phase(state: KubeletState) -> str:
    if state.stop_key:
        return "stopping"
    if state.start_key:
        return "starting"
    if state.retry_at_ns != NEVER_NS:
        return "start-due"
    return "stopped" if state.stopped else "untouched"


def phase_of(state: KubeletState) -> str:
    return f"{mode_phase(state)}+{unit_phase(state)}"


_OVER = (d.HandedOver, d.StopKubelet)
_NODE = "idle observe api cri handed-over cancelled"


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (MODE_PHASES, UNIT_PHASES), phase_of,
        # --- facts about the node
        Row(EVERY, f.DaemonStarted, _started, "= no-node idle untouched stopped starting",
            decides=(d.StartKubelet,)),
        Row(_NODE, d.ConfigAdopted,
            lambda state, event, now: (replace(state, wanted=event.means, periods=event.periods), ())),
        ignored("no-node", d.ConfigAdopted),
        Row(_NODE, f.LogindRead, _lock_read),
        ignored("no-node", f.LogindRead),
        Row(_NODE, f.PrepareForShutdown, _lock_read),
        ignored("no-node", f.PrepareForShutdown),
        Row("no-node idle observe cri handed-over cancelled", f.RuntimeRead, _runtime_noted),
        Row("api", f.RuntimeRead, _runtime_noted_api, "= handed-over stopping", decides=_OVER),
        Row(EVERY, f.ApiRead,
            lambda state, event, now: (replace(state, api=event.reachable, taints=event.taint), ())),
        Row("api", f.KubeletRead, _kubelet_read_api, "= handed-over stopping", decides=_OVER),
        Row("cri handed-over", f.KubeletRead, _kubelet_read_ours, "= stopping",
            decides=(d.StopKubelet, d.KubeletStopped)),
        Row("no-node idle observe cancelled", f.KubeletRead, _kubelet_read),
        # --- a shutdown
        Row(_NODE, d.ShutdownBegan, _began, "observe api cri untouched stopping stopped starting",
            decides=(d.MeansChosen, d.StopKubelet)),
        ignored("no-node", d.ShutdownBegan),
        Row("api", d.WaveStarted, _wave_started, "= handed-over stopping", decides=_OVER),
        Row("api", d.PodPlanned, _pod_planned),
        Row("api", d.PodStopBegan, _pod_stop_began),
        Row("api", d.DeletePod, _pod_deleted),
        Row("api", f.ContainerExited, _container_exited),
        Row("api", d.PodsEnded, lambda state, event, now: (_watch_none(state), ())),
        ignored("no-node idle observe cri handed-over cancelled", d.WaveStarted, d.PodPlanned, d.PodStopBegan,
            d.DeletePod, f.ContainerExited, d.PodsEnded, d.DeleteRefused, d.DeleteOverdue),
        Row("idle", d.FallbackEngaged, _fallback_engaged_early, "observe cri = stopping",
            decides=(d.MeansChosen, d.StopKubelet)),
        ignored("no-node observe cri handed-over cancelled", d.FallbackEngaged),
        Row("api", d.DeleteRefused, _delete_refused, "= handed-over stopping", decides=_OVER),
        Row("api", d.DeleteOverdue, _hands_over("the kubelet has not ended a deleted pod in its grace"),
            "handed-over stopping", decides=_OVER),
        # A running kubelet would start again what the fallback stops.
        Row("api", d.FallbackEngaged, _hands_over("the fallback ends pods"), "handed-over stopping",
            decides=_OVER),
        Row("observe api cri handed-over cancelled", d.ShutdownCancelled, _cancelled,
            "cancelled untouched stopping start-due starting"),
        ignored("no-node idle", d.ShutdownCancelled),
        Row("observe api cri handed-over cancelled", d.EpisodeClosed, _closed,
            "no-node idle untouched stopping stopped start-due starting", decides=(d.StartKubelet,)),
        ignored("no-node idle", d.EpisodeClosed),
        # --- the unit
        Row("stopping", f.OrderEnded, _stop_ended, "= starting stopped start-due untouched",
            decides=(d.StartKubelet, d.StopKubelet, d.KubeletStopped)),
        Row("starting", f.OrderEnded, _start_ended, "= untouched start-due"),
        ignored("untouched stopped start-due", f.OrderEnded),
        Row("api", f.Tick, _hands_over("the kubelet has stopped no container"), "handed-over stopping",
            decides=_OVER),
        Row("no-node idle observe cri handed-over cancelled", f.Tick, _tick, "= starting stopped untouched",
            decides=(d.StartKubelet,)),
    )
# fmt: on


# --- facts about the node


def _started(state: KubeletState, event: f.DaemonStarted, now: int) -> Result:
    """In another boot or userspace the service manager has started the kubelet."""
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
        runtime_lost=state.runtime_lost and here,
        runtime_answered=state.runtime_answered and here,
        healthy=None,
        stopped=state.stopped and here,
        stop_key=state.stop_key if here else "",
        start_key=state.start_key if here else "",
        retry_at_ns=NEVER_NS,
    )
    return _order_start(state) if state.stopped and not state.means else (state, ())


def _lock_read(state: KubeletState, event: f.LogindRead | f.PrepareForShutdown, now: int) -> Result:
    if event.kubelet_lock == state.kubelet_lock:
        return state, ()
    return replace(state, kubelet_lock=event.kubelet_lock), ()


def _runtime_noted(state: KubeletState, event: f.RuntimeRead, now: int) -> Result:
    """A runtime that never answered may be out of Ebbtide's reach, but not of the kubelet's."""
    answered = state.runtime_answered or event.reachable
    lost = answered and not event.reachable
    return replace(state, runtime=event.reachable, runtime_answered=answered, runtime_lost=lost), ()


def _runtime_noted_api(state: KubeletState, event: f.RuntimeRead, now: int) -> Result:
    """Without the runtime the kubelet stops no container. Ebbtide does."""
    state, _ = _runtime_noted(state, event, now)
    return _hand_over(state, RUNTIME_LOST_REASON) if state.runtime_lost else (state, ())


def _kubelet_read(state: KubeletState, event: f.KubeletRead, now: int) -> Result:
    return replace(state, kubelet=event.active, stoppable=event.stoppable, healthy=event.healthy), ()


def _kubelet_read_api(state: KubeletState, event: f.KubeletRead, now: int) -> Result:
    """A dead or hung kubelet carries no delete out."""
    state, _ = _kubelet_read(state, event, now)
    if event.active and event.healthy is False:
        return _hand_over(state, "the kubelet does not answer, or says that it is not healthy")
    return _hand_over(state, "the kubelet does not run") if event.active is False else (state, ())


def _kubelet_read_ours(state: KubeletState, event: f.KubeletRead, now: int) -> Result:
    state, _ = _kubelet_read(state, event, now)
    if not event.active or state.stop_key:
        return state, ()
    if state.stops < STOPS_MAX:
        state, order = _order_stop(state)
        return state, [order]
    if state.runs_on:
        return state, ()
    return replace(state, runs_on=True), [d.KubeletStopped(result="failed")]


# --- a shutdown


def _began(state: KubeletState, event: d.ShutdownBegan, now: int) -> Result:
    kubelet = False if state.stopped else state.kubelet
    health = NodeHealth(
        kubelet, state.runtime, state.api, state.stoppable, state.healthy, api_unheard=state.api is None
    )
    granted = granted_periods(state.periods, event.grant_ns)
    starved = any(
        asked.seconds and not given.seconds for asked, given in zip(state.periods, granted, strict=True)
    )
    choice = choose_mode(state.mode, event.kind, state.wanted, state.kubelet_lock, health, starved=starved)
    if choice.means == "api" and state.runtime_lost:
        choice = ModeChoice("cri", f"{RUNTIME_LOST_REASON}, and the kubelet needs it")
    state = replace(
        _watch_none(state),
        means=choice.means,
        handed_over=False,
        cancelled=False,
        stops=0,
        runs_on=False,
        retry_at_ns=NEVER_NS,
    )
    taints = choice.means != "api" or state.taints
    works = kubelet is True and state.healthy is not False
    chosen = d.MeansChosen(means=choice.means, reason=choice.reason, taints=taints, kubelet=works)
    if choice.means != "cri":
        return state, [chosen]
    state, order = _order_stop(state)
    return state, [chosen, order]


def _fallback_engaged_early(state: KubeletState, event: d.FallbackEngaged, now: int) -> Result:
    if state.mode == "observe":
        return replace(state, means="observe"), [d.MeansChosen(means="observe", reason=event.reason)]
    state, order = _order_stop(replace(state, means="cri"))
    return state, [d.MeansChosen(means="cri", reason=event.reason), order]


def _hands_over(reason: str) -> Handler:
    return lambda state, event, now: _hand_over(state, reason)


def _hand_over(state: KubeletState, reason: str) -> Result:
    over = d.HandedOver(reason=reason, wave=state.wave, until_ns=state.wave_until_ns)
    state, order = _order_stop(replace(_watch_none(state), handed_over=True))
    return state, [over, order]


# --- a kubelet without a sign of life

# A kubelet without a health endpoint has failed if no container of this wave has ended when 2 s of a pod's
# grace are left. A pod with a hook is no evidence: a hook may take all of the grace.


def _watch_none(state: KubeletState) -> KubeletState:
    return replace(state, plain={}, ends=False, wave=-1, wave_until_ns=0)


def _pod_planned(state: KubeletState, event: d.PodPlanned, now: int) -> Result:
    running = [each for each in event.pod.containers if each.running]
    if event.means != "api" or not running or any(each.hook is not None for each in running):
        return state, ()
    return replace(state, plain={**state.plain, event.pod.uid: 0}), ()


def _pod_stop_began(state: KubeletState, event: d.PodStopBegan, now: int) -> Result:
    if state.plain.get(event.uid) != 0:
        return state, ()
    due_ns = now + max(SIGN_NS, event.grace_ns - FLOOR_NS)
    return replace(state, plain={**state.plain, event.uid: due_ns}), ()


def _pod_deleted(state: KubeletState, event: d.DeletePod, now: int) -> Result:
    due_ns = state.plain.get(event.uid, 0)
    less_ns = min(due_ns, now + max(SIGN_NS, event.grace_seconds * NS_PER_SECOND - FLOOR_NS))
    return (state if less_ns == due_ns else replace(state, plain={**state.plain, event.uid: less_ns})), ()


def _delete_refused(state: KubeletState, event: d.DeleteRefused, now: int) -> Result:
    """A refusal to shorten a deletion restores the time of the pod's sign."""
    if not event.earlier_until_ns:
        return _hand_over(state, f"the API server did not take a delete: {event.reason}")
    due_ns = max(now + SIGN_NS, event.earlier_until_ns - FLOOR_NS)
    plain = {uid: due_ns if uid == event.uid else at_ns for uid, at_ns in state.plain.items()}
    return replace(state, plain=plain), ()


def _container_exited(state: KubeletState, event: f.ContainerExited, now: int) -> Result:
    due_ns = state.plain.get(event.uid)
    if due_ns is not None:
        state = replace(state, plain={uid: at for uid, at in state.plain.items() if uid != event.uid})
    # Only a pod that the kubelet was to end is a sign.
    return (replace(state, ends=True) if due_ns else state), ()


def _wave_started(state: KubeletState, event: d.WaveStarted, now: int) -> Result:
    # An earlier wave's straggler is no sign.
    ahead = {uid: at for uid, at in state.plain.items() if at == 0}
    state = replace(state, ends=False, plain=ahead, wave=event.wave, wave_until_ns=event.deadline_ns)
    return _hand_over(state, "no delete ends the pods that are left") if event.handover else (state, ())


def _sign_due_ns(state: KubeletState) -> int:
    if mode_phase(state) != "api" or state.healthy is not None or state.ends:
        return NEVER_NS
    return min((due_ns for due_ns in state.plain.values() if due_ns > 0), default=NEVER_NS)


# --- its end


def _cancelled(state: KubeletState, event: d.ShutdownCancelled, now: int) -> Result:
    # Not at once: it would start the pods again that still go down. Not later: the cluster would lose the
    # node.
    start_by_ns = now + FINISH_NS if state.stopped else NEVER_NS
    return replace(state, cancelled=True, retry_at_ns=start_by_ns), ()


def _closed(state: KubeletState, event: d.EpisodeClosed, now: int) -> Result:
    state = replace(_watch_none(state), means="", handed_over=False, cancelled=False)
    return _order_start(state) if state.stopped and not event.followed else (state, ())


# --- the unit


def _order_stop(state: KubeletState) -> tuple[KubeletState, Event]:
    """A stop that timed out may still happen, so the unit is started again, unless it was stopped before."""
    key = order_key(NAME, "stop", "", state.ordinal)
    # Unknown counts as running: an unwanted start harms less than a node without a kubelet.
    ours = state.stopped or state.kubelet is not False
    state = replace(state, stop_key=key, stopped=ours, stops=state.stops + 1, ordinal=state.ordinal + 1)
    return state, d.StopKubelet(key=key)


def _order_start(state: KubeletState) -> Result:
    if state.stop_key or state.start_key or not state.mode:
        return replace(state, retry_at_ns=NEVER_NS), ()
    key = order_key(NAME, "start", "", state.ordinal)
    state = replace(
        state, start_key=key, starts=state.starts + 1, ordinal=state.ordinal + 1, retry_at_ns=NEVER_NS
    )
    return state, [d.StartKubelet(key=key)]


def _stop_ended(state: KubeletState, event: f.OrderEnded, now: int) -> Result:
    if event.key != state.stop_key:
        return _start_ended(state, event, now)
    state = replace(state, stop_key="")
    if not state.means:
        return _order_start(state) if state.stopped else (state, ())
    if state.cancelled and state.stopped and state.retry_at_ns == NEVER_NS:  # it was due meanwhile
        return _order_start(state)
    # The daemon died, so the kubelet may still run.
    if event.result == "unknown" and not state.cancelled:
        state, order = _order_stop(state)
        return state, [order]
    return state, [d.KubeletStopped(result=event.result)]


def _start_ended(state: KubeletState, event: f.OrderEnded, now: int) -> Result:
    if event.key != state.start_key:
        return state, ()
    if event.result == "done":
        # A stop under way takes it down again.
        return replace(state, start_key="", stopped=state.stopped and bool(state.stop_key), starts=0), ()
    pause = RETRY_SECONDS[min(state.starts, len(RETRY_SECONDS)) - 1]
    return replace(state, start_key="", retry_at_ns=now + pause * NS_PER_SECOND), ()


def _tick(state: KubeletState, event: f.Tick, now: int) -> Result:
    state = replace(state, retry_at_ns=NEVER_NS)
    return (state, ()) if state.means and not state.cancelled else _order_start(state)


def _afresh(state: KubeletState, now: int, in_episode: bool, start: f.DaemonStarted | None) -> KubeletState:
    """Outside of a shutdown, start a kubelet that Ebbtide may have stopped in this boot."""
    home = state.home if start is None else f"{start.boot_id}/{start.userspace_id}"
    if home != state.home:
        state = replace(state, home=home, stopped=False, runtime_lost=False, runtime_answered=False)
    means: TerminationMode = state.means if in_episode else ""
    # In a shutdown the fallback keeps the kubelet stopped.
    retry_at_ns = now + RETRY_SECONDS[0] * NS_PER_SECOND if state.stopped and not in_episode else NEVER_NS
    return replace(state, means=means, stop_key="", start_key="", retry_at_ns=retry_at_ns)


KUBELET = ActorType(
    NAME,
    KubeletState,
    _transitions(),
    deadline=lambda state: min(state.retry_at_ns, _sign_due_ns(state)),
    afresh=_afresh,
)
