"""Listings: what the runtime is asked for, and pods that were not there at the signal.

The plan is made of the first listing. What a later one finds, or what is reported by itself, joins the
shutdown as it stands: the running wave if its own is over, nothing any more once nobody waits for pods.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from actors.logic.actor import Result
from actors.logic.course import STOPPING, EpisodeState, drain, list_pods, next_wave, plan, planned
from actors.logic.places import Roads, wave_of
from actors.policy.grace import pod_grace_seconds
from events.base import Event
from events.decisions import PodEnded
from events.facts import InventoryTaken, OrderEnded, PodJoined
from events.model import PlannedPod, Pod

#: What is said of a pod that is found once nothing is stopped any more.
TOO_LATE = "found when the shutdown had stopped waiting for pods"


def inventory(state: EpisodeState, event: InventoryTaken, now: int) -> Result:
    """A listing that was asked for earlier, perhaps by a cancelled shutdown, is not this one's."""
    if event.key != state.listing_key:
        return state, ()
    state = replace(state, listing=state.listing + event.pods)
    if event.part < event.parts:
        return state, ()
    if state.phase == "listing":
        return plan(state, now)
    return _refreshed(*_found(state, now))


def _refreshed(state: EpisodeState, decisions: Sequence[Event]) -> Result:
    """Now everybody is known: if nobody is left to wait for, it is over."""
    if not state.refreshing:
        return state, list(decisions)
    state = replace(state, refreshing="")
    return drain(state, list(decisions)) if state.phase == "draining" else (state, list(decisions))


def joined(state: EpisodeState, event: PodJoined, now: int) -> Result:
    """One that no inventory had: it was admitted while the node goes down. A listing may be under way."""
    found, decisions = _found(replace(state, listing=(event.pod,)), now)
    return replace(found, listing=state.listing), decisions


def _found(state: EpisodeState, now: int) -> Result:
    if state.phase in STOPPING:
        return _late_pods(state, now)
    return _too_late(state) if state.phase in ("flushing", "released") else (state, ())


def listing_ended(state: EpisodeState, event: OrderEnded, now: int) -> Result:
    """Without an inventory nothing can be stopped: a lost listing is repeated, a failed one once, by call."""
    failed = event.key == state.refreshing and event.result not in ("done", "unknown")
    if failed and state.phase in STOPPING:
        return _refreshed(state, [])
    if event.result == "done" or event.key != state.listing_key or state.phase not in ("listing", *STOPPING):
        return state, ()
    if event.result == "unknown":
        state, order = list_pods(state, refresh=state.phase in STOPPING)
        return state, [order]
    if state.phase in STOPPING:
        return state, ()
    if state.listing_failed:
        return plan(state, now, listed=False)
    state, order = list_pods(replace(state, listing_failed=True), refresh=True)
    return state, [order]


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
        decisions.append(planned(state, index, seat, late=True))
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
    roads = Roads(state.means, state.taints, state.together)
    return max(state.wave, wave_of(state.periods, pod, roads))


def _too_late(state: EpisodeState) -> Result:
    """Nothing is stopped any more, but no pod of the inventory goes without a word."""
    found = _unplanned(state)
    said: list[Event] = [
        PodEnded(uid=pod.uid, wave=_wave_of(state, pod), outcome="unknown", reason=TOO_LATE) for pod in found
    ]
    if not state.means:
        return state, said
    # A node's pods are reported by themselves and listed: once is enough.
    return replace(state, pods={**state.pods, **{pod.uid: pod for pod in found}}), said
