"""A small journal of a thousand events to damage, and a reading that costs only the damaged file.

A million full readings would take an hour. The reader's result for an intact file is cached by the file's
bytes; the damaged file, the order and the verdict are the reader's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from benchmarks.episodes import Theatre
from ebbtide.actors.system import take_checkpoint
from ebbtide.events import catalog
from ebbtide.events import reader as history
from ebbtide.events.base import Record, Stamp
from ebbtide.events.catalog import Segment, _look
from ebbtide.events.codec import FLAG_LAST, RawRecord
from ebbtide.events.reader import History, Scan, ScannedPiece
from ebbtide.events.recovery import State
from ebbtide.events.segment import SHUTDOWN_LOGIC, Identity, Link
from ebbtide.events.values import Container, Pod
from tests.journals import Journal, Memory, checkpoint

EVENTS_MIN = 1000
SEGMENTS = 20


class Read(NamedTuple):
    """A reader's result: the records, the last hash, and the verdict."""

    first: int
    last: int
    head: bytes
    state: State


def _pods() -> tuple[Pod, ...]:
    """With the shortest names: a test flips each bit of the journal."""
    return tuple(
        Pod(uid=name, namespace="n", name=name, containers=(Container(name="c"),)) for name in "abcdefgh"
    )


def _records() -> list[Record]:
    """A daemon's start, then whole shutdowns, mostly decisions."""
    theatre = Theatre(0)
    theatre.pods = _pods()
    first, theatre.system.next_seq = take_checkpoint(theatre.system), 2
    theatre.records.append(checkpoint(1, Stamp(1, 1), first))
    theatre.begin()
    while len(theatre.records) < EVENTS_MIN:
        theatre.shut_down()
    return theatre.records


def files() -> dict[str, bytes]:
    """Sealed segments and an open last one; each frame marks all before it durable."""
    journal, begin_at = Journal(Identity("n", "m", "b", "0", SHUTDOWN_LOGIC)), 1
    for record in _records():
        if record.seq >= begin_at and not record.cause and len(journal.files) < SEGMENTS:
            begin_at = record.seq + EVENTS_MIN // SEGMENTS
            journal.begin(Stamp(0, 0))
        journal.durable_seq = max(0, record.seq - 1)
        journal.add(record)
    return {name: bytes(data) for name, data in journal.files.items()}


def read(data: Mapping[str, bytes]) -> Read:
    found, first, last, head = History([Memory(data)]), 1, 0, b""
    for batch in found.batches():
        first = first if last else batch.records[0].seq
        assert batch.records[0].seq == (last or first - 1) + 1
        last, head = batch.records[-1].seq, batch.records[-1].hash
    return Read(first, last, head, found.verdict.state)


def intact() -> list[RawRecord]:
    return list(History([Memory(files())]).raw())


def ends(records: list[RawRecord]) -> dict[int, bytes]:
    """Valid record counts at step ends, with the last hash."""
    return {0: b""} | {raw.seq: raw.hash for raw in records if raw.flags & FLAG_LAST}


class Known:
    """A cached scan: the same bytes up to the same link give the same result."""

    def __init__(self, segment: Segment, limit: Link | None) -> None:
        made = Scan(segment, limit)
        self._pieces = list(made.pieces())
        self.header, self.end, self.damage = made.header, made.end, made.damage
        self.durable_seq, self.sealed = made.durable_seq, made.sealed

    def pieces(self) -> Iterator[ScannedPiece]:
        return iter(self._pieces)


class Memo:
    """The reader's results by file bytes; damaged files are not kept."""

    def __init__(self) -> None:
        self._segments: dict[tuple[str, bytes], Segment] = {}
        self._scans: dict[tuple[bytes, Link | None], Known] = {}
        self._whole = set(files().values())

    def look(self, source: Memory, name: str, *rest: Any) -> Segment:
        data = source.data[name]
        if data not in self._whole:
            return _look(source, name, *rest)
        if (name, data) not in self._segments:
            self._segments[(name, data)] = _look(source, name, *rest)
        return self._segments[(name, data)]

    def scan(self, segment: Segment, limit: Link | None) -> Scan | Known:
        data = segment.source.data[segment.name]  # type: ignore[attr-defined]  # it is a Memory
        if data not in self._whole:
            return Scan(segment, limit)
        if (data, limit) not in self._scans:
            self._scans[(data, limit)] = Known(segment, limit)
        return self._scans[(data, limit)]


@contextmanager
def remembering(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files that are whole are looked at once."""
    memo = Memo()
    with patch.context() as inside:
        inside.setattr(history, "Scan", memo.scan)
        inside.setattr(catalog, "_look", memo.look)
        yield
