"""Where the records are gone, or tell another story, the actors' states have the last word on how it stands.

``hurry``, ``release`` and the stop time go by `ebbtide.standing.Standing`: after any number of restarts, also
one with the journal's older part unreadable, these must work in a shutdown that goes on.
"""

from __future__ import annotations

from typing import cast

from actors.logic.config import CONFIG, ConfigState
from actors.logic.course import EpisodeState, Phase
from actors.logic.episode import EPISODE
from actors.logic.system import System
from ebbtide.standing import PodStanding, Standing, planned

#: The phases that are not shown as "running".
PHASES: dict[Phase, str] = {"cancelling": "cancelling", "released": "released"}


def phase_of(system: System) -> str:
    """What ``status`` calls the phase, by the states."""
    state = cast(EpisodeState, system.slots[(EPISODE.name, "")].state)
    return PHASES.get(state.phase, "running") if system.episode else "idle"


def agree(standing: Standing, system: System) -> None:
    """Take over what the states say and ``standing`` does not."""
    config = cast(ConfigState, system.slots[(CONFIG.name, "")].state)
    standing.enabled, standing.needed_ns = config.enabled, config.needed_ns
    if not system.episode:
        standing.phase = "idle"
        return
    slot = system.slots[(EPISODE.name, "")]
    state = cast(EpisodeState, slot.state)
    if standing.last_episode != system.episode:
        standing.last_episode, standing.kind = system.episode, state.kind
        standing.waves, standing.pods = {}, {}
    if not slot.failed or standing.phase == "idle":
        standing.phase = phase_of(system)
    standing.deadline_ns = standing.deadline_ns or state.deadline_ns
    _plan(standing, state)


def _plan(standing: Standing, state: EpisodeState) -> None:
    for index, wave in enumerate(state.waves):
        standing.waves.setdefault(index, planned(index, wave))
        for pod in wave.pods:
            known = state.pods.get(pod.uid)
            if pod.uid not in standing.pods and known is not None:
                standing.pods[pod.uid] = PodStanding(
                    label=known.label,
                    wave=index,
                    grace_seconds=pod.grace_seconds,
                    priority=known.priority or 0,
                    phase="waiting" if state.roll.is_open(pod.uid) else "ended",
                )
