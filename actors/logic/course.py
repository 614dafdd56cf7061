"""The course of a shutdown: from the inventory to the plan, and from wave to wave.

Waves run one after another in ascending priority (KEP-2712); empty ones cost nothing. Under ``elastic`` the
time that waves left unused goes to the next one. `actors.logic.episode` says when each of this happens.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import Result, State
from actors.logic.budget import FLOOR_NS
from actors.logic.places import means_of, roads_of, waves_of
from actors.logic.roll import Roll
from actors.policy.grace import pod_grace_seconds
from actors.policy.resume import LastEpisode
from events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, Event, order_key
from events.decisions import PlanMade, PodPlanned, PodsEnded, TakeInventory, WaveStarted
from events.model import Means, Period, PlannedPod, PlannedWave, Pod, ShutdownKind

NAME = "EpisodeActor"

Phase = Literal["idle", "listing", "waves", "draining", "flushing", "released", "cancelling"]

#: Phases in which pods are stopped: one that is found now is planned.
STOPPING: tuple[Phase, ...] = ("waves", "draining")

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
    #: Who ends this shutdown's pods (`actors.logic.kubelet`).
    means: Means = ""
    handed_over: bool = False
    taints: bool = True
    #: The last priority range is one wave (`actors.logic.places`).
    together: bool = False
    #: On a node: the listing that may still bring pods to light; nothing is over before.
    refreshing: str = ""


def open_pods(state: EpisodeState) -> dict[str, int]:
    """Who has not ended, with the wave of each: UID to wave."""
    waves = {pod.uid: index for index, wave in enumerate(state.waves) for pod in wave.pods}
    return {**state.carried, **{uid: waves[uid] for uid in state.roll.missing()}}


# --- the plan ----------------------------------------------------------------------------------


def list_pods(state: EpisodeState, *, refresh: bool) -> tuple[EpisodeState, TakeInventory]:
    key = order_key(NAME, "inventory", "", state.ordinal)
    refreshing = key if refresh and state.means else ""
    state = replace(state, ordinal=state.ordinal + 1, listing=(), listing_key=key, refreshing=refreshing)
    late_until_ns = state.release_by_ns if refresh and state.means else 0
    return state, TakeInventory(key=key, refresh=refresh, late_until_ns=late_until_ns)


def plan(state: EpisodeState, now: int, *, listed: bool = True) -> Result:
    pods = {pod.uid: pod for pod in state.listing}
    state = replace(state, carried={uid: wave for uid, wave in state.carried.items() if uid not in pods})
    roads = roads_of(tuple(pods.values()), state.means, taints=state.taints)
    waves = waves_of(state.periods, state.grant_ns, tuple(pods.values()), roads)
    state = replace(state, phase="waves", pods=pods, roll=Roll.of(pods), waves=waves, wave=-1, carried_ns=0)
    state = replace(state, plans=state.plans + 1, together=roads.together)
    decisions: list[Event] = [PlanMade(waves=waves, pods=len(pods), listed=listed)]
    for index, wave in enumerate(waves):
        decisions.extend(planned(state, index, seat) for seat in wave.pods)
    state, refresh = list_pods(state, refresh=True)
    return next_wave(state, now, [*decisions, refresh])


def planned(state: EpisodeState, wave: int, seat: PlannedPod, *, late: bool = False) -> PodPlanned:
    return PodPlanned(
        wave=wave,
        grace_seconds=seat.grace_seconds,
        pod=state.pods[seat.uid],
        sleep_action=state.sleep_action,
        late=late,
        first_ordinal=(state.plans - 1) * ORDINALS_PER_PLAN,
        means=means_of(state.waves[wave], state.means, handed_over=state.handed_over),
    )


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
    if means_of(planned, state.means, handed_over=state.handed_over) == "api":
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


def drain(state: EpisodeState, decisions: list[Event]) -> Result:
    """After the last wave only stragglers are left, and, on a node, pods that nobody has seen yet."""
    if state.roll.open_pods or state.refreshing:
        return state, decisions
    return replace(state, phase="flushing"), [*decisions, PodsEnded()]
