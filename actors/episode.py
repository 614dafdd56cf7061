"""EpisodeActor: where is this shutdown? From the signal to its last record.

    idle -> listing -> waves -> draining -> flushing -> released
                                 (any) -> cancelling -> idle

Waves run one after another in ascending priority (KEP-2712); empty ones cost nothing. The actor takes the
inventory (``listing``), makes the plan, and starts a wave when the one before has ended (``waves``). After
the last one only stragglers are left, and, on a node, pods that nobody has seen yet (``draining``). When no
pod is waited for, or the budget is over, statuses are delivered (``flushing``), until the lock is released.
A cancel is honoured at once: what has begun is finished (``cancelling``), nothing else begins. Under
``elastic`` the time that waves left unused goes to the next one.

The file follows a shutdown: the state, the plan and the waves, listings and pods that come late, a start of
the daemon (what it does about the shutdown that its journal ends with is `actors.policy.resume`'s table),
the beginning, the end, and the table of transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Literal, get_args

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Handler,
    Result,
    Row,
    State,
    Transitions,
    fresh_but,
    ignored,
)
from ebbtide.actors.policy.grace_periods import (
    FLOOR_NS,
    REAP_MARGIN_NS,
    ShutdownTimes,
    lay_out_times,
    pod_grace_seconds,
)
from ebbtide.actors.policy.last_boot import EndedBoot, boot_end
from ebbtide.actors.policy.resume import FoundAtStart, LastEpisode, resume_action
from ebbtide.actors.policy.termination_mode import (
    PlacementRules,
    arrange_waves,
    placement_rules,
    wave_index,
    wave_mode,
)
from ebbtide.actors.wave import PodChecklist
from ebbtide.events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, BoundedDict, Event, order_key
from ebbtide.events.decisions import (
    FIRST_PROJECTION_VERSION,
    FIRST_WORD_NS,
    Armed,
    ConfigAdopted,
    DeadlineMoved,
    Disarmed,
    EpisodeClosed,
    EpisodeOutcome,
    HandedOver,
    HookEnded,
    KubeletStopped,
    LastBootEnded,
    Leave,
    MeansChosen,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodsEnded,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownDetected,
    ShutdownWithdrawn,
    StopKubelet,
    TakeInventory,
    WaveEnded,
    WaveStarted,
)
from ebbtide.events.facts import (
    DaemonStarted,
    InventoryTaken,
    LastBootRead,
    OrderEnded,
    PodJoined,
    ReleaseRequested,
    Tick,
)
from ebbtide.events.values import Period, PlannedPod, PlannedWave, Pod, ShutdownKind, TerminationMode

NAME = "EpisodeActor"

EpisodePhase = Literal["idle", "listing", "waves", "draining", "flushing", "released", "cancelling"]

#: What a start finds of the last episode, by the phase in which its journal ends (`actors.policy.resume`).
LAST_EPISODE_BY_PHASE: dict[EpisodePhase, LastEpisode] = {
    "idle": "none",
    "cancelling": "closed",
    "released": "released",
    "listing": "open",
    "waves": "open",
    "draining": "open",
    "flushing": "open",
}


#: Phases that a pod's end may change: in these the wait is bounded.
WAITING: tuple[EpisodePhase, ...] = ("listing", "waves", "draining", "cancelling")


class EpisodeState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: EpisodePhase = "idle"
    # The adopted configuration.
    periods: tuple[Period, ...] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    elastic: bool = False
    sleep_action: bool = True
    # Where the process that wrote last lived.
    boot_id: str = ""
    userspace_id: str = ""
    # This shutdown.
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0
    deadline_ns: int = 0
    kill_by_ns: int = 0
    release_by_ns: int = 0
    listing: tuple[Pod, ...] = ()
    #: The listing that is waited for, and whether one has failed in this shutdown.
    listing_key: str = ""
    listing_failed: bool = False
    pods: BoundedDict[str, Pod] = {}
    roll: PodChecklist = PodChecklist()
    waves: tuple[PlannedWave, ...] = ()
    wave: int = -1
    carried_ns: int = 0
    ordinal: int = 0
    #: Plans so far, over all shutdowns.
    plans: int = 0
    #: Pods of a cancelled shutdown that still go down while the next one begins: UID to wave.
    carried: BoundedDict[str, int] = {}
    #: After a cancel: everybody was told that nothing is waited for any longer.
    given_up: bool = False
    #: The seed's counter ``sleep_action_terminated_early_total`` (KEP-3960), over all shutdowns.
    sleeps_terminated_early: int = 0
    #: Who ends this shutdown's pods (`actors.kubelet`).
    means: TerminationMode = ""
    handed_over: bool = False
    taints: bool = True
    #: The last priority range is one wave (`actors.policy.termination_mode`).
    together: bool = False
    #: On a node: the listing that may still bring pods to light; nothing is over before.
    refreshing: str = ""
    #: Listings that another one has been asked for before they had answered: their pods count all the same.
    overtaken: tuple[str, ...] = ()
    #: It may still start again what has ended: nothing is over before it has stopped.
    kubelet_stopping: bool = False
    # For the record of how this boot ended; None: unknown.
    enabled: bool | None = None
    armed: bool | None = None
    #: The daemon is about to end, as it was told to.
    left: bool = False
    #: This shutdown began with our own stop: logind was bypassed.
    overtime: bool = False
    #: The last boot, until the machine has been asked how it ended.
    ended: EndedBoot | None = None
    # For the traces: how they are made, and of which node, beside what the journal says of that.
    projection_version: int = FIRST_PROJECTION_VERSION
    resource: BoundedDict[str, str] = {}


def _open_pods(state: EpisodeState) -> dict[str, int]:
    """Who has not ended, with the wave of each: UID to wave."""
    # Those carried over first: a pod of both shutdowns counts with its new wave.
    waves = {pod.uid: index for index, wave in enumerate(state.waves) for pod in wave.pods}
    return {**state.carried, **{uid: waves[uid] for uid in state.roll.missing()}}


#: The configuration, whose boot it is, and what counts over all shutdowns.
KEPT_FIELDS = (
    *("periods", "requested_ns", "reserve_ns", "elastic", "sleep_action", "boot_id", "userspace_id"),
    *("ordinal", "plans", "sleeps_terminated_early"),
    *("enabled", "armed", "left", "ended", "projection_version", "resource"),
)


def _without_shutdown(state: EpisodeState) -> EpisodeState:
    return fresh_but(state, KEPT_FIELDS, carried=_open_pods(state))


# --- the plan ----------------------------------------------------------------------------------


def _list_pods(state: EpisodeState, *, refresh: bool) -> tuple[EpisodeState, TakeInventory]:
    key = order_key(NAME, "inventory", "", state.ordinal)
    refreshing = key if refresh and state.means else ""
    state = replace(state, ordinal=state.ordinal + 1, listing=(), listing_key=key, refreshing=refreshing)
    # Only on a node: processes of our own are started by order, and none is given in a shutdown.
    late_until_ns = state.release_by_ns if refresh and state.means else 0
    return state, TakeInventory(key=key, refresh=refresh, late_until_ns=late_until_ns)


def _list_for_plan(state: EpisodeState, now: int) -> tuple[EpisodeState, TakeInventory]:
    """With a small grant the plan is made while the pods still have the floor of a stop, also without their
    priorities.
    """
    state, order = _list_pods(state, refresh=False)
    by_ns = max(1, state.kill_by_ns - FLOOR_NS)
    return state, order if by_ns >= now + FIRST_WORD_NS else replace(order, priorities_by_ns=by_ns)


def _plan_waves(state: EpisodeState, now: int, *, listed: bool = True) -> Result:
    pods = {pod.uid: pod for pod in state.listing}
    # A pod of the cancelled shutdown that is still here is this plan's from now on: it is waited for once.
    state = replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid not in pods})
    rules = placement_rules(tuple(pods.values()), state.means, taints=state.taints)
    waves = arrange_waves(state.periods, state.grant_ns, tuple(pods.values()), rules)
    state = replace(
        state, phase="waves", pods=pods, roll=PodChecklist.of(pods), waves=waves, wave=-1, carried_ns=0
    )
    state = replace(state, plans=state.plans + 1, together=rules.together)
    decisions: list[Event] = [PlanMade(waves=waves, pods=len(pods), listed=listed)]
    for index, wave in enumerate(waves):
        decisions.extend(_pod_planned(state, index, planned) for planned in wave.pods)
    # The first listing is what was known at the signal: no slow one holds the first wave back. What it lacks
    # is found by this one, while that wave runs.
    state, refresh = _list_pods(state, refresh=True)
    return _next_wave(state, now, [*decisions, refresh])


def _pod_planned(
    state: EpisodeState, wave: int, planned: PlannedPod, *, late: bool = False, again: bool = False
) -> PodPlanned:
    return PodPlanned(
        wave=wave,
        grace_seconds=planned.grace_seconds,
        pod=state.pods[planned.uid],
        sleep_action=state.sleep_action,
        late=late,
        first_ordinal=(state.plans - 1) * ORDINALS_PER_PLAN,
        means=wave_mode(state.waves[wave], state.means, handed_over=state.handed_over),
        again=again,
    )


# --- the waves ---------------------------------------------------------------------------------


def _next_wave(state: EpisodeState, now: int, decisions: list[Event]) -> Result:
    """Waves without anybody to wait for cost nothing: no event, no time."""
    for index in range(state.wave + 1, len(state.waves)):
        wave = state.waves[index]
        if _has_open(state, wave):
            state = replace(state, wave=index)
            return state, [*decisions, _wave_started(state, now)]
        # Nobody has used any of it, so under ``elastic`` the next wave has all of it as well.
        state = replace(state, carried_ns=state.carried_ns + wave.period_seconds * NS_PER_SECOND)
    return _drain(replace(state, phase="draining"), decisions)


def _wave_started(state: EpisodeState, now: int) -> WaveStarted:
    planned = state.waves[state.wave]
    period_ns = planned.period_seconds * NS_PER_SECOND + (state.carried_ns if state.elastic else 0)
    pods = tuple(pod for pod in planned.pods if state.roll.is_open(pod.uid))
    seconds = period_ns // NS_PER_SECOND
    # Under ``elastic`` a wave may have more time than at the plan: a pod that asks for it gets it.
    if seconds > planned.period_seconds:
        pods = tuple(
            PlannedPod(uid=pod.uid, grace_seconds=pod_grace_seconds(seconds, state.pods[pod.uid]))
            for pod in pods
        )
    # Only a running kubelet unmounts, so only its pods' volumes are worth waiting for.
    if wave_mode(planned, state.means, handed_over=state.handed_over) == "api":
        pods = tuple(replace(pod, volumes=state.pods[pod.uid].volumes) for pod in pods)
    return WaveStarted(
        wave=state.wave,
        priority=planned.priority,
        period_ns=period_ns,
        deadline_ns=max(now, min(now + period_ns, _last_deadline_ns(state))),
        kill_by_ns=state.kill_by_ns,
        pods=pods,
        handover=planned.handover,
    )


def _last_deadline_ns(state: EpisodeState) -> int:
    """Pods of a later wave, also of one with 0 s, still get their stop signal and the floor after it.

    After a hand-over what is left belongs to the last range: the others' waves have what is left of that.
    """
    later = [wave for wave in state.waves[state.wave + 1 :] if _has_open(state, wave)]
    if not later:
        return state.deadline_ns
    last_ns = min(state.deadline_ns, state.kill_by_ns - FLOOR_NS)
    if not state.waves[state.wave].handover:
        return last_ns
    return min(last_ns, state.deadline_ns - later[-1].period_seconds * NS_PER_SECOND)


def _has_open(state: EpisodeState, wave: PlannedWave) -> bool:
    return any(state.roll.is_open(pod.uid) for pod in wave.pods)


def _drain(state: EpisodeState, decisions: list[Event]) -> Result:
    """After the last wave only stragglers are left, and, on a node, pods that nobody has seen yet."""
    if state.roll.open_pods or state.refreshing or state.kubelet_stopping:
        return state, decisions
    return replace(state, phase="flushing"), [*decisions, PodsEnded()]


def _then_drain(note: Handler) -> Handler:
    """After what ``note`` makes of the event: if nobody is left to wait for, it is over."""

    def handle(state: EpisodeState, event: Event, now: int) -> Result:
        state, decisions = note(state, event, now)
        return _drain(state, [*decisions])

    return handle


# --- listings ----------------------------------------------------------------------------------

# The plan is made of the first listing. What a later one finds, or what is reported by itself, joins the
# shutdown as it is by then: the running wave if its own is over, nothing once nobody waits for pods.

#: What is said of a pod that is found once nothing is stopped any more.
TOO_LATE = "found when the shutdown had stopped waiting for pods"
AGAIN_TOO_LATE = "started again when the shutdown had stopped waiting for pods"


def _once_listed(then: Callable[[EpisodeState, int], Result]) -> Handler:
    """With the last part of the listing that is waited for.

    One that was asked for earlier, perhaps by a cancelled shutdown, is not this one's.
    """

    def handle(state: EpisodeState, event: InventoryTaken, now: int) -> Result:
        if event.key != state.listing_key:
            return state, ()
        state = replace(state, listing=state.listing + event.pods)
        return (state, ()) if event.part < event.parts else then(state, now)

    return handle


def _refreshed(state: EpisodeState, now: int) -> Result:
    """No listing may bring pods to light any more."""
    return (replace(state, refreshing=""), ()) if state.refreshing else (state, ())


def _refresh_listed(state: EpisodeState, event: InventoryTaken, now: int) -> Result:
    """Each part of each, also of one that was overtaken: the later one may fail. It alone is waited for."""
    newest = event.key == state.listing_key
    if not newest and event.key not in state.overtaken:
        return state, ()
    state, decisions = _late_pods(replace(state, listing=event.pods), now)
    state = replace(state, listing=())
    if newest and event.part >= event.parts:
        state, _ = _refreshed(state, now)
    return state, decisions


def _too_late_listed(state: EpisodeState, now: int) -> Result:
    state, decisions = _report_too_late(state, now)
    state, _ = _refreshed(state, now)
    return state, decisions


def _joined(state: EpisodeState, event: PodJoined, now: int) -> Result:
    """One that no inventory had: it was admitted while the node goes down. Or one whose end was said, and
    which its kubelet has started again: that is planned anew. Of a pod that has not ended the HookActor goes
    on with what runs now.
    """
    uid = event.pod.uid
    if uid in state.pods:
        if state.roll.is_open(uid):
            return state, ()
        if now > state.kill_by_ns - FLOOR_NS:  # there is no time to tell it
            return _joined_too_late(state, event, now)
        # Another plan's ordinals: its orders are other ones than those of its first end.
        pods = {known: pod for known, pod in state.pods.items() if known != uid}
        state = replace(state, pods=pods, plans=state.plans + 1)
    # A listing may be under way.
    found, decisions = _late_pods(replace(state, listing=(event.pod,)), now)
    return replace(found, listing=state.listing), decisions


def _list_again(state: EpisodeState) -> tuple[EpisodeState, TakeInventory]:
    """Instead of a listing that is waited for: that one does not know what has begun since."""
    if state.refreshing:
        state = replace(state, overtaken=(*state.overtaken, state.refreshing))
    return _list_pods(state, refresh=True)


def _joined_too_late(state: EpisodeState, event: PodJoined, now: int) -> Result:
    """A pod that has ended runs again: its recorded end is no longer true, so record that."""
    uid = event.pod.uid
    if uid not in state.pods:
        found, decisions = _report_too_late(replace(state, listing=(event.pod,)), now)
        return replace(found, listing=state.listing), decisions
    wave = _wave_of(state, event.pod)
    return state, [PodEnded(uid=uid, wave=wave, outcome="unknown", reason=AGAIN_TOO_LATE, again=True)]


def _kubelet_stops(state: EpisodeState, event: StopKubelet, now: int) -> Result:
    return replace(state, kubelet_stopping=True), ()


def _kubelet_stopped(state: EpisodeState, event: KubeletStopped, now: int) -> Result:
    """What had ended by now it may have started again, also a container of a pod that has not ended: the last
    look at that is from after its end. The plan that is about to be made has a look of its own.
    """
    state = replace(state, kubelet_stopping=False)
    if state.phase == "listing":
        return state, ()
    state, order = _list_again(state)
    return state, [order]


def _listing_ended(state: EpisodeState, event: OrderEnded, now: int) -> Result:
    """Without an inventory nothing can be stopped: a lost listing is repeated, a failed one once, by call."""
    if event.result == "done" or event.key != state.listing_key:
        return state, ()
    # The daemon died: nothing is known against the listing, so this does not count as its one failure.
    if event.result == "unknown":
        state, order = _list_for_plan(state, now)
        return state, [order]
    # Twice: then what is known is that nothing can be known, and the time of a third try would be the
    # release's.
    if state.listing_failed:
        return _plan_waves(state, now, listed=False)
    state, order = _list_pods(replace(state, listing_failed=True), refresh=True)
    return state, [order]


def _refresh_ended(state: EpisodeState, event: OrderEnded, now: int) -> Result:
    """While pods are stopped: a lost listing is repeated, after a failed one nobody waits for unseen pods."""
    if event.key == state.refreshing and event.result not in ("done", "unknown"):
        return _refreshed(state, now)
    if event.key != state.listing_key or event.result != "unknown":
        return state, ()
    state, order = _list_pods(state, refresh=True)
    return state, [order]


def _late_pods(state: EpisodeState, now: int) -> Result:
    """Pods that the signal's inventory did not have join their wave, or the running one if theirs is over.

    While stragglers are waited for, a wave that was skipped because it was empty begins after all. A pod of
    the cancelled shutdown that is still here is this one's from now on: it is waited for once.
    """
    decisions: list[Event] = []
    unplanned = _unplanned(state)
    found = {pod.uid: pod for pod in unplanned}
    carried = {uid: wave for uid, wave in state.carried.items() if uid not in found}
    state = replace(state, carried=carried)
    skipped = [index for pod in unplanned if (index := _wave_of(state, pod)) > state.wave]
    earliest = min(skipped, default=state.wave) if state.phase == "draining" else state.wave
    for pod in unplanned:
        # Never a wave that has ended: nobody would begin this pod's stop.
        index = max(earliest, _wave_of(state, pod))
        wave = state.waves[index]
        planned = PlannedPod(uid=pod.uid, grace_seconds=pod_grace_seconds(wave.period_seconds, pod))
        again = pod.uid in state.roll.places
        joined = replace(wave, pods=(*(each for each in wave.pods if each.uid != pod.uid), planned))
        waves = (*state.waves[:index], joined, *state.waves[index + 1 :])
        pods, roll = {**state.pods, pod.uid: pod}, state.roll.join(pod.uid)
        state = replace(state, pods=pods, roll=roll, waves=waves)
        decisions.append(_pod_planned(state, index, planned, late=True, again=again))
    if earliest > state.wave:
        return _next_wave(replace(state, phase="waves", carried_ns=0), now, decisions)
    return state, decisions


def _unplanned(state: EpisodeState) -> list[Pod]:
    return [pod for pod in state.listing if pod.uid not in state.pods]


def _wave_of(state: EpisodeState, pod: Pod) -> int:
    rules = PlacementRules(state.means, state.taints, state.together)
    return max(state.wave, wave_index(state.periods, pod, rules))


def _report_too_late(state: EpisodeState, now: int) -> Result:
    """Nothing is stopped any more, but no pod of the inventory goes without a word."""
    found = _unplanned(state)
    said: list[Event] = [
        PodEnded(uid=pod.uid, wave=_wave_of(state, pod), outcome="unknown", reason=TOO_LATE) for pod in found
    ]
    if not state.means:
        return state, said
    # A node's pods are reported by themselves and listed: once is enough.
    return replace(state, pods={**state.pods, **{pod.uid: pod for pod in found}}), said


# --- what is noted, and nothing follows from it ------------------------------------------------


def _hook_ended(state: EpisodeState, event: HookEnded, now: int) -> Result:
    return replace(state, sleeps_terminated_early=state.sleeps_terminated_early + event.early), ()


def _config_adopted(state: EpisodeState, event: ConfigAdopted, now: int) -> Result:
    return replace(
        state,
        periods=event.periods,
        requested_ns=event.requested_ns,
        reserve_ns=event.reserve_ns,
        elastic=event.budget == "elastic",
        sleep_action=event.sleep_action,
        projection_version=event.projection_version,
        resource=event.resource,
        enabled=event.enabled,
    ), ()


def _lock_taken(state: EpisodeState, event: Armed, now: int) -> Result:
    return replace(state, armed=True), ()


def _lock_lost(state: EpisodeState, event: Disarmed, now: int) -> Result:
    return replace(state, armed=False), ()


def _leaves(state: EpisodeState, event: Leave, now: int) -> Result:
    return replace(state, left=True), ()


def _mode_chosen(state: EpisodeState, event: MeansChosen, now: int) -> Result:
    return replace(state, means=event.means, handed_over=False, taints=event.taints), ()


def _handed_over(state: EpisodeState, event: HandedOver, now: int) -> Result:
    return replace(state, handed_over=True), ()


# --- a start of the daemon ---------------------------------------------------------------------


def _daemon_started(state: EpisodeState, event: DaemonStarted, now: int) -> Result:
    """In another boot, or userspace, an episode that is open is closed: its pods went with it.

    Nothing is waited for, or killed, in this one; what the last one was like is said in ``previous``. How far
    a boot that is over had come is kept until the machine has been asked about its end.
    """
    same_boot = event.boot_id == state.boot_id
    same_userspace = same_boot and event.userspace_id == state.userspace_id
    last = LAST_EPISODE_BY_PHASE[state.phase]
    action = resume_action(
        FoundAtStart(last, event.preparing, same_boot, same_userspace, event.lock_inherited)
    )
    previous = ""
    if action.startswith("close-complete"):
        previous = "complete"
    elif action.startswith("close-truncated"):
        previous = f"cut short at wave {state.wave}" if state.wave >= 0 else "never begun"
    elif state.boot_id and not same_userspace and last == "none":
        previous = "ended without a shutdown that was seen"
    ended = state.ended
    if state.boot_id not in ("", event.boot_id):
        ended = EndedBoot(
            boot_id=state.boot_id,
            last=last,
            wave=state.wave,
            overtime=state.overtime,
            enabled=state.enabled,
            armed=state.armed,
            left=state.left,
        )
    # A new process has armed nothing yet.
    state = replace(
        state,
        boot_id=event.boot_id,
        userspace_id=event.userspace_id,
        ended=ended,
        armed=False,
        left=False,
    )
    resumed = Resumed(action=action, previous=previous)
    if same_userspace:
        return state, [resumed]
    unseen = _unseen(state, "the machine went down before its end was seen")
    closed: list[Event] = []
    if last != "none":
        outcome: EpisodeOutcome = "truncated" if state.wave >= 0 else "never-begun"
        if last != "open":
            outcome = "complete" if last == "released" else "cancelled"
        closed = [EpisodeClosed(outcome=outcome, last_wave=state.wave)]
    # Fates first, because a shutdown's record ends with its close; what is done about this boot comes last,
    # since the others adopt their configuration at the close.
    return replace(_without_shutdown(state), carried={}), [*unseen, *closed, resumed]


def _daemon_started_listing(state: EpisodeState, event: DaemonStarted, now: int) -> Result:
    """While none ran the kubelet may have started again what had ended, or other pods."""
    state, decisions = _daemon_started(state, event, now)
    if not state.means or decisions[0] != Resumed(action="resume"):
        return state, decisions
    state, order = _list_pods(state, refresh=True)
    return state, [*decisions, order]


def _last_boot_read(state: EpisodeState, event: LastBootRead, now: int) -> Result:
    ended = state.ended
    if ended is None or ended.boot_id != event.boot_id:
        return state, ()
    ending, why = boot_end(ended, event)
    said = LastBootEnded(
        boot_id=event.boot_id,
        ending=ending,
        why=why,
        wave=ended.wave if ending == "cut-short" else -1,
        recorded=ended.last in ("open", "released"),
        alive_wall_ns=event.alive_wall_ns,
    )
    return replace(state, ended=None), [said]


def _unseen(state: EpisodeState, reason: str) -> list[Event]:
    """What is said of each pod whose end nobody has reported."""
    return [
        PodEnded(uid=uid, wave=wave, outcome="unknown", reason=reason)
        for uid, wave in _open_pods(state).items()
    ]


# --- the beginning -----------------------------------------------------------------------------


def _times(state: EpisodeState, grant_ns: int, now: int) -> ShutdownTimes:
    return lay_out_times(now, grant_ns, state.requested_ns, state.reserve_ns)


def _begin_shutdown(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    layout = _times(state, event.grant_ns, now)
    began = ShutdownBegan(
        kind=event.kind,
        grant_ns=event.grant_ns,
        requested_ns=state.requested_ns,
        budget_ns=layout.deadline_ns - now,
        deadline_ns=layout.deadline_ns,
        release_by_ns=layout.release_by_ns,
        lock_held=event.lock_held,
        budget="elastic" if state.elastic else "strict",
        projection_version=state.projection_version,
        resource=state.resource,
    )
    state = replace(
        state,
        phase="listing",
        listing_failed=False,
        kind=event.kind,
        grant_ns=event.grant_ns,
        overtime=event.overtime,
        **layout._asdict(),
    )
    state, order = _list_for_plan(state, now)
    return state, [began, order]


def _followed_by_another(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    """A cancelled shutdown ends where the next one begins; its pods that still go down are carried over."""
    # Closed before the next begins, in one step: two open shutdowns could not be told apart, and between two
    # steps a daemon might die without either.
    closed_state, closed = _close_episode(state, "cancelled", followed=True)
    began, decisions = _begin_shutdown(closed_state, event, now)
    return began, [*closed, *decisions]


def _move_deadline(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    """logind restarted (another delay begins), or the service manager's stop time is all that is left."""
    # Counted from now: with a logind that has restarted a new delay begins, and what is left of a unit's stop
    # is left from here.
    layout = _times(state, event.grant_ns, now)
    moved = DeadlineMoved(
        deadline_ns=layout.deadline_ns,
        release_by_ns=layout.release_by_ns,
        kill_by_ns=layout.kill_by_ns,
        overtime=event.overtime,
    )
    return replace(state, **layout._asdict()), [moved]


