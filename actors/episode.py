"""EpisodeActor: the phases of a shutdown, from the signal to the last record.

    idle -> listing -> waves -> draining -> flushing -> released
                                 (any) -> cancelling -> idle

``waves`` runs the plan's waves in ascending priority (KEP-2712); under ``elastic`` a wave's unused time goes
to the next one. ``draining`` waits for stragglers, and on a node for late pods. ``flushing`` delivers
statuses until the lock is released. ``cancelling`` finishes what has begun.
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
    takes,
)
from ebbtide.actors.policy import grace_periods
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.actors.policy.resume import EndedBoot, FoundAtStart, LastEpisode, boot_end, resume_action
from ebbtide.actors.wave import PodChecklist
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, BoundedDict, Event, order_key
from ebbtide.events.values import Period, PlannedPod, PlannedWave, Pod, ShutdownKind, TerminationMode

NAME = "EpisodeActor"

EpisodePhase = Literal["idle", "listing", "waves", "draining", "flushing", "released", "cancelling"]

#: What a start finds, by the phase in which the journal ends.
LAST_EPISODE_BY_PHASE: dict[EpisodePhase, LastEpisode] = {
    "idle": "none",
    "cancelling": "closed",
    "released": "released",
    "listing": "open",
    "waves": "open",
    "draining": "open",
    "flushing": "open",
}


#: In these phases the wait for pods has a bound.
WAITING: tuple[EpisodePhase, ...] = ("listing", "waves", "draining", "cancelling")


class EpisodeState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: EpisodePhase = "idle"
    # The adopted configuration.
    periods: tuple[Period, ...] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    elastic: bool = False
    sleep_action: bool = True
    # Where the last writer ran.
    boot_id: str = ""
    userspace_id: str = ""
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0
    deadline_ns: int = 0
    kill_by_ns: int = 0
    release_by_ns: int = 0
    listing: tuple[Pod, ...] = ()
    #: The awaited listing, and whether one failed in this shutdown.
    listing_key: str = ""
    listing_failed: bool = False
    pods: BoundedDict[kinds.Uid, Pod] = {}
    roll: PodChecklist = PodChecklist()
    waves: tuple[PlannedWave, ...] = ()
    wave: int = -1
    carried_ns: int = 0
    ordinal: int = 0
    #: Over all shutdowns.
    plans: int = 0
    #: Pods of a cancelled shutdown that still go down: UID to wave.
    carried: BoundedDict[kinds.Uid, int] = {}
    #: After a cancel: `PodsEnded` is recorded.
    given_up: bool = False
    #: The metric ``sleep_action_terminated_early_total`` (KEP-3960), over all shutdowns.
    sleeps_terminated_early: int = 0
    means: TerminationMode = ""
    handed_over: bool = False
    taints: bool = True
    #: It worked at the signal.
    kubelet: bool = False
    #: The last priority range is one wave.
    together: bool = False
    #: On a node: the shutdown waits for this listing, which may find more pods.
    refreshing: kinds.Key = ""
    #: Earlier open listings: their pods count too.
    overtaken: tuple[kinds.Key, ...] = ()
    #: The shutdown waits for its stop: until then it may start ended containers again.
    kubelet_stopping: bool = False
    # For the record of this boot's end. None: unknown.
    enabled: bool | None = None
    armed: bool | None = None
    left: bool = False
    #: This shutdown began with the daemon's own stop, past logind.
    overtime: bool = False
    #: The last boot, until the machine reports how it ended.
    ended: EndedBoot | None = None
    # For the traces.
    projection_version: int = d.FIRST_PROJECTION_VERSION
    resource: BoundedDict[str, str] = {}


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        get_args(EpisodePhase),
        attrgetter("phase"),
        # The signal, and a later one.
        Row("idle", d.ShutdownDetected, _begin_shutdown, "listing", (d.ShutdownBegan, d.TakeInventory)),
        Row("cancelling", d.ShutdownDetected, _followed_by_another, "listing",
            (d.EpisodeClosed, d.ShutdownBegan, d.TakeInventory)),
        Row("listing flushing", d.ShutdownDetected, _move_deadline, decides=(d.DeadlineMoved,)),
        Row("waves draining", d.ShutdownDetected, _move_deadline_listing,
            decides=(d.DeadlineMoved, d.TakeInventory)),
        ignored("released", d.ShutdownDetected),
        Row("listing", f.InventoryTaken, _once_listed(_plan_waves), "= waves draining flushing",
            (d.PlanMade, d.PodPlanned, d.TakeInventory, d.WaveStarted, d.PodsEnded)),
        Row("waves", f.InventoryTaken, _refresh_listed, decides=(d.PodPlanned,)),
        Row("draining", f.InventoryTaken, _then_drain(_refresh_listed), "= waves flushing",
            (d.PodPlanned, d.WaveStarted, d.PodsEnded)),
        Row("flushing released", f.InventoryTaken, _once_listed(_too_late_listed), decides=(d.PodEnded,)),
        Row("cancelling", f.InventoryTaken, _once_listed(_refreshed)),
        ignored("idle", f.InventoryTaken),
        Row("waves", f.PodJoined, _joined, decides=(d.PodPlanned, d.PodEnded)),
        Row("draining", f.PodJoined, _joined, "= waves", (d.PodPlanned, d.WaveStarted, d.PodEnded)),
        Row("flushing released", f.PodJoined, _joined_too_late, decides=(d.PodEnded,)),
        # A listing finds the pod.
        ignored("idle listing cancelling", f.PodJoined),
        Row("listing waves draining", d.StopKubelet, takes(kubelet_stopping=True)),
        Row("listing waves", d.KubeletStopped, _kubelet_stopped, decides=(d.TakeInventory,)),
        Row("draining", d.KubeletStopped, _then_drain(_kubelet_stopped), "= flushing",
            (d.TakeInventory, d.PodsEnded)),
        Row("listing", f.OrderEnded, _listing_ended, "= waves draining flushing",
            (d.TakeInventory, d.PlanMade, d.WaveStarted, d.PodsEnded)),
        Row("waves", f.OrderEnded, _refresh_ended, decides=(d.TakeInventory,)),
        Row("draining", f.OrderEnded, _then_drain(_refresh_ended), "= flushing",
            (d.TakeInventory, d.PodsEnded)),
        ignored("idle flushing released cancelling", d.StopKubelet, d.KubeletStopped, f.OrderEnded),
        Row("waves", d.WaveEnded, _wave_ended, "= draining flushing", (d.WaveStarted, d.PodsEnded)),
        ignored("idle listing draining flushing released cancelling", d.WaveEnded),
        Row("idle listing waves flushing released", d.PodEnded, _mark_ended),
        Row("draining", d.PodEnded, _then_drain(_mark_ended), "= flushing", (d.PodsEnded,)),
        Row("cancelling", d.PodEnded,
            lambda state, event, now: _end_cancelled(_mark_ended(state, event, now)[0]),
            "= idle", (d.EpisodeClosed,)),
        Row("listing waves draining", f.Tick, _give_up, "flushing", (d.PodsEnded,)),
        Row("cancelling", f.Tick, _give_up_cancelled, "= idle", (d.PodsEnded, d.PodEnded, d.EpisodeClosed)),
        ignored("idle flushing released", f.Tick),
        Row("listing waves draining", f.ReleaseRequested, _give_up, "flushing", (d.PodsEnded,)),
        # After a cancel no lock is released.
        ignored("idle flushing released cancelling", f.ReleaseRequested),
        Row("listing waves draining", d.ReleaseLock, _released_early, "released", (d.PodsEnded,)),
        Row("idle flushing released cancelling", d.ReleaseLock, takes(phase="released"), "released"),
        Row(EVERY, d.ShutdownWithdrawn, _withdrawn, "cancelling idle",
            (d.ShutdownCancelled, d.EpisodeClosed)),
        Row("idle", f.DaemonStarted, _daemon_started, decides=(d.PodEnded, d.Resumed)),
        Row("listing released cancelling", f.DaemonStarted, _daemon_started, "= idle",
            (d.PodEnded, d.EpisodeClosed, d.Resumed)),
        Row("waves draining flushing", f.DaemonStarted, _daemon_started_listing, "= idle",
            (d.PodEnded, d.EpisodeClosed, d.Resumed, d.TakeInventory)),
        Row(EVERY, f.LastBootRead, _last_boot_read, decides=(d.LastBootEnded,)),
        # Facts to keep.
        Row(EVERY, d.Armed, takes(armed=True)),
        Row(EVERY, d.Disarmed, takes(armed=False)),
        Row(EVERY, d.Leave, takes(left=True)),
        Row(EVERY, d.ConfigAdopted, _config_adopted),
        Row(EVERY, d.HookEnded, lambda state, event, now: (
                replace(state, sleeps_terminated_early=state.sleeps_terminated_early + event.early), ())),
        Row(EVERY, d.MeansChosen, takes("means", "taints", "kubelet", handed_over=False)),
        Row(EVERY, d.HandedOver, takes(handed_over=True)),
    )
# fmt: on


def _open_pods(state: EpisodeState) -> dict[str, int]:
    """UID to wave."""
    # A pod of both shutdowns counts with its new wave.
    waves = {pod.uid: index for index, wave in enumerate(state.waves) for pod in wave.pods}
    return {**state.carried, **{uid: waves[uid] for uid in state.roll.missing()}}


KEPT_FIELDS = (
    *("periods", "requested_ns", "reserve_ns", "elastic", "sleep_action", "boot_id", "userspace_id"),
    *("ordinal", "plans", "sleeps_terminated_early"),
    *("enabled", "armed", "left", "ended", "projection_version", "resource"),
)


def _without_shutdown(state: EpisodeState) -> EpisodeState:
    return fresh_but(state, KEPT_FIELDS, carried=_open_pods(state))


# --- the plan

#: By then a kubelet that works has begun to stop a deleted pod, beside a hundred others. A younger deletion
#: gets our stop signal, perhaps its second.
BEGINS_NS = NS_PER_SECOND


def _list_pods(state: EpisodeState, *, refresh: bool) -> tuple[EpisodeState, d.TakeInventory]:
    key = order_key(NAME, "inventory", "", state.ordinal)
    refreshing = key if refresh and state.means else ""
    state = replace(state, ordinal=state.ordinal + 1, listing=(), listing_key=key, refreshing=refreshing)
    # Only on a node: in mode process no pod starts in a shutdown.
    late_until_ns = state.release_by_ns if refresh and state.means else 0
    return state, d.TakeInventory(key=key, refresh=refresh, late_until_ns=late_until_ns)


def _list_for_plan(state: EpisodeState, now: int) -> tuple[EpisodeState, d.TakeInventory]:
    """With a small grant, plan without priorities rather than too late for the pods' floor."""
    state, order = _list_pods(state, refresh=False)
    by_ns = max(1, state.kill_by_ns - FLOOR_NS)
    return state, order if by_ns >= now + d.FIRST_WORD_NS else replace(order, priorities_by_ns=by_ns)


