"""Small journals for tests: consistent records, and a writer over any disks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from ebbtide.events.base import Checkpoint, Event, Record, Stamp
from ebbtide.events.catalog import Source
from ebbtide.events.decisions import Disarmed, WriteDropIn
from ebbtide.events.disk import Storage
from ebbtide.events.facts import BusLost, Tick
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import WriterStart
from ebbtide.events.writer import Writer
from tests import journals
from tests.journals import NEW

OTHER_ID = bytes(range(16, 32))
IDENTITY = journals.IDENTITY._replace(code_version="0.1", logic="")
WALL_NS = 1_700_000_000_000_000_000


def stamp(seq: int) -> Stamp:
    return Stamp(1_000_000 * seq, WALL_NS + 1_000_000 * seq)


def step(first_seq: int, *, synced: bool = False, whole: bool = True) -> list[Record]:
    """A fact and its consequences: three records."""
    events: list[Event] = [BusLost(error=f"lost {first_seq}"), Disarmed(reason="bus"), Tick()]
    if synced:
        events[1] = WriteDropIn(key=f"Config/WriteDropIn//{first_seq}", seconds=30)
    return journals.step(
        *events, first_seq=first_seq, at=stamp(first_seq), decider="LogindActor", whole=whole
    )


class Told:
    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []
        self.moved: list[tuple[str, int]] = []
        self.lost: list[str] = []
        self.lines: list[str] = []


def make_writer(
    storages: Sequence[Storage],
    start: WriterStart = NEW,
    told: Told | None = None,
) -> Writer:
    told = told or Told()
    return Writer(
        storages,
        IDENTITY,
        start,
        program="ebbtide",
        on_failed=lambda *what: told.failed.append(what),
        on_moved=lambda *what: told.moved.append(what),
        on_lost=told.lost.append,
        last_resort=told.lines.append,
    )


@asynccontextmanager
async def running(
    storages: Sequence[Storage],
    start: WriterStart = NEW,
    told: Told | None = None,
) -> AsyncIterator[Writer]:
    """An open, running writer; leaving cancels it at once, like a dying process."""
    writer = make_writer(storages, start, told)
    async with trio.open_nursery() as nursery:
        await writer.open()
        nursery.start_soon(writer.run)
        at = stamp(writer.last_seq + 1)
        writer.begin_segment(at, Checkpoint(episode=0))
        yield writer
        nursery.cancel_scope.cancel()


async def rotate(writer: Writer) -> None:
    """A new segment; returns when its checkpoint is written or the journal is lost."""
    writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
    await writer.wait_written(writer.last_seq)


async def write_steps(writer: Writer, count: int, *, synced: bool = False) -> None:
    """Append ``count`` steps, each written (or synced) before the next."""
    for _ in range(count):
        writer.append(step(writer.last_seq + 1, synced=synced))
        await (writer.wait_synced if synced else writer.wait_written)(writer.last_seq)


def read(sources: Sequence[Source]) -> tuple[list[Record], Verdict]:
    history = History(sources)
    records = list(history.records())
    return records, history.verdict


def assert_whole(sources: Sequence[Source], last_seq: int) -> None:
    """Each record up to this one is there once, and the journal is intact."""
    records, verdict = read(sources)
    assert [record.seq for record in records] == list(range(1, last_seq + 1))
    assert verdict.state == "intact"
