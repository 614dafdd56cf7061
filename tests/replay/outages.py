"""Journals of outages, from scripts (`tests/scripts/outage-*.txt`) and worlds.

    python -m tests.replay.outages tests/golden/outage-v1

writes the golden one from `STORY`: run it after each change of an outage's decisions, until a release has
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ebbtide.events.base import Fact, Record
from ebbtide.events.outage_events import LeaderStarted
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.replay.sim.sim_outage import World
from tests.journals import IDENTITY, segment, write_files
from tests.replay.shutdown import Book
from tests.scripts.verbs import benches

_ALL = {path.stem: path for path in sorted((Path(__file__).parents[1] / "scripts").glob("outage-*.txt"))}

#: By name. In some scripts actors fail: their journals can be read, and do not replay.
FAILURES = {name: path for name, path in _ALL.items() if name.startswith("outage-failures")}
SCRIPTS = {name: path for name, path in _ALL.items() if name not in FAILURES}

#: The golden journal's script.
STORY = "outage-story"
GOLDEN = Path(__file__).parents[1] / "golden" / "outage-v1"


def book(records: Iterable[Record], *, rotate: bool = False) -> Book:
    """A journal of these records' facts: one segment per leader, or per fact."""
    made = Book(OUTAGE_LOGIC, stored=True)
    for record in records:
        if isinstance(record.event, LeaderStarted) or (rotate and isinstance(record.event, Fact)):
            made.now_ns = record.mono_ns
            made.process("boot-of-the-leader", iter(()))
        if isinstance(record.event, Fact):
            made.at(record.mono_ns, record.event)
    return made


def script(name: str, *, rotate: bool = False) -> Book:
    (bench,) = benches(SCRIPTS[name].read_text(), OUTAGE_LOGIC)
    return book(bench.records, rotate=rotate)


def failing(name: str) -> dict[str, bytes]:
    (bench,) = benches(FAILURES[name].read_text(), OUTAGE_LOGIC)
    return segment(bench.records, identity=IDENTITY._replace(logic=OUTAGE_LOGIC))


def world(seed: int) -> Book:
    return book(World(seed).run().store.records)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), script(STORY).files)