def _move_deadline_listing(state: EpisodeState, event: ShutdownDetected, now: int) -> Result:
    """Pods that come later than the old one are asked for too."""
    before_ns = state.release_by_ns
    state, decisions = _move_deadline(state, event, now)
    if not state.means or state.release_by_ns <= before_ns:
        return state, decisions
    state, order = _list_again(state)
    return state, [*decisions, order]


# --- waves and pods end ------------------------------------------------------------------------


def _wave_ended(state: EpisodeState, event: WaveEnded, now: int) -> Result:
    # An earlier one's: it was not waited for any more when this one began.
    if event.wave != state.wave:
        return state, ()
    return _next_wave(replace(state, carried_ns=event.unused_ns), now, [])


def _mark_ended(state: EpisodeState, event: PodEnded, now: int) -> Result:
    if state.roll.is_open(event.uid):
        return replace(state, roll=state.roll.mark(event.uid)), ()
    # Not of this plan: perhaps of the cancelled shutdown before it.
    if event.uid not in state.carried:
        return state, ()
    return replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid != event.uid}), ()


def _last_pod_ended(state: EpisodeState, event: PodEnded, now: int) -> Result:
    state, _ = _mark_ended(state, event, now)
    return _end_cancelled(state)


# --- the end -----------------------------------------------------------------------------------


