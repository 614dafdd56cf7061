"""KubeletActor: who ends the pods of a Kubernetes node, and what becomes of its kubelet meanwhile.

Theory of operation. A kubelet that is to end pods may be there and do nothing. Its health endpoint says so;
where it has none, its pods do. Two regions:

1. How this shutdown ends the node's pods. It goes one way: what the API was to do passes to the runtime,
   never back. In mode process nobody asks this actor anything, and it has nothing to say.
2. The kubelet's unit. Pods that we stop ourselves a running kubelet would start again; so it is stopped
   first, and started again when the machine stays up. Whoever stops it is bound to start it again, and only
   who has stopped it. One of the two at a time.
"""

from __future__ import annotations

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
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.actors.policy.planning import granted_periods
from ebbtide.actors.policy.termination_mode import NODE_MODES, SIGN_NS, ModeChoice, NodeHealth, choose_mode
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, Event, order_key
from ebbtide.events.decisions import (
    ConfigAdopted,
    DeleteOverdue,
    DeletePod,
    DeleteRefused,
    EpisodeClosed,
    FallbackEngaged,
    HandedOver,
    KubeletStopped,
    MeansChosen,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ShutdownBegan,
    ShutdownCancelled,
    StartKubelet,
    StopKubelet,
    WaveStarted,
)
from ebbtide.events.facts import (
    ApiRead,
    ContainerExited,
    DaemonStarted,
    KubeletRead,
    LogindRead,
    OrderEnded,
    PrepareForShutdown,
    RuntimeRead,
    Tick,
)
from ebbtide.events.values import Period, TerminationMode

NAME = "KubeletActor"

#: A node without its kubelet is no node: it is started until it has been, the last pause for ever.
RETRY_SECONDS = (10, 20, 40, 80, 160, 300)

#: After a cancel what has begun is finished first, but not longer: at 40 s the node would count as lost.
FINISH_NS = 20 * NS_PER_SECOND

#: How often a kubelet that comes back in mid-shutdown is stopped again: somebody may insist.
STOPS_MAX = 3

#: Who ends the pods.
#: no-node: mode process; idle: no shutdown; observe, api, cri: the mode of this one; handed-over: begun as
#: api, the runtime does the rest; cancelled: the machine stays up, and what has begun is being finished.
MODE_PHASES = ("no-node", "idle", "observe", "api", "cri", "handed-over", "cancelled")

#: Why the kubelet ends no pod any more though it runs.
RUNTIME_LOST_REASON = "the container runtime has stopped answering"

#: The kubelet's unit.
#: untouched: nothing of it is ours; stopped: by us, so that it is ours to start again; start-due: at
#: ``retry_at_ns``, after a cancel or a start that failed.
UNIT_PHASES = ("untouched", "stopping", "stopped", "start-due", "starting")


