"""The course of a shutdown: from the inventory to the plan, and from wave to wave.

Waves run one after another in ascending priority (KEP-2712); empty ones cost nothing. Under ``elastic`` the
time that waves left unused goes to the next one. `actors.logic.episode` says when each of this happens.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import Result, State
from actors.logic.budget import FLOOR_NS
from actors.logic.roll import Roll
from actors.policy.grace import pod_grace_seconds
from actors.policy.grouping import group_of, priority_of
from actors.policy.plan import planned_waves
from actors.policy.resume import LastEpisode
from events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, Event, order_key
from events.decisions import PlanMade, PodEnded, PodPlanned, PodsEnded, TakeInventory, WaveStarted
from events.facts import InventoryTaken, OrderEnded
from events.model import Period, PlannedPod, PlannedWave, Pod, ShutdownKind

NAME = "EpisodeActor"

Phase = Literal["idle", "listing", "waves", "draining", "flushing", "released", "cancelling"]

#: Phases in which pods are stopped: one that is found now is planned.
STOPPING: tuple[Phase, ...] = ("waves", "draining")

#: What is said of a pod that is found after that.
TOO_LATE = "found when the shutdown had stopped waiting for pods"

#: How the last episode stands, by phase, in the words of the resume table.
STANDING: dict[Phase, LastEpisode] = {
    "idle": "none",
    "cancelling": "closed",
    "released": "released",
    "listing": "open",
    "waves": "open",
    "draining": "open",
    "flushing": "open",
}


class EpisodeState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Phase = "idle"
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
    pods: dict[str, Pod] = {}
    roll: Roll = Roll()
    waves: tuple[PlannedWave, ...] = ()
    wave: int = -1
    carried_ns: int = 0
    ordinal: int = 0
    #: Plans so far, over all shutdowns.
    plans: int = 0
    #: Pods of a cancelled shutdown that still go down while the next one begins: UID to wave.
    carried: dict[str, int] = {}
    #: After a cancel: everybody was told that nothing is waited for any longer.
    given_up: bool = False
    #: The seed's counter ``sleep_action_terminated_early_total`` (KEP-3960), over all shutdowns.
    sleeps_terminated_early: int = 0


def open_pods(state: EpisodeState) -> dict[str, int]:
    """Who has not ended, with the wave of each: UID to wave."""
    waves = {pod.uid: index for index, wave in enumerate(state.waves) for pod in wave.pods}
    return {**state.carried, **{uid: waves[uid] for uid in state.roll.missing()}}


# --- the plan ----------------------------------------------------------------------------------


def list_pods(state: EpisodeState, *, refresh: bool) -> tuple[EpisodeState, TakeInventory]:
    key = order_key(NAME, "inventory", "", state.ordinal)
    state = replace(state, ordinal=state.ordinal + 1, listing=(), listing_key=key)
    return state, TakeInventory(key=key, refresh=refresh)


def inventory(state: EpisodeState, event: InventoryTaken, now: int) -> Result:
    """A listing that was asked for earlier, perhaps by a cancelled shutdown, is not this one's."""
    if event.key != state.listing_key:
        return state, ()
    state = replace(state, listing=state.listing + event.pods)
    if event.part < event.parts:
        return state, ()
    if state.phase == "listing":
        return _plan(state, now)
    if state.phase in STOPPING:
        return _late_pods(state, now)
    return _too_late(state) if state.phase in ("flushing", "released") else (state, ())


def _plan(state: EpisodeState, now: int) -> Result:
    pods = {pod.uid: pod for pod in state.listing}
    state = replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid not in pods})
    waves = planned_waves(state.periods, state.grant_ns, tuple(pods.values()))
    state = replace(state, phase="waves", pods=pods, roll=Roll.of(pods), waves=waves, wave=-1, carried_ns=0)
    state = replace(state, plans=state.plans + 1)
    decisions: list[Event] = [PlanMade(waves=waves, pods=len(pods))]
    for index, wave in enumerate(waves):
        decisions.extend(_planned(state, index, seat) for seat in wave.pods)
    state, refresh = list_pods(state, refresh=True)
    return next_wave(state, now, [*decisions, refresh])


def _planned(state: EpisodeState, wave: int, seat: PlannedPod, *, late: bool = False) -> PodPlanned:
    return PodPlanned(
        wave=wave,
        grace_seconds=seat.grace_seconds,
        pod=state.pods[seat.uid],
        sleep_action=state.sleep_action,
        late=late,
        first_ordinal=(state.plans - 1) * ORDINALS_PER_PLAN,
    )


