"""Whether what the daemon shows is what its actors know: asked after every step of every world."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from actors.logic.config import CONFIG, ConfigState
from actors.logic.course import EpisodeState
from actors.logic.episode import EPISODE
from actors.logic.system import System
from ebbtide.agree import phase_of
from ebbtide.standing import Standing


def untrue(standing: Standing, system: System, seq: int) -> Iterator[str]:
    """One sentence for each thing that differs behind record ``seq``. A failed actor knows nothing."""
    episode, config = system.slots[(EPISODE.name, "")], system.slots[(CONFIG.name, "")]
    if not episode.failed:
        if standing.phase != phase_of(system):
            yield f"at {seq} it shows {standing.phase}, and is {phase_of(system)}"
        state = cast(EpisodeState, episode.state)
        unknown = [pod.uid for wave in state.waves for pod in wave.pods if pod.uid not in standing.pods]
        if unknown:
            yield f"at {seq} it does not know {', '.join(unknown)}"
    needed_ns = cast(ConfigState, config.state).needed_ns
    if not config.failed and standing.needed_ns != needed_ns:
        yield f"at {seq} it shows a need of {standing.needed_ns} ns, and needs {needed_ns}"