def _give_up(state: EpisodeState, event: Event, now: int) -> Result:
    """The budget is over, or somebody said so: what is left is named, and nothing more is waited for."""
    return replace(state, phase="flushing"), [PodsEnded(unfinished=tuple(state.roll.missing()))]


def _give_up_cancelled(state: EpisodeState, event: Tick, now: int) -> Result:
    """Everybody hears first that nothing is waited for. Who has not answered by the next time has failed."""
    if not state.given_up:
        return replace(state, given_up=True), [PodsEnded(unfinished=tuple(state.roll.missing()))]
    unseen = _unseen(state, "nobody was left to see its end")
    state, closed = _close_episode(state, "cancelled")
    return state, [*unseen, *closed]


def _released(state: EpisodeState, event: ReleaseLock, now: int) -> Result:
    return replace(state, phase="released"), ()


def _released_early(state: EpisodeState, event: ReleaseLock, now: int) -> Result:
    """By the fallback: then what is left is named here."""
    state, ended = _give_up(state, event, now)
    return replace(state, phase="released"), ended


def _withdrawn(state: EpisodeState, event: ShutdownWithdrawn, now: int) -> Result:
    """Honoured in the middle; the kubelet would wait until all groups are done.

    No release is near any more, and its limits are none: who is told to stop only now, by a daemon that was
    away, has the floor, and is waited for until SIGKILL has ended it.
    """
    state, decisions = _end_cancelled(replace(state, phase="cancelling"))
    short_ns = max(0, max(now, state.kill_by_ns) + 2 * FLOOR_NS - give_up_ns(state))
    if state.phase == "cancelling":
        state = replace(state, release_by_ns=state.release_by_ns + short_ns)
    return state, [ShutdownCancelled(reason=event.reason), *decisions]


