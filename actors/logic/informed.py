"""What the EpisodeActor is told and keeps in mind; nothing follows from it at once."""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import Handler, Result
from actors.logic.course import EpisodeState
from events.base import Event
from events.decisions import ConfigAdopted, HandedOver, HookEnded, MeansChosen


def _hook_ended(state: EpisodeState, event: HookEnded, now: int) -> Result:
    return replace(state, sleeps_terminated_early=state.sleeps_terminated_early + event.early), ()


def _config(state: EpisodeState, event: ConfigAdopted, now: int) -> Result:
    return replace(
        state,
        periods=event.periods,
        requested_ns=event.requested_ns,
        reserve_ns=event.reserve_ns,
        elastic=event.budget == "elastic",
        sleep_action=event.sleep_action,
    ), ()


def _means(state: EpisodeState, event: MeansChosen, now: int) -> Result:
    return replace(state, means=event.means, handed_over=False, taints=event.taints), ()


def _handed_over(state: EpisodeState, event: HandedOver, now: int) -> Result:
    return replace(state, handed_over=True), ()


INFORMED: dict[type[Event], Handler] = {
    ConfigAdopted: _config,
    HookEnded: _hook_ended,
    MeansChosen: _means,
    HandedOver: _handed_over,
}
