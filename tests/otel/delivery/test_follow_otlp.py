"""Following a journal to a back end: spans sent, kept and recorded, and the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.episodes import lay_out
from ebbtide import follower
from ebbtide.events.base import Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.segment import Chain, segment_file_name
from ebbtide.follower import follow
from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery import sending
from ebbtide.otel.delivery.cursor import Cursor
from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.journal_tail import Tail
from ebbtide.otel.delivery.otlp_sender import sender_for
from ebbtide.otel.delivery.otlp_sink import OtlpSink
from tests.backends.compare import shutdowns
from tests.events.making import IDENTITY
from tests.otel.delivery.collector import OK, Collector, Got, Reply, collecting

PODS, SHUTDOWNS = 6, 3
TEXT = (("content-type", "text/plain"),)


class Bed:
    """A journal of some shutdowns, and the follower's log."""

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

    def sink(self, collector: Collector) -> OtlpSink:
        sender = sender_for(Destination(endpoint=f"{collector.endpoint}/v1/traces"))
        keep = partial(cursors.save, str(self.folder))
        return OtlpSink(Tail([DirectorySource(self.folder)]), sender, self, keep, lambda: self.cursor)

    async def run(self, collector: Collector) -> str:
        return await follow(self.sink(collector), self.log)

    @property
    def cursor(self) -> Cursor | None:
        return cursors.load(self.folder)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(OtlpSink, "idle_seconds", 0.05)
    monkeypatch.setattr(follower, "LOOK_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(sending, "BACKOFF_FIRST_SECONDS", 0.001)
    return Bed(tmp_path)


async def export(bed: Bed, answer: Callable[[Got], Reply] = lambda got: OK) -> tuple[Collector, str]:
    collector = Collector(answer)
    async with collecting(collector):
        reason = await bed.run(collector)
    return collector, reason


async def test_everything_is_sent_once_and_it_goes(bed: Bed) -> None:
    collector, reason = await export(bed)
    assert (len(collector.spans), reason) == (len(bed.spans), "")
    assert bed.cursor is not None
    assert bed.cursor.seq >= max(span.seq for span in bed.spans)
    again, _ = await export(bed)
    assert again.got == []


# --- a journal that is damaged meanwhile -----------------------------------------------------------


def spoil(file: Path, share: float) -> None:
    """One bit, at that share of the file."""
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 1
    file.write_bytes(data)


def go_on(folder: Path) -> None:
    start = History([DirectorySource(folder)]).read().start(bytes(16))
    second = Chain(IDENTITY, start).begin_segment(Stamp(0, 0))
    name = segment_file_name(start.number, start.journal_id)
    (folder / name).write_bytes(b"".join(item.data for item in second))


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
async def test_only_what_is_before_damage_is_sent(bed: Bed, share: float) -> None:
    """The same spans as the command, one log line, and the cursor before the damage."""
    go_on(bed.folder)
    spoil(min(bed.folder.glob("*.ebj")), share)
    expected = {(span.trace_id, span.span_id) for each in shutdowns(bed.folder) for span in each.spans}
    collector, reason = await export(bed)
    assert set(collector.spans) == expected
    assert "is damaged behind record" in reason
    assert len([each for each in bed.said if "damaged" in each]) == 1
    assert bed.cursor is not None
    assert bed.cursor.seq < History([DirectorySource(bed.folder)]).path.segments[-1].header.link.seq  # type: ignore[union-attr]
