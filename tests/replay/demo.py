"""The demo's journal as a golden file: its real facts, on a nameless node.

    ebbtide demo --journal /tmp/demo
    python -m tests.replay.demo /tmp/demo tests/golden/demo-v1    # only for a new format version

The machine's names are replaced in the facts and the system decides again, so the journal verifies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ebbtide.actors.system import EDGE, System, take_checkpoint
from ebbtide.events.base import Event, Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.facts import DaemonStarted, SettingsLoaded
from ebbtide.events.reader import History
from ebbtide.events.segment import Identity
from tests.journals import checkpoint, segment, write_files

JOURNAL_ID = bytes.fromhex("de300000000000000000000000000001")


def nameless(fact: Event) -> Event:
    """Replace the machine's name and IDs, and the demo's folder."""
    if isinstance(fact, DaemonStarted):
        return msgspec.structs.replace(fact, node="node-1", boot_id="boot-1", userspace_id="boot-1")
    if isinstance(fact, SettingsLoaded):
        sources = {field: source.rpartition("/")[2] for field, source in fact.sources.items()}
        return msgspec.structs.replace(fact, sources=sources)
    return fact


def facts(history: History) -> Iterator[tuple[RawRecord, Event]]:
    for raw in history.raw():
        if raw.actor == EDGE and not raw.cause:
            yield raw, nameless(decode_event(raw.tag, raw.payload))


def rewrite(history: History) -> dict[str, bytes]:
    """One segment: an empty checkpoint, and the steps."""
    system, first = System(), next(history.raw())
    stamp = Stamp(first.mono_ns, first.wall_ns)
    identity = Identity("node-1", "machine-1", "boot-1", "0.1.0", system.logic)
    mark = checkpoint(system.next_seq, stamp, take_checkpoint(system))
    system.next_seq += 1
    records = [mark]
    for raw, fact in facts(history):
        records += system.step(fact, Stamp(raw.mono_ns, raw.wall_ns))
    return segment(records, identity=identity, durable=False, journal_id=JOURNAL_ID)


if __name__ == "__main__":
    write_files(Path(sys.argv[2]), rewrite(History([DirectorySource(sys.argv[1])])))
