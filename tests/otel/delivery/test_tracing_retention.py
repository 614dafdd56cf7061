"""Old segments stay while their spans are not delivered, and go once they are."""

from __future__ import annotations

from pathlib import Path

from ebbtide.daemon import _trim_journal
from ebbtide.events.base import Checkpoint
from ebbtide.events.disk import DirectoryStorage
from ebbtide.events.retention import Limits
from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery.cursor import Cursor
from ebbtide.otel.delivery.destination import Destination
from ebbtide.tracing import TracingEdge
from tests.events.making import running, stamp, write_steps
from tests.journals import JOURNAL_ID

SMALL = Limits(total_bytes=1)


class Writer:
    away, synced_seq, journal_id = False, 10**6, JOURNAL_ID


async def test_an_undelivered_segment_stays_up_to_the_hard_cap(tmp_path: Path) -> None:
    """The cursor decides; without one everything is needed, and above the cap nothing is."""
    storage = DirectoryStorage(tmp_path)
    edge = TracingEdge(Destination(endpoint="http://localhost:1/"), [str(tmp_path)], Writer(), print)
    begins = []
    async with running([storage]) as writer:
        for _ in range(3):
            await write_steps(writer, 2, synced=True)
            writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
            begins.append(writer.last_seq)
        await writer.wait_synced(writer.last_seq)
        assert await _trim_journal([storage], SMALL, edge, None) == []
        cursors.save(tmp_path, Cursor(journal=JOURNAL_ID.hex(), seq=begins[0], from_seq=begins[0] + 1))
        assert len(await _trim_journal([storage], SMALL, edge, None)) == 1
        assert await _trim_journal([storage], SMALL, edge, 1) == []
        assert len(await _trim_journal([storage], SMALL._replace(hard_bytes=1), edge, None)) == 2
    assert edge._wanted.is_set()


async def test_without_export_nothing_is_kept_for_it(tmp_path: Path) -> None:
    """A cursor that was left behind binds nobody."""
    storage = DirectoryStorage(tmp_path)
    cursors.save(tmp_path, Cursor(journal=JOURNAL_ID.hex()))
    async with running([storage]) as writer:
        await write_steps(writer, 2, synced=True)
        writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
        await writer.wait_synced(writer.last_seq)
        assert len(await _trim_journal([storage], SMALL, None, None)) == 1
