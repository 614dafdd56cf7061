"""Journals of outages: what scripts tell (`tests/scripts/outage-*.txt`), and what happens in worlds.

    python -m tests.replay.outages tests/golden/outage-v1

writes the golden one anew, what `STORY` tells: to be done with every change of what an outage decides, until
a release has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ebbtide.events.base import Fact, Record
from ebbtide.events.outage_events import LeaderStarted
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.replay.sim.sim_outage import World
from tests.journals import write_files
from tests.replay.shutdown import Book
from tests.scripts.bench import Bench
from tests.scripts.parse import parse
from tests.scripts.verbs import run

#: By name; without those in which actors are made to fail: no journal has such a bug.
SCRIPTS = {
    path.stem: path
    for path in sorted((Path(__file__).parents[1] / "scripts").glob("outage-*.txt"))
    if not path.stem.startswith("outage-failures")
}

#: Of which the golden journal is made.
STORY = "outage-story"
GOLDEN = Path(__file__).parents[1] / "golden" / "outage-v1"


def book(records: Iterable[Record], *, rotate: bool = False) -> Book:
    """These records' facts, written down: each leader in a segment of its own, or each fact."""
    made = Book(OUTAGE_LOGIC, stored=True)
    for record in records:
        if isinstance(record.event, LeaderStarted) or (rotate and isinstance(record.event, Fact)):
            made.now_ns = record.mono_ns
            made.process("boot-of-the-leader", iter(()))
        if isinstance(record.event, Fact):
            made.at(record.mono_ns, record.event)
    return made


def script(name: str, *, rotate: bool = False) -> Book:
    bench = Bench(OUTAGE_LOGIC)
    for block in parse(SCRIPTS[name].read_text()):
        for command in block.commands:
            run(bench, command)
    return book(bench.records, rotate=rotate)


def world(seed: int) -> Book:
    return book(World(seed).run().store.records)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), script(STORY).files)