def _end_cancelled(state: EpisodeState) -> Result:
    return (state, ()) if state.roll.open_pods else _close_episode(state, "cancelled")


def _close_episode(state: EpisodeState, outcome: EpisodeOutcome, *, followed: bool = False) -> Result:
    closed = EpisodeClosed(outcome=outcome, last_wave=state.wave, followed=followed)
    return _without_shutdown(state), [closed]


def _afresh(
    state: EpisodeState, now: int, in_episode: bool, start: DaemonStarted | None
) -> EpisodeState | None:
    """A shutdown that this actor has failed in is the fallback's to the end, also in another process.

    What ends it may be the start of another boot, which a failed actor does not hear of.
    """
    if in_episode:
        return None
    state = replace(_without_shutdown(state), carried={})
    return state if start is None else replace(state, boot_id=start.boot_id, userspace_id=start.userspace_id)


def give_up_ns(state: EpisodeState) -> int:
    """From when on this shutdown waits for no pod."""
    return ShutdownTimes(state.deadline_ns, state.kill_by_ns, state.release_by_ns).give_up_ns


def _deadline(state: EpisodeState) -> int:
    """A pod that survives SIGKILL holds neither a machine nor, after a cancel, the episode."""
    # After `flushing` others bound the wait: the NodeStatusActor's statuses, then logind's own limit.
    if state.phase not in WAITING:
        return NEVER_NS
    return give_up_ns(state) + REAP_MARGIN_NS if state.given_up else give_up_ns(state)


