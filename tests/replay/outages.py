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
from tests.journals import write_files
from tests.replay.shutdown import Book
from tests.scripts.bench import Bench
from tests.scripts.parse import parse
from tests.scripts.verbs import run

#: By name, without the scripts of failing actors.
SCRIPTS = {
    path.stem: path
    for path in sorted((Path(__file__).parents[1] / "scripts").glob("outage-*.txt"))
    if not path.stem.startswith("outage-failures")
}

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
    bench = Bench(OUTAGE_LOGIC)
    for block in parse(SCRIPTS[name].read_text()):
        for command in block.commands:
            run(bench, command)
    return book(bench.records, rotate=rotate)


def world(seed: int) -> Book:
    return book(World(seed).run().store.records)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), script(STORY).files)
