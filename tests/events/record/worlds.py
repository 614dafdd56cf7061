"""Accounts of worlds, for properties of any shutdown."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from tests.world.worlds import Name, try_out

SEEDS, PARTS = 16, 2


def told(part: int) -> Iterator[ShutdownRecord]:
    """Their shutdowns seen from a later boot. A world without a journal is a broken test."""
    for seed in range(part, SEEDS, PARTS):
        world = try_out(Name(seed)).run
        history = History([place.source for place in world.disks.places])
        assert history.path.segments, f"seed {seed} has left no journal"
        yield from shutdown_records(history, boot_id="a later boot")