class KubeletState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What checkpoints and digests encode. The phases follow from it: `mode_phase`, `unit_phase`."""

    #: Empty outside of a Kubernetes node's modes.
    mode: str = ""
    #: The boot and the userspace in which the unit was last touched.
    home: str = ""
    wanted: BoundedDict[str, str] = {}
    periods: tuple[Period, ...] = ()
    # What is there; None: nobody has said yet.
    kubelet_lock: bool = False
    kubelet: bool | None = None
    runtime: bool | None = None
    api: bool | None = None
    taints: bool = True
    stoppable: bool = True
    # This shutdown.
    means: TerminationMode = ""
    handed_over: bool = False
    #: By us, so that it is ours to start again.
    stopped: bool = False
    stops: int = 0
    #: It has come back after the last of these, and was said not to be stopped.
    runs_on: bool = False
    cancelled: bool = False
    starts: int = 0
    stop_key: str = ""
    start_key: str = ""
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS
    #: The kubelet, by its own word.
    healthy: bool | None = None
    #: Under api: the pods without a hook of which no container has ended, by UID. 0: its wave has not begun;
    #: else by when the kubelet should have shown that it stops it.
    plain: BoundedDict[str, int] = {}
    #: A container of a deleted pod has ended in this wave: somebody ends them.
    ends: bool = False
    #: The runtime has answered in this userspace; and does so no longer.
    runtime_lost: bool = False
    runtime_answered: bool = False
    #: The wave that runs, and its deadline.
    wave: int = -1
    wave_until_ns: int = 0


def mode_phase(state: KubeletState) -> str:
    if not state.means:
        return "idle" if state.mode else "no-node"
    if state.cancelled:
        return "cancelled"
    return "handed-over" if state.handed_over else state.means


def unit_phase(state: KubeletState) -> str:
    """A stop that begins while the unit is being started is waited for first."""
    if state.stop_key:
        return "stopping"
    if state.start_key:
        return "starting"
    if state.retry_at_ns != NEVER_NS:
        return "start-due"
    return "stopped" if state.stopped else "untouched"


def phase_of(state: KubeletState) -> str:
    return f"{mode_phase(state)}+{unit_phase(state)}"


# --- what is there -------------------------------------------------------------------------------


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
        runtime_lost=state.runtime_lost and here,
        runtime_answered=state.runtime_answered and here,
        healthy=None,
        stopped=state.stopped and here,
        stop_key=state.stop_key if here else "",
        start_key=state.start_key if here else "",
        retry_at_ns=NEVER_NS,
    )
    return _order_start(state) if state.stopped and not state.means else (state, ())


def _config_adopted(state: KubeletState, event: ConfigAdopted, now: int) -> Result:
    return replace(state, wanted=event.means, periods=event.periods), ()


def _lock_read(state: KubeletState, event: LogindRead | PrepareForShutdown, now: int) -> Result:
    if event.kubelet_lock == state.kubelet_lock:
        return state, ()
    return replace(state, kubelet_lock=event.kubelet_lock), ()


def _runtime_noted(state: KubeletState, event: RuntimeRead, now: int) -> Result:
    """One that has never answered may be one that was not ours to ask; the kubelet knows its own."""
    answered = state.runtime_answered or event.reachable
    lost = answered and not event.reachable
    return replace(state, runtime=event.reachable, runtime_answered=answered, runtime_lost=lost), ()


def _runtime_noted_api(state: KubeletState, event: RuntimeRead, now: int) -> Result:
    """Without it the kubelet tells no container to stop; we do, by their processes."""
    state, _ = _runtime_noted(state, event, now)
    return _hand_over(state, RUNTIME_LOST_REASON) if state.runtime_lost else (state, ())


def _api_read(state: KubeletState, event: ApiRead, now: int) -> Result:
    return replace(state, api=event.reachable, taints=event.taint), ()


def _kubelet_read(state: KubeletState, event: KubeletRead, now: int) -> Result:
    return replace(state, kubelet=event.active, stoppable=event.stoppable, healthy=event.healthy), ()


def _kubelet_read_api(state: KubeletState, event: KubeletRead, now: int) -> Result:
    """One that dies, or hangs, carries no delete out."""
    state, _ = _kubelet_read(state, event, now)
    if event.active and event.healthy is False:
        return _hand_over(state, "the kubelet does not answer, or says that it is not healthy")
    return _hand_over(state, "the kubelet does not run") if event.active is False else (state, ())


def _kubelet_read_ours(state: KubeletState, event: KubeletRead, now: int) -> Result:
    """One that comes back while we end its pods would start them again. Nor may it be taken for stopped once
    it is not stopped any more.
    """
    state, _ = _kubelet_read(state, event, now)
    if not event.active or state.stop_key:
        return state, ()
    if state.stops < STOPS_MAX:
        state, order = _order_stop(state)
        return state, [order]
    if state.runs_on:
        return state, ()
    return replace(state, runs_on=True), [KubeletStopped(result="failed")]


# --- a shutdown ----------------------------------------------------------------------------------


def _began(state: KubeletState, event: ShutdownBegan, now: int) -> Result:
    # One that we stopped does not run, whatever was read before: nobody may have looked since.
    kubelet = False if state.stopped else state.kubelet
    health = NodeHealth(
        kubelet, state.runtime, state.api, state.stoppable, state.healthy, api_unheard=state.api is None
    )
    # Does a wave that was to have time get none?
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
    chosen = MeansChosen(means=choice.means, reason=choice.reason, taints=taints)
    if choice.means != "cri":
        return state, [chosen]
    state, order = _order_stop(state)
    return state, [chosen, order]


def _delete_refused(state: KubeletState, event: DeleteRefused, now: int) -> Result:
    return _hand_over(state, f"the API server did not take a delete: {event.reason}")


def _delete_overdue(state: KubeletState, event: DeleteOverdue, now: int) -> Result:
    return _hand_over(state, "the kubelet has not ended a deleted pod in its grace")


def _fallback_engaged(state: KubeletState, event: FallbackEngaged, now: int) -> Result:
    """The fallback signals containers, and a kubelet would start them again."""
    return _hand_over(state, "the fallback ends pods")


def _fallback_engaged_early(state: KubeletState, event: FallbackEngaged, now: int) -> Result:
    """Before the mode was chosen, by this actor's own failure."""
    if state.mode == "observe":
        return replace(state, means="observe"), [MeansChosen(means="observe", reason=event.reason)]
    state, order = _order_stop(replace(state, means="cri"))
    return state, [MeansChosen(means="cri", reason=event.reason), order]


