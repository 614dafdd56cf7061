"""The kubelet's unit, if it was a shutdown of ours that stopped it, and nobody has started it since.

A daemon does that itself at the end of a shutdown after which the machine stays up. One that somebody has
stopped for reasons of their own is left alone, so the journal is asked who it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.edges.boot import boot_id
from actors.edges.bus import system_bus_address
from actors.edges.kubelet.unit import Unit
from ebbtide.uninstall.steps import Step
from events.base import Event
from events.decisions import StartKubelet, StopKubelet
from events.facts import DaemonStarted
from events.history import History
from events.source import DirectorySource

WHAT = "kubelet"


async def start(unit: str, journals: Sequence[Path], dry_run: bool) -> Step:
    """Bounded as the daemon's own start of it."""
    kubelet = Unit(system_bus_address(), unit)
    sources = [DirectorySource(path) for path in journals if path.is_dir()]
    events = (record.event for record in History(sources).records())
    if not stopped_by_us(events, boot_id()) or await kubelet.active() is not False:
        return Step(WHAT, unit, "nothing", "no shutdown of ours keeps it stopped")
    if dry_run:
        return Step(WHAT, unit, "would", "start it: a shutdown of ours had stopped it")
    ended = await kubelet.start()
    if ended.result == "done":
        return Step(WHAT, unit, "done", "started: a shutdown of ours had stopped it")
    return Step(WHAT, unit, "failed", f"{ended.reason}: systemctl start {unit}")


def stopped_by_us(events: Iterable[Event], boot: str) -> bool:
    """In this boot, and not started by us since."""
    here, stopped = False, False
    for event in events:
        if isinstance(event, DaemonStarted):
            here = event.boot_id == boot
        elif isinstance(event, (StopKubelet, StartKubelet)):
            stopped = here and isinstance(event, StopKubelet)
    return here and stopped