# --- the table ---------------------------------------------------------------------------------

# fmt: off
TRANSITIONS = Transitions(
    get_args(EpisodePhase),
    attrgetter("phase"),
    # phases         event              handler                leads to    decides
    Row("idle",       ShutdownDetected, _begin_shutdown,       "listing",  (ShutdownBegan, TakeInventory)),
    Row("cancelling", ShutdownDetected, _followed_by_another,  "listing",
        (EpisodeClosed, ShutdownBegan, TakeInventory)),
    Row("listing flushing", ShutdownDetected, _move_deadline,  "=",        (DeadlineMoved,)),
    Row("waves draining", ShutdownDetected, _move_deadline_listing, "=", (DeadlineMoved, TakeInventory)),
    ignored("released", ShutdownDetected),

    Row("listing",    InventoryTaken,   _once_listed(_plan_waves), "= waves draining flushing",
        (PlanMade, PodPlanned, TakeInventory, WaveStarted, PodsEnded)),
    Row("waves",      InventoryTaken,   _refresh_listed,       "=",        (PodPlanned,)),
    Row("draining",   InventoryTaken,   _then_drain(_refresh_listed), "= waves flushing",
        (PodPlanned, WaveStarted, PodsEnded)),
    Row("flushing released", InventoryTaken, _once_listed(_too_late_listed), "=", (PodEnded,)),
    Row("cancelling", InventoryTaken,   _once_listed(_refreshed)),
    ignored("idle", InventoryTaken),

    Row("waves",      PodJoined,        _joined,               "=",        (PodPlanned, PodEnded)),
    Row("draining",   PodJoined,        _joined,               "= waves",
        (PodPlanned, WaveStarted, PodEnded)),
    Row("flushing released", PodJoined, _joined_too_late,      "=",        (PodEnded,)),
    # While the pods are listed, the listing has it, or the one after the plan.
    ignored("idle listing cancelling", PodJoined),
    Row("listing waves draining", StopKubelet, _kubelet_stops),
    Row("listing waves", KubeletStopped, _kubelet_stopped,     "=",        (TakeInventory,)),
    Row("draining",   KubeletStopped,   _then_drain(_kubelet_stopped), "= flushing",
        (TakeInventory, PodsEnded)),
    ignored("idle flushing released cancelling", StopKubelet, KubeletStopped),

    Row("listing",    OrderEnded,       _listing_ended,        "= waves draining flushing",
        (TakeInventory, PlanMade, WaveStarted, PodsEnded)),
    Row("waves",      OrderEnded,       _refresh_ended,        "=",          (TakeInventory,)),
    Row("draining",   OrderEnded,       _then_drain(_refresh_ended), "= flushing",
        (TakeInventory, PodsEnded)),
    ignored("idle flushing released cancelling", OrderEnded),

    Row("waves",      WaveEnded,        _wave_ended,           "= draining flushing",
        (WaveStarted, PodsEnded)),
    ignored("idle listing draining flushing released cancelling", WaveEnded),

    Row("idle listing waves flushing released", PodEnded, _mark_ended),
    Row("draining",   PodEnded,         _then_drain(_mark_ended), "= flushing", (PodsEnded,)),
    Row("cancelling", PodEnded,         _last_pod_ended,       "= idle",     (EpisodeClosed,)),

    Row("listing waves draining", Tick, _give_up,              "flushing",   (PodsEnded,)),
    Row("cancelling", Tick,             _give_up_cancelled,    "= idle",
        (PodsEnded, PodEnded, EpisodeClosed)),
    ignored("idle flushing released", Tick),
    Row("listing waves draining", ReleaseRequested, _give_up,  "flushing",   (PodsEnded,)),
    # After a cancel there is nothing to release: what has begun is finished.
    ignored("idle flushing released cancelling", ReleaseRequested),
    Row("listing waves draining", ReleaseLock, _released_early, "released",  (PodsEnded,)),
    Row("idle flushing released cancelling", ReleaseLock, _released, "released"),

    Row(EVERY,        ShutdownWithdrawn, _withdrawn,           "cancelling idle",
        (ShutdownCancelled, EpisodeClosed)),
    Row("idle",       DaemonStarted,    _daemon_started,       "=",          (PodEnded, Resumed)),
    Row("listing released cancelling", DaemonStarted, _daemon_started, "= idle",
        (PodEnded, EpisodeClosed, Resumed)),
    Row("waves draining flushing", DaemonStarted, _daemon_started_listing, "= idle",
        (PodEnded, EpisodeClosed, Resumed, TakeInventory)),

    Row(EVERY,        LastBootRead,     _last_boot_read,       "=",        (LastBootEnded,)),
    Row(EVERY,        Armed,            _lock_taken),
    Row(EVERY,        Disarmed,         _lock_lost),
    Row(EVERY,        Leave,            _leaves),
    Row(EVERY,        ConfigAdopted,    _config_adopted),
    Row(EVERY,        HookEnded,        _hook_ended),
    Row(EVERY,        MeansChosen,      _mode_chosen),
    Row(EVERY,        HandedOver,       _handed_over),
)
# fmt: on

EPISODE = ActorType(NAME, EpisodeState, TRANSITIONS, deadline=_deadline, afresh=_afresh)