def _hand_over(state: KubeletState, reason: str) -> Result:
    over = HandedOver(reason=reason, wave=state.wave, until_ns=state.wave_until_ns)
    state, order = _order_stop(replace(_watch_none(state), handed_over=True))
    return state, [over, order]


# --- a kubelet that does nothing -----------------------------------------------------------------

# Where its health endpoint answers, that is a sign of life, and a pod that takes its time gets all of it.
# Where there is no such endpoint the pods are the only witnesses, and a slow one is none: so it is waited for
# until what is left of its grace is the floor, in which a pod that has heard nothing can still end by itself.
# One that has heard, and is told twice, loses at most that. A pod with a hook runs on for as long as that
# takes, and counts for nothing. A later delete gives less grace, and so less time for a sign.


def _watch_none(state: KubeletState) -> KubeletState:
    return replace(state, plain={}, ends=False, wave=-1, wave_until_ns=0)


def _pod_planned(state: KubeletState, event: PodPlanned, now: int) -> Result:
    running = [each for each in event.pod.containers if each.running]
    if event.means != "api" or not running or any(each.hook is not None for each in running):
        return state, ()
    return replace(state, plain={**state.plain, event.pod.uid: 0}), ()


def _pod_stop_began(state: KubeletState, event: PodStopBegan, now: int) -> Result:
    if state.plain.get(event.uid) != 0:
        return state, ()
    due_ns = now + max(SIGN_NS, event.grace_ns - FLOOR_NS)
    return replace(state, plain={**state.plain, event.uid: due_ns}), ()


def _pod_deleted(state: KubeletState, event: DeletePod, now: int) -> Result:
    """Once more, with less grace; or from the begin without any, because it was hurried before."""
    less_ns = now + max(SIGN_NS, event.grace_seconds * NS_PER_SECOND - FLOOR_NS)
    if state.plain.get(event.uid, 0) <= less_ns:
        return state, ()
    return replace(state, plain={**state.plain, event.uid: less_ns}), ()


def _container_exited(state: KubeletState, event: ContainerExited, now: int) -> Result:
    due_ns = state.plain.get(event.uid)
    if due_ns is not None:
        state = replace(state, plain={uid: at for uid, at in state.plain.items() if uid != event.uid})
    # A sign of the kubelet is the end of one that it alone was to end by now, no other pod's.
    return (replace(state, ends=True) if due_ns else state), ()


def _wave_started(state: KubeletState, event: WaveStarted, now: int) -> Result:
    # Stragglers of the wave before are no sign of what becomes of this one.
    ahead = {uid: at for uid, at in state.plain.items() if at == 0}
    state = replace(state, ends=False, plain=ahead, wave=event.wave, wave_until_ns=event.deadline_ns)
    return _hand_over(state, "no delete ends the pods that are left") if event.handover else (state, ())


def _pods_ended(state: KubeletState, event: PodsEnded, now: int) -> Result:
    return _watch_none(state), ()


