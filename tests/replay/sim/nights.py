"""Drawn nights: for the first line of bad nights, and for what-if against the truth."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ebbtide.events.values import Hook, Pod, Settings
from ebbtide.replay.sim.scenario import DEFAULT_SETTINGS, Draws, NodeMode, pods_of_node, synthetic_pods
from ebbtide.replay.sim.simulate import Machine
from ebbtide.replay.whatif.whatif_run import Outline, outline


def periods(*seconds: int) -> Settings:
    """Of the default waves."""
    waves = zip(DEFAULT_SETTINGS.by_pod_priority, seconds, strict=True)
    return replace(DEFAULT_SETTINGS, by_pod_priority=tuple(replace(each, seconds=of) for each, of in waves))


def hooked(pod: Pod, hook: Hook | None) -> Pod:
    """The same hook, or none, for each of its containers; a sidecar has none."""
    made = (replace(each, hook=None if each.sidecar else hook) for each in pod.containers)
    return replace(pod, containers=tuple(made))


def drawn_pods(count: int, mode: NodeMode, draws: Draws, changed: Callable[[Pod], Pod]) -> tuple[Pod, ...]:
    """``changed``: before the fields are drawn that only a node's pods have."""
    pods = tuple(map(changed, synthetic_pods(count, draws.fork("pods"))))
    return pods_of_node(pods, draws.fork("of node")) if mode else pods


def first_shutdown(machine: Machine) -> Outline | None:
    """None: none began in its first boot."""
    records = machine.boots[0].records
    first = next((each.seq for each in records if each.episode == each.seq), None)
    mine = [(each.mono_ns, each.event) for each in records if first and each.episode == first]
    return outline(mine, mine[0][0]) if mine else None
