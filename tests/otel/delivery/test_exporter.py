"""The exporter in one process with its back end: what is sent, kept, put on record, and when it goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from benchmarks.episodes import lay_out
from ebbtide.events.catalog import DirectorySource
from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery import exporter as exporters
from ebbtide.otel.delivery import exporter as ledger
from ebbtide.otel.delivery.cursor import Cursor
from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.exporter import Exporter, Tail
from ebbtide.otel.delivery.exporters import sender_for
from ebbtide.otel.delivery.sender import Backoff
from ebbtide.otel.sdk import readable_spans
from tests.backends.compare import shutdowns
from tests.otel.delivery.collector import OK, Collector, Got, Reply, collecting
from tests.otel.records import WALL_NS

PODS, SHUTDOWNS = 6, 3
TEXT = (("content-type", "text/plain"),)


class Bed:
    """A journal of some shutdowns, its exporter, and what that said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lay_out(folder, PODS, SHUTDOWNS)
        self.said: list[str] = []
        self.wells: list[bool] = []
        self.spans = [span for shutdown in shutdowns(folder) for span in shutdown.spans]

    def log(self, level: int, text: str) -> None:
        self.said.append(text)

    def well(self, reason: str) -> None:
        self.wells.append(not reason)

    def exporter(self, collector: Collector) -> Exporter:
        sender = sender_for(Destination(endpoint=f"{collector.endpoint}/v1/traces"))
        keep = partial(cursors.save, str(self.folder))
        return Exporter(Tail([DirectorySource(self.folder)]), sender, readable_spans, self, keep)

    async def run(self, collector: Collector) -> str:
        return await self.exporter(collector).run(self.cursor)

    @property
    def cursor(self) -> Cursor | None:
        return cursors.load(self.folder)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(exporters, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(exporters, "LOOK_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(Backoff, "next_ns", lambda self, after_ns=None: after_ns or 1_000_000)
    return Bed(tmp_path)


async def export(bed: Bed, answer: Callable[[Got], Reply] = lambda got: OK) -> tuple[Collector, str]:
    collector = Collector(answer)
    async with collecting(collector):
        reason = await bed.run(collector)
    return collector, reason


async def test_everything_is_sent_once_and_it_goes(bed: Bed) -> None:
    """A second start finds nothing to do."""
    collector, reason = await export(bed)
    assert (len(collector.spans), reason) == (len(bed.spans), "")
    assert bed.cursor is not None
    assert bed.cursor.seq >= max(span.seq for span in bed.spans)
    again, _ = await export(bed)
    assert again.got == []


async def test_a_refusal_is_not_held_on_to_for_ever(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a week what is refused there is put on record, so that the rest gets its turn; not before."""
    first_id, now_ns = bed.spans[0].span_id, [WALL_NS]
    monkeypatch.setattr(ledger, "wall_ns", lambda: now_ns[0])

    def answer(got: Got) -> Reply:
        return Reply(500, b"panic", TEXT) if any(span.span_id == first_id for span in got.spans) else OK

    for _ in range(2 * ledger.REFUSALS_MAX):
        collector, reason = await export(bed, answer)
        assert (len(collector.spans), reason) == (0, "HTTP 500: panic")
    assert bed.cursor is not None
    assert [each.reason for each in bed.cursor.rejections] == []
    now_ns[0] += ledger.REFUSED_DAYS_MAX * ledger.NS_PER_DAY
    await export(bed, answer)
    collector, reason = await export(bed, answer)
    assert reason == ""
    assert len(collector.spans) + sum(each.spans for each in bed.cursor.rejections) == len(bed.spans)
    assert bed.cursor.refused_wall_ns == 0


async def test_it_dies_anywhere_and_begins_again(bed: Bed) -> None:
    """Killed after each request: the back end has everything once, with the same bytes each time."""
    scope = trio.CancelScope()

    def answer(got: Got) -> Reply:
        scope.cancel()
        return OK

    collector = Collector(answer)
    async with collecting(collector):
        for _ in range(12):
            with trio.CancelScope() as scope:
                await bed.run(collector)
        collector.answer = lambda got: OK
        await bed.run(collector)
    assert len(collector.spans) == len(bed.spans)
    assert collector.changed == []


async def test_a_flush_waits_for_what_has_ended_and_not_for_a_silent_server(bed: Bed) -> None:
    """Answered when all has arrived, or at once with the reason, once the back end is known not to be
    well.
    """
    collector = Collector()
    async with collecting(collector), trio.open_nursery() as nursery:
        exporter = bed.exporter(collector)
        nursery.start_soon(exporter.run, None)
        await trio.lowlevel.checkpoint()
        assert await exporter.flush(bed.spans[-1].seq) == ""
        assert len(collector.spans) == len(bed.spans)
        nursery.cancel_scope.cancel()
    cursors.save(bed.folder, Cursor(journal="ff" * 16))
    busy = Collector(lambda got: Reply(503, b"busy", TEXT, keeps=False))
    async with collecting(busy), trio.open_nursery() as nursery:
        exporter = bed.exporter(busy)
        nursery.start_soon(exporter.run, None)
        await busy.until(lambda: len(busy.got) > 1)
        assert await exporter.flush(bed.spans[-1].seq) == "HTTP 503: busy"
        nursery.cancel_scope.cancel()