def _sign_due_ns(state: KubeletState) -> int:
    """When a kubelet that has shown no sign until then has its pods taken away."""
    if mode_phase(state) != "api" or state.healthy is not None or state.ends:
        return NEVER_NS
    return min((due_ns for due_ns in state.plain.values() if due_ns > 0), default=NEVER_NS)


def _tick_api(state: KubeletState, event: Tick, now: int) -> Result:
    if _sign_due_ns(state) > now:
        return _tick(state, event, now)
    return _hand_over(state, "the kubelet has stopped no container")


# --- its end -------------------------------------------------------------------------------------


def _cancelled(state: KubeletState, event: ShutdownCancelled, now: int) -> Result:
    # Not at once, because it would start again the pods that are still going down; not much later, because a
    # node without its kubelet is lost to the cluster.
    start_by_ns = now + FINISH_NS if state.stopped else NEVER_NS
    return replace(state, cancelled=True, retry_at_ns=start_by_ns), ()


def _closed(state: KubeletState, event: EpisodeClosed, now: int) -> Result:
    """The machine stays up, and everything whose stop had begun is finished. Or another shutdown follows."""
    state = replace(_watch_none(state), means="", handed_over=False, cancelled=False)
    return _order_start(state) if state.stopped and not event.followed else (state, ())


# --- the unit ------------------------------------------------------------------------------------


def _order_stop(state: KubeletState) -> tuple[KubeletState, Event]:
    """Ours to start again from now on, whatever the outcome tells: a stop that timed out may still come.

    But not one that somebody else had stopped before.
    """
    key = order_key(NAME, "stop", "", state.ordinal)
    # Not known counts as running: to start a kubelet that nobody wanted is a smaller harm than to leave a
    # node without.
    ours = state.stopped or state.kubelet is not False
    state = replace(state, stop_key=key, stopped=ours, stops=state.stops + 1, ordinal=state.ordinal + 1)
    return state, StopKubelet(key=key)


def _order_start(state: KubeletState) -> Result:
    """Not while it is being stopped: the end of that is soon."""
    if state.stop_key or state.start_key or not state.mode:
        return replace(state, retry_at_ns=NEVER_NS), ()
    key = order_key(NAME, "start", "", state.ordinal)
    state = replace(
        state, start_key=key, starts=state.starts + 1, ordinal=state.ordinal + 1, retry_at_ns=NEVER_NS
    )
    return state, [StartKubelet(key=key)]


def _stop_ended(state: KubeletState, event: OrderEnded, now: int) -> Result:
    """Not known: it is stopped once more, which harms nobody. After a cancel it is started again."""
    if event.key != state.stop_key:
        return _start_ended(state, event, now)
    state = replace(state, stop_key="")
    if not state.means:
        return _order_start(state) if state.stopped else (state, ())
    if state.cancelled and state.stopped and state.retry_at_ns == NEVER_NS:  # it was due meanwhile
        return _order_start(state)
    # The daemon died: perhaps it runs on, and would start again what the first wave ends.
    if event.result == "unknown" and not state.cancelled:
        state, order = _order_stop(state)
        return state, [order]
    return state, [KubeletStopped(result=event.result)]


def _start_ended(state: KubeletState, event: OrderEnded, now: int) -> Result:
    if event.key != state.start_key:
        return state, ()
    if event.result == "done":
        return replace(state, start_key="", stopped=False, starts=0), ()
    pause = RETRY_SECONDS[min(state.starts, len(RETRY_SECONDS)) - 1]
    return replace(state, start_key="", retry_at_ns=now + pause * NS_PER_SECOND), ()


def _tick(state: KubeletState, event: Tick, now: int) -> Result:
    """In a shutdown the kubelet stays away."""
    state = replace(state, retry_at_ns=NEVER_NS)
    return (state, ()) if state.means and not state.cancelled else _order_start(state)


def _afresh(state: KubeletState, now: int, in_episode: bool, start: DaemonStarted | None) -> KubeletState:
    """Outside of a shutdown the kubelet is started again if it may be we who stopped it."""
    means: TerminationMode = state.means if in_episode else ""
    # Not in a shutdown: there the failed actor's duty is the fallback's, which keeps the kubelet down.
    retry_at_ns = now + RETRY_SECONDS[0] * NS_PER_SECOND if state.stopped and not in_episode else NEVER_NS
    return replace(state, means=means, stop_key="", start_key="", retry_at_ns=retry_at_ns)