def _plan_waves(state: EpisodeState, now: int, *, listed: bool = True) -> Result:
    pods = {pod.uid: grace_periods.as_counted(pod, state.means) for pod in state.listing}
    # The plan waits for these pods.
    state = replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid not in pods})
    rules = grace_periods.placement_rules(tuple(pods.values()), state.means, taints=state.taints)
    times = (now, state.deadline_ns, _last_kill_ns(state))
    waves = grace_periods.arrange_waves(state.periods, state.grant_ns, tuple(pods.values()), rules, *times)
    state = replace(
        state, phase="waves", pods=pods, roll=PodChecklist.of(pods), waves=waves, wave=-1, carried_ns=0
    )
    state = replace(state, plans=state.plans + 1, together=rules.together)
    decisions: list[Event] = [d.PlanMade(waves=waves, pods=len(pods), listed=listed)]
    for index, wave in enumerate(waves):
        decisions.extend(_pod_planned(state, index, planned, now) for planned in wave.pods)
    # A slow listing must not delay the first wave. A second listing finds late pods.
    state, refresh = _list_pods(state, refresh=True)
    return _next_wave(state, now, [*decisions, refresh])


def _pod_planned(
    state: EpisodeState, wave: int, planned: PlannedPod, now: int, *, late: bool = False, again: bool = False
) -> d.PodPlanned:
    deletion = state.pods[planned.uid].deletion
    stopping = deletion is not None and deletion.since_ns + BEGINS_NS <= now
    return d.PodPlanned(
        wave=wave,
        grace_seconds=planned.grace_seconds,
        pod=state.pods[planned.uid],
        sleep_action=state.sleep_action,
        late=late,
        first_ordinal=(state.plans - 1) * ORDINALS_PER_PLAN,
        means=grace_periods.wave_mode(state.waves[wave], state.means, handed_over=state.handed_over),
        again=again,
        stopping=stopping and state.kubelet and not again,
    )


