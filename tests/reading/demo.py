"""The demo's journal as a golden file: its facts as they happened, on a node without a name.

    ebbtide demo --journal /tmp/demo
    python -m tests.reading.demo /tmp/demo tests/golden/demo-v1    # only for a new format version

The names of the machine that it ran on are replaced in the facts, and the system decides again: so the
journal verifies, and tells of a real shutdown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.logic.snapshot import take
from actors.logic.system import EDGE, System
from events.base import Event
from events.chain import Chain, Start
from events.codec import decode_event
from events.facts import DaemonStarted, SettingsLoaded
from events.frames import RawRecord
from events.history import History
from events.record import Record, Stamp
from events.segment import Identity, Link, file_name
from events.storage import DirectorySource

JOURNAL_ID = bytes.fromhex("de300000000000000000000000000001")


def nameless(fact: Event) -> Event:
    """Without the machine's name and ids, and without the folder that the demo made for itself."""
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


def rewrite(history: History) -> bytes:
    """One segment: a checkpoint of nothing, and the steps."""
    system, first = System(), next(history.raw())
    stamp = Stamp(first.mono_ns, first.wall_ns)
    identity = Identity("node-1", "machine-1", "boot-1", "0.1.0", system.flags)
    chain = Chain(identity, Start(JOURNAL_ID, Link(), 1))
    items = chain.begin_segment(stamp)
    mark = Record(
        seq=system.next_seq,
        mono_ns=stamp.mono_ns,
        wall_ns=stamp.wall_ns,
        episode=0,
        cause=0,
        actor="journal",
        last=True,
        event=take(system),
    )
    system.next_seq += 1
    items.append(chain.append(mark, 0))
    for raw, fact in facts(history):
        items += [chain.append(record, 0) for record in system.step(fact, Stamp(raw.mono_ns, raw.wall_ns))]
    return b"".join(item.data for item in items)


if __name__ == "__main__":
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name(1, JOURNAL_ID)).write_bytes(rewrite(History([DirectorySource(source)])))