def _late_pods(state: EpisodeState, now: int) -> Result:
    """Pods that the signal's inventory did not have join their wave, or the running one if theirs is over.

    While stragglers are waited for, a wave that was skipped because it was empty begins after all.
    """
    decisions: list[Event] = []
    earliest = _earliest_wave(state)
    for pod in _unplanned(state):
        index = max(earliest, _wave_of(state, pod))
        wave = state.waves[index]
        seat = PlannedPod(uid=pod.uid, grace_seconds=pod_grace_seconds(wave.period_seconds, pod))
        joined = replace(wave, pods=(*wave.pods, seat))
        waves = (*state.waves[:index], joined, *state.waves[index + 1 :])
        pods, roll = {**state.pods, pod.uid: pod}, state.roll.join(pod.uid)
        state = replace(state, pods=pods, roll=roll, waves=waves)
        decisions.append(_planned(state, index, seat, late=True))
    if earliest > state.wave:
        return next_wave(replace(state, phase="waves", carried_ns=0), now, decisions)
    return state, decisions


def _earliest_wave(state: EpisodeState) -> int:
    """The wave that runs; after the last one the first of those that begin after all."""
    skipped = [wave for pod in _unplanned(state) if (wave := _wave_of(state, pod)) > state.wave]
    return min(skipped, default=state.wave) if state.phase == "draining" else state.wave


def _unplanned(state: EpisodeState) -> list[Pod]:
    return [pod for pod in state.listing if pod.uid not in state.pods]


def _wave_of(state: EpisodeState, pod: Pod) -> int:
    return max(state.wave, group_of(state.periods, priority_of(pod)))


def _too_late(state: EpisodeState) -> Result:
    """Nothing is stopped any more, but no pod of the inventory goes without a word."""
    return state, [
        PodEnded(uid=pod.uid, wave=_wave_of(state, pod), outcome="unknown", reason=TOO_LATE)
        for pod in _unplanned(state)
    ]


def listing_ended(state: EpisodeState, event: OrderEnded, now: int) -> Result:
    """Without an inventory nothing can be stopped: a lost listing is repeated, a failed one once, by call."""
    if event.result == "done" or event.key != state.listing_key or state.phase not in ("listing", *STOPPING):
        return state, ()
    if event.result == "unknown":
        state, order = list_pods(state, refresh=state.phase in STOPPING)
        return state, [order]
    if state.phase in STOPPING:
        return state, ()
    if state.listing_failed:
        return _plan(state, now)
    state, order = list_pods(replace(state, listing_failed=True), refresh=True)
    return state, [order]


# --- the waves ---------------------------------------------------------------------------------


def next_wave(state: EpisodeState, now: int, decisions: list[Event]) -> Result:
    """Waves without anybody to wait for cost nothing: no event, no time."""
    for index in range(state.wave + 1, len(state.waves)):
        wave = state.waves[index]
        if any(state.roll.is_open(pod.uid) for pod in wave.pods):
            state = replace(state, wave=index)
            return state, [*decisions, _wave_started(state, now)]
        state = replace(state, carried_ns=state.carried_ns + wave.period_seconds * NS_PER_SECOND)
    return drain(replace(state, phase="draining"), decisions)


def _wave_started(state: EpisodeState, now: int) -> WaveStarted:
    planned = state.waves[state.wave]
    period_ns = planned.period_seconds * NS_PER_SECOND + (state.carried_ns if state.elastic else 0)
    pods = tuple(pod for pod in planned.pods if state.roll.is_open(pod.uid))
    seconds = period_ns // NS_PER_SECOND
    if seconds > planned.period_seconds:
        pods = tuple(
            PlannedPod(uid=pod.uid, grace_seconds=pod_grace_seconds(seconds, state.pods[pod.uid]))
            for pod in pods
        )
    return WaveStarted(
        wave=state.wave,
        priority=planned.priority,
        period_ns=period_ns,
        deadline_ns=max(now, min(now + period_ns, _last_deadline_ns(state))),
        kill_by_ns=state.kill_by_ns,
        pods=pods,
    )


def _last_deadline_ns(state: EpisodeState) -> int:
    """Pods of a later wave, also of one with 0 s, still get their stop signal and the floor after it."""
    later = (pod.uid for wave in state.waves[state.wave + 1 :] for pod in wave.pods)
    if any(state.roll.is_open(uid) for uid in later):
        return min(state.deadline_ns, state.kill_by_ns - FLOOR_NS)
    return state.deadline_ns


def drain(state: EpisodeState, decisions: list[Event]) -> Result:
    """After the last wave only stragglers are left."""
    if state.roll.open_pods:
        return state, decisions
    return replace(state, phase="flushing"), [*decisions, PodsEnded()]