# --- the waves


def _next_wave(state: EpisodeState, now: int, decisions: list[Event]) -> Result:
    for index in range(state.wave + 1, len(state.waves)):
        wave = state.waves[index]
        if _has_open(state, wave):
            state = replace(state, wave=index)
            return state, [*decisions, _wave_started(state, now)]
        state = replace(state, carried_ns=state.carried_ns + wave.period_seconds * NS_PER_SECOND)
    return _drain(replace(state, phase="draining"), decisions)


def _wave_started(state: EpisodeState, now: int) -> d.WaveStarted:
    planned = state.waves[state.wave]
    period_ns = planned.period_seconds * NS_PER_SECOND + (state.carried_ns if state.elastic else 0)
    seconds = period_ns // NS_PER_SECOND
    pods = tuple(
        _planned_pod(state, planned, seconds, state.pods[pod.uid], now)
        for pod in planned.pods
        if state.roll.is_open(pod.uid)
    )
    # Only a running kubelet unmounts volumes.
    if grace_periods.wave_mode(planned, state.means, handed_over=state.handed_over) == "api":
        pods = tuple(replace(pod, volumes=state.pods[pod.uid].volumes) for pod in pods)
    return d.WaveStarted(
        wave=state.wave,
        priority=planned.priority,
        period_ns=period_ns,
        deadline_ns=max(now, min(now + period_ns, _last_deadline_ns(state))),
        kill_by_ns=_last_kill_ns(state),
        pods=pods,
        handover=planned.handover,
    )


