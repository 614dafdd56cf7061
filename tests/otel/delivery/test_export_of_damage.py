"""A journal that is damaged while it is exported: what is sent is what every other reader finds there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events.base import Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.segment import Chain, segment_file_name
from tests.backends.compare import shutdowns
from tests.events.making import IDENTITY
from tests.otel.delivery.test_exporter import Bed, bed, export

__all__ = ["bed"]


def spoil(file: Path, share: float) -> None:
    """One bit, at that share of the file."""
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 1
    file.write_bytes(data)


def go_on(folder: Path) -> None:
    """A second segment behind the first one's end."""
    start = History([DirectorySource(folder)]).read().start(bytes(16))
    second = Chain(IDENTITY, start).begin_segment(Stamp(0, 0))
    name = segment_file_name(start.number, start.journal_id)
    (folder / name).write_bytes(b"".join(item.data for item in second))


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
async def test_what_stands_before_damage_is_sent_and_nothing_else(bed: Bed, share: float) -> None:
    """The same spans as of the command, one line in the log, and the cursor stays before the damage."""
    go_on(bed.folder)
    spoil(min(bed.folder.glob("*.ebj")), share)
    expected = {(span.trace_id, span.span_id) for each in shutdowns(bed.folder) for span in each.spans}
    collector, reason = await export(bed)
    assert set(collector.spans) == expected
    assert "is damaged behind record" in reason
    assert len([each for each in bed.said if "damaged" in each]) == 1
    assert bed.cursor is not None
    assert bed.cursor.seq < History([DirectorySource(bed.folder)]).path.segments[-1].header.link.seq  # type: ignore[union-attr]
