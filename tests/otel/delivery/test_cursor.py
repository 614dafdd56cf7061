"""The delivery cursor: when it is valid, and what retention reads."""

from __future__ import annotations

from pathlib import Path

import pytest

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

UNUSABLE = [
    b"", b"{", b"[]", b'{"format": 2, "journal": "x"}', b"\xff" * 300_000,
    b'{"journal":"ab\xff\xfe","seq":3}', b'{"journal":"x","seq":1e999}', b'{"journal":"\xed\xa0\x80"}',
]  # fmt: skip


@pytest.mark.parametrize("content", UNUSABLE)
def test_a_cursor_that_cannot_be_used_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """An invalid cursor repeats everything and loses no record."""
    (tmp_path / cursors.FILE_NAME).write_bytes(content)
    assert cursors.load(tmp_path) is None
    assert cursors.keep_from([tmp_path], bytes(16), 10**9) == 1


def test_the_cursor_says_what_retention_must_keep(tmp_path: Path) -> None:
    """The most advanced location counts; a foreign journal's cursor keeps everything."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    journal = bytes(range(16))
    cursors.save(tmp_path / "a", Cursor(journal=journal.hex(), seq=5, from_seq=3, wall_ns=1))
    cursors.save(tmp_path / "b", Cursor(journal=journal.hex(), seq=9, from_seq=8, wall_ns=2))
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]
    assert cursors.keep_from(places, journal, 9) == 8
    assert cursors.keep_from(places, bytes(16), 9) == 1


# --- old segments stay while their spans are not delivered -------------------------------------

SMALL = Limits(total_bytes=1)


class Writer:
    away, synced_seq, journal_id = False, 10**6, JOURNAL_ID


async def test_an_undelivered_segment_stays_up_to_the_hard_cap(tmp_path: Path) -> None:
    """The cursor decides; without one keep everything; above the cap no segment is needed."""
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