def _planned_pod(state: EpisodeState, wave: PlannedWave, seconds: int, pod: Pod, now: int) -> PlannedPod:
    means = grace_periods.wave_mode(wave, state.means, handed_over=state.handed_over)
    return grace_periods.planned_pod(seconds, pod, now, now, _last_kill_ns(state), means)


def _last_kill_ns(state: EpisodeState) -> int:
    return grace_periods.last_kill_ns(state.deadline_ns, state.kill_by_ns, state.means)


def _last_deadline_ns(state: EpisodeState) -> int:
    """Pods of later waves still need their least grace and the floor. After a hand-over the last range's time
    is kept free.
    """
    later = [wave for wave in state.waves[state.wave + 1 :] if _has_open(state, wave)]
    if not later:
        return min(state.deadline_ns, _last_kill_ns(state))
    last_ns = min(state.deadline_ns, grace_periods.last_begin_ns(_last_kill_ns(state)))
    if not state.waves[state.wave].handover:
        return last_ns
    return min(last_ns, state.deadline_ns - later[-1].period_seconds * NS_PER_SECOND)


def _has_open(state: EpisodeState, wave: PlannedWave) -> bool:
    return any(state.roll.is_open(pod.uid) for pod in wave.pods)


def _drain(state: EpisodeState, decisions: list[Event]) -> Result:
    if state.roll.open_pods or state.refreshing or state.kubelet_stopping:
        return state, decisions
    return replace(state, phase="flushing"), [*decisions, d.PodsEnded()]


def _then_drain(note: Handler) -> Handler:

    def handle(state: EpisodeState, event: Event, now: int) -> Result:
        state, decisions = note(state, event, now)
        return _drain(state, [*decisions])

    return handle


# --- listings

# Pods found after the plan join their wave, or the running one if theirs is over.

TOO_LATE = "found too late to be stopped"


def _once_listed(then: Callable[[EpisodeState, int], Result]) -> Handler:
    """After the awaited listing's last part. Another listing may be a cancelled shutdown's."""

    def handle(state: EpisodeState, event: f.InventoryTaken, now: int) -> Result:
        if event.key != state.listing_key:
            return state, ()
        state = replace(state, listing=state.listing + event.pods)
        return (state, ()) if event.part < event.parts else then(state, now)

    return handle


def _refreshed(state: EpisodeState, now: int) -> Result:
    return (replace(state, refreshing=""), ()) if state.refreshing else (state, ())