_OVER = (HandedOver, StopKubelet)
_NODE = "idle observe api cri handed-over cancelled"

# fmt: off
KUBELET = ActorType(
    NAME,
    KubeletState,
    Transitions(
        (MODE_PHASES, UNIT_PHASES), phase_of,
        # --- what is there
        Row(EVERY, DaemonStarted, _started, "= no-node idle untouched stopped starting",
            decides=(StartKubelet,)),
        Row(_NODE, ConfigAdopted, _config_adopted),
        ignored("no-node", ConfigAdopted),
        Row(_NODE, LogindRead, _lock_read),
        ignored("no-node", LogindRead),
        Row(_NODE, PrepareForShutdown, _lock_read),
        ignored("no-node", PrepareForShutdown),
        Row("no-node idle observe cri handed-over cancelled", RuntimeRead, _runtime_noted),
        Row("api", RuntimeRead, _runtime_noted_api, "= handed-over stopping", decides=_OVER),
        Row(EVERY, ApiRead, _api_read),
        Row("api", KubeletRead, _kubelet_read_api, "= handed-over stopping", decides=_OVER),
        Row("cri handed-over", KubeletRead, _kubelet_read_ours, "= stopping",
            decides=(StopKubelet, KubeletStopped)),
        Row("no-node idle observe cancelled", KubeletRead, _kubelet_read),
        # --- a shutdown
        Row(_NODE, ShutdownBegan, _began, "observe api cri untouched stopping stopped starting",
            decides=(MeansChosen, StopKubelet)),
        ignored("no-node", ShutdownBegan),
        Row("api", WaveStarted, _wave_started, "= handed-over stopping", decides=_OVER),
        Row("api", PodPlanned, _pod_planned),
        Row("api", PodStopBegan, _pod_stop_began),
        Row("api", DeletePod, _pod_deleted),
        Row("api", ContainerExited, _container_exited),
        Row("api", PodsEnded, _pods_ended),
        ignored("no-node idle observe cri handed-over cancelled", WaveStarted, PodPlanned, PodStopBegan,
            DeletePod, ContainerExited, PodsEnded, DeleteRefused, DeleteOverdue),
        Row("idle", FallbackEngaged, _fallback_engaged_early, "observe cri = stopping",
            decides=(MeansChosen, StopKubelet)),
        ignored("no-node observe cri handed-over cancelled", FallbackEngaged),
        Row("api", DeleteRefused, _delete_refused, "handed-over stopping",
            decides=(HandedOver, StopKubelet)),
        Row("api", DeleteOverdue, _delete_overdue, "handed-over stopping",
            decides=(HandedOver, StopKubelet)),
        Row("api", FallbackEngaged, _fallback_engaged, "handed-over stopping",
            decides=(HandedOver, StopKubelet)),
        Row("observe api cri handed-over cancelled", ShutdownCancelled, _cancelled,
            "cancelled untouched stopping start-due starting"),
        ignored("no-node idle", ShutdownCancelled),
        Row("observe api cri handed-over cancelled", EpisodeClosed, _closed,
            "no-node idle untouched stopping stopped start-due starting", decides=(StartKubelet,)),
        ignored("no-node idle", EpisodeClosed),
        # --- the unit
        Row("stopping", OrderEnded, _stop_ended, "= starting stopped start-due untouched",
            decides=(StartKubelet, StopKubelet, KubeletStopped)),
        Row("starting", OrderEnded, _start_ended, "= untouched start-due"),
        ignored("untouched stopped start-due", OrderEnded),
        Row("api", Tick, _tick_api, "= handed-over stopping untouched stopped", decides=_OVER),
        Row("no-node idle observe cri handed-over cancelled", Tick, _tick, "= starting stopped untouched",
            decides=(StartKubelet,)),
    ),
    deadline=lambda state: min(state.retry_at_ns, _sign_due_ns(state)),
    afresh=_afresh,
)
# fmt: on
