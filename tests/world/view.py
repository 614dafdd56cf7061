"""A world for the invariants: its boots in `replay.sim.invariants`'s form."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.events.base import Record
from ebbtide.replay.sim.invariants import Boot, BootView
from tests.world.daemon import Life
from tests.world.world import World


def views(world: World) -> list[BootView]:
    """Every boot of a world that is over."""
    return [BootView(_boot(world, index)) for index in range(len(world.boots))]


def _boot(world: World, index: int) -> Boot:
    booted = world.boots[index]
    node = booted.node
    return Boot(
        number=index + 1,
        seen=[seen for seen in world.log.seen if seen.boot == index + 1],
        records=list(_remembered(booted.lives)),
        journal=booted.records,
        boxes=list(node.pods.boxes.values()),
        offset_ns=node.clock.world_ns(0),
        settings=(world.scenario.settings, world.scenario.other_settings, world.settings),
        preparing=node.logind.preparing,
        shown_ready=node.api.shown_ready,
        api_answers=node.faults.api == "works" and node.api.reachable,
        hidden={box.uid: None for box in node.pods.boxes.values() if node.runtime.hides(box)},
    )


def _remembered(lives: list[Life]) -> Iterator[Record]:
    """Each daemon's decisions, as far as the next one knew them; the last one's all.

    Not from the journal: retention and the boot's end may have removed parts.
    """
    readers = [life for life in lives if life.goes_on_after is not None]
    for at, life in enumerate(readers):
        known = readers[at + 1].goes_on_after if at + 1 < len(readers) else None
        yield from (record for record in life.records if not known or record.seq <= known)