def _refresh_listed(state: EpisodeState, event: f.InventoryTaken, now: int) -> Result:
    """Every part of every listing counts, because a later listing may fail."""
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


def _joined(state: EpisodeState, event: f.PodJoined, now: int) -> Result:
    """Plan a pod that the kubelet admitted in the shutdown, or started again."""
    uid = event.pod.uid
    if uid in state.pods:
        if state.roll.is_open(uid):
            return state, ()
        if now > state.kill_by_ns - FLOOR_NS:  # there is no time to tell it
            return _joined_too_late(state, event, now)
        # Its orders get new keys.
        pods = {known: pod for known, pod in state.pods.items() if known != uid}
        state = replace(state, pods=pods, plans=state.plans + 1)
    # A listing may be open.
    found, decisions = _late_pods(replace(state, listing=(event.pod,)), now)
    return replace(found, listing=state.listing), decisions


def _list_again(state: EpisodeState) -> tuple[EpisodeState, d.TakeInventory]:
    """An open listing lacks what has begun since."""
    if state.refreshing:
        state = replace(state, overtaken=(*state.overtaken, state.refreshing))
    return _list_pods(state, refresh=True)


def _joined_too_late(state: EpisodeState, event: f.PodJoined, now: int) -> Result:
    """Its recorded end is not true any more."""
    uid = event.pod.uid
    if uid not in state.pods:
        found, decisions = _report_too_late(replace(state, listing=(event.pod,)), now)
        return replace(found, listing=state.listing), decisions
    wave = _wave_of(state, event.pod)
    return state, [d.PodEnded(uid=uid, wave=wave, outcome="unknown", reason=TOO_LATE, again=True)]


def _kubelet_stopped(state: EpisodeState, event: d.KubeletStopped, now: int) -> Result:
    """List again: until its stop the kubelet may start ended containers. In ``listing`` the plan has its own
    listing.
    """
    state = replace(state, kubelet_stopping=False)
    if state.phase == "listing":
        return state, ()
    state, order = _list_again(state)
    return state, [order]


def _listing_ended(state: EpisodeState, event: f.OrderEnded, now: int) -> Result:
    """Repeat a failed listing once, by a call to the runtime."""
    if event.result == "done" or event.key != state.listing_key:
        return state, ()
    # The daemon died.
    if event.result == "unknown":
        state, order = _list_for_plan(state, now)
        return state, [order]
    if state.listing_failed:
        return _plan_waves(state, now, listed=False)
    state, order = _list_pods(replace(state, listing_failed=True), refresh=True)
    return state, [order]


def _refresh_ended(state: EpisodeState, event: f.OrderEnded, now: int) -> Result:
    """After a failed listing do not wait for more pods."""
    if event.key == state.refreshing and event.result not in ("done", "unknown"):
        return _refreshed(state, now)
    if event.key != state.listing_key or event.result != "unknown":
        return state, ()
    state, order = _list_pods(state, refresh=True)
    return state, [order]


def _late_pods(state: EpisodeState, now: int) -> Result:
    """In ``draining`` a skipped empty wave begins after all."""
    decisions: list[Event] = []
    unplanned = _unplanned(state)
    found = {pod.uid: pod for pod in unplanned}
    carried = {uid: wave for uid, wave in state.carried.items() if uid not in found}
    state = replace(state, carried=carried)
    skipped = [index for pod in unplanned if (index := _wave_of(state, pod)) > state.wave]
    earliest = min(skipped, default=state.wave) if state.phase == "draining" else state.wave
    for pod in unplanned:
        # An ended wave begins no stop.
        index = max(earliest, _wave_of(state, pod))
        wave = state.waves[index]
        planned = _planned_pod(state, wave, wave.period_seconds, pod, now)
        again = pod.uid in state.roll.places
        joined = replace(wave, pods=(*(each for each in wave.pods if each.uid != pod.uid), planned))
        waves = (*state.waves[:index], joined, *state.waves[index + 1 :])
        pods, roll = {**state.pods, pod.uid: pod}, state.roll.join(pod.uid)
        state = replace(state, pods=pods, roll=roll, waves=waves)
        decisions.append(_pod_planned(state, index, planned, now, late=True, again=again))
    if earliest > state.wave:
        return _next_wave(replace(state, phase="waves", carried_ns=0), now, decisions)
    return state, decisions


def _unplanned(state: EpisodeState) -> list[Pod]:
    return [grace_periods.as_counted(pod, state.means) for pod in state.listing if pod.uid not in state.pods]


def _wave_of(state: EpisodeState, pod: Pod) -> int:
    rules = grace_periods.PlacementRules(state.means, state.taints, state.together)
    return max(state.wave, grace_periods.wave_index(state.periods, pod, rules))


def _report_too_late(state: EpisodeState, now: int) -> Result:
    found = _unplanned(state)
    said: list[Event] = [
        d.PodEnded(uid=pod.uid, wave=_wave_of(state, pod), outcome="unknown", reason=TOO_LATE)
        for pod in found
    ]
    if not state.means:
        return state, said
    # A node's pods are both listed and reported.
    return replace(state, pods={**state.pods, **{pod.uid: pod for pod in found}}), said


# --- facts to keep


def _config_adopted(state: EpisodeState, event: d.ConfigAdopted, now: int) -> Result:
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


# --- a start of the daemon


def _daemon_started(state: EpisodeState, event: f.DaemonStarted, now: int) -> Result:
    """Closes an open shutdown of another boot or userspace: its pods are gone. The state keeps how far that
    boot came, until the machine reports its end.
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
    # A new process has not armed yet.
    state = replace(
        state,
        boot_id=event.boot_id,
        userspace_id=event.userspace_id,
        ended=ended,
        armed=False,
        left=False,
    )
    resumed = d.Resumed(action=action, previous=previous)
    if same_userspace:
        return state, [resumed]
    unseen = _unseen(state, "the machine went down before its end was seen")
    closed: list[Event] = []
    if last != "none":
        outcome: d.EpisodeOutcome = "truncated" if state.wave >= 0 else "never-begun"
        if last != "open":
            outcome = "complete" if last == "released" else "cancelled"
        closed = [d.EpisodeClosed(outcome=outcome, last_wave=state.wave)]
    # Fates first: the close ends the shutdown's record.
    return replace(_without_shutdown(state), carried={}), [*unseen, *closed, resumed]


def _daemon_started_listing(state: EpisodeState, event: f.DaemonStarted, now: int) -> Result:
    """Lists again: meanwhile the kubelet may have started pods."""
    state, decisions = _daemon_started(state, event, now)
    if not state.means or decisions[0] != d.Resumed(action="resume"):
        return state, decisions
    state, order = _list_pods(state, refresh=True)
    return state, [*decisions, order]


def _last_boot_read(state: EpisodeState, event: f.LastBootRead, now: int) -> Result:
    ended = state.ended
    if ended is None or ended.boot_id != event.boot_id:
        return state, ()
    ending, why = boot_end(ended, event)
    said = d.LastBootEnded(
        boot_id=event.boot_id,
        ending=ending,
        why=why,
        wave=ended.wave if ending == "cut-short" else -1,
        recorded=ended.last in ("open", "released"),
        alive_wall_ns=event.alive_wall_ns,
    )
    return replace(state, ended=None), [said]


def _unseen(state: EpisodeState, reason: str) -> list[Event]:
    return [
        d.PodEnded(uid=uid, wave=wave, outcome="unknown", reason=reason)
        for uid, wave in _open_pods(state).items()
    ]


# --- the beginning


def _times(state: EpisodeState, grant_ns: int, now: int) -> grace_periods.ShutdownTimes:
    return grace_periods.shutdown_times(state.periods, now, grant_ns, state.reserve_ns)


def _begin_shutdown(state: EpisodeState, event: d.ShutdownDetected, now: int) -> Result:
    layout = _times(state, event.grant_ns, now)
    began = d.ShutdownBegan(
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


def _followed_by_another(state: EpisodeState, event: d.ShutdownDetected, now: int) -> Result:
    # In one step: a daemon that died between two would leave two open shutdowns, or none.
    closed_state, closed = _close_episode(state, "cancelled", followed=True)
    began, decisions = _begin_shutdown(closed_state, event, now)
    return began, [*closed, *decisions]


def _move_deadline(state: EpisodeState, event: d.ShutdownDetected, now: int) -> Result:
    """Counted from now: a restarted logind and the service manager's stop time are new delays."""
    layout = _times(state, event.grant_ns, now)
    moved = d.DeadlineMoved(
        deadline_ns=layout.deadline_ns,
        release_by_ns=layout.release_by_ns,
        kill_by_ns=layout.kill_by_ns,
        overtime=event.overtime,
    )
    return replace(state, **layout._asdict()), [moved]


def _move_deadline_listing(state: EpisodeState, event: d.ShutdownDetected, now: int) -> Result:
    """On a node lists again if the release comes later: the open listing ends before."""
    before_ns = state.release_by_ns
    state, decisions = _move_deadline(state, event, now)
    if not state.means or state.release_by_ns <= before_ns:
        return state, decisions
    state, order = _list_again(state)
    return state, [*decisions, order]


# --- waves and pods end


def _wave_ended(state: EpisodeState, event: d.WaveEnded, now: int) -> Result:
    if event.wave != state.wave:
        return state, ()
    return _next_wave(replace(state, carried_ns=event.unused_ns), now, [])


def _mark_ended(state: EpisodeState, event: d.PodEnded, now: int) -> Result:
    if state.roll.is_open(event.uid):
        return replace(state, roll=state.roll.mark(event.uid)), ()
    # Perhaps a pod of the cancelled shutdown.
    if event.uid not in state.carried:
        return state, ()
    return replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid != event.uid}), ()


# --- the end


def _give_up(state: EpisodeState, event: Event, now: int) -> Result:
    return replace(state, phase="flushing"), [d.PodsEnded(unfinished=tuple(state.roll.missing()))]


def _give_up_cancelled(state: EpisodeState, event: f.Tick, now: int) -> Result:
    """First `PodsEnded`, then the close, even if actors do not answer."""
    if not state.given_up:
        return replace(state, given_up=True), [d.PodsEnded(unfinished=tuple(state.roll.missing()))]
    unseen = _unseen(state, "no actor reported its end")
    state, closed = _close_episode(state, "cancelled")
    return state, [*unseen, *closed]


def _released_early(state: EpisodeState, event: d.ReleaseLock, now: int) -> Result:
    state, ended = _give_up(state, event, now)
    return replace(state, phase="released"), ended


def _withdrawn(state: EpisodeState, event: d.ShutdownWithdrawn, now: int) -> Result:
    """In any phase. No release is near: a pod that is stopped only now has the floor, and the wait includes
    its SIGKILL.
    """
    state, decisions = _end_cancelled(replace(state, phase="cancelling"))
    short_ns = max(0, max(now, state.kill_by_ns) + 2 * FLOOR_NS - give_up_ns(state))
    if state.phase == "cancelling":
        state = replace(state, release_by_ns=state.release_by_ns + short_ns)
    return state, [d.ShutdownCancelled(reason=event.reason), *decisions]


def _end_cancelled(state: EpisodeState) -> Result:
    return (state, ()) if state.roll.open_pods else _close_episode(state, "cancelled")


def _close_episode(state: EpisodeState, outcome: d.EpisodeOutcome, *, followed: bool = False) -> Result:
    closed = d.EpisodeClosed(outcome=outcome, last_wave=state.wave, followed=followed)
    return _without_shutdown(state), [closed]


def _afresh(
    state: EpisodeState, now: int, in_episode: bool, start: f.DaemonStarted | None
) -> EpisodeState | None:
    """After this actor's failure the fallback ends the shutdown, also in another process."""
    if in_episode:
        return None
    state = replace(_without_shutdown(state), carried={})
    return state if start is None else replace(state, boot_id=start.boot_id, userspace_id=start.userspace_id)


def give_up_ns(state: EpisodeState) -> int:
    return grace_periods.wait_until_ns(state.kill_by_ns, state.release_by_ns)


def _deadline(state: EpisodeState) -> int:
    """A pod that survives SIGKILL blocks neither the machine nor the cancel."""
    # Other components bound ``flushing``: the NodeStatusActor, then logind's limit.
    if state.phase not in WAITING:
        return NEVER_NS
    return give_up_ns(state) + (grace_periods.REAP_MARGIN_NS if state.given_up else 0)


EPISODE = ActorType(NAME, EpisodeState, _transitions(), deadline=_deadline, afresh=_afresh)
