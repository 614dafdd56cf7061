"""The daemon's metrics: complete after a restart, and a forecast from earlier shutdowns."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ebbtide.cli.metrics import meters_of_daemon
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.node_metrics import MetricsBackend, MetricsOptions, MetricsRecorder
from ebbtide.otel import metric_table
from tests.commands import Run
from tests.journals import SHUTDOWN


def records() -> list[Record]:
    return list(History([DirectorySource(SHUTDOWN)]).records())


class Journal:
    """A writer whose records are durable up to a number."""

    away = lost = False

    def __init__(self, last_seq: int, synced_seq: int) -> None:
        self.last_seq, self.synced_seq = last_seq, synced_seq

    async def wait_synced(self, seq: int) -> bool:
        return seq <= self.synced_seq


class Side:
    """A `Metering`'s inputs: a side file in memory, and a journal up to ``before``."""

    def __init__(self, before: list[Record]) -> None:
        self.before = before
        self.kept: list[bytes] = []

    async def keep(self, data: bytes) -> None:
        self.kept.append(data)

    async def rebuild(self, before_seq: int) -> metric_table.Meters:
        meters = metric_table.Meters()
        metric_table.fold(meters, (record for record in self.before if record.seq < before_seq))
        return meters

    def metering(self, meters: metric_table.Meters | None, synced_seq: int = 10**6) -> MetricsRecorder:
        ways = MetricsBackend(self.keep, self.rebuild, lambda: 0)
        return MetricsRecorder(meters, Journal(10**6, synced_seq), ways, MetricsOptions())


async def test_what_is_missing_is_folded_once() -> None:
    """Lost sums are rebuilt from the journal, and new events count once."""
    side, whole = Side(records()[:50]), metric_table.Meters()
    metric_table.fold(whole, records())
    metering = side.metering(None)
    metering.fold(records()[50:])
    await metering.save()
    assert side.kept == []
    await metering.complete(lambda level, line: None)
    await metering.complete(lambda level, line: None)
    assert metering.meters == whole


@pytest.mark.parametrize("spoiled", ["utf-8", "buckets", "format", "list", "empty"])
def test_a_side_file_that_does_not_fit_is_passed_over(tmp_path: Path, spoiled: str) -> None:
    """Damaged or of another version: fold again; the node stays protected."""
    meters = metric_table.Meters(journal_id=b"j" * 16)
    metric_table.fold(meters, records())
    if spoiled == "buckets":
        meters.stop_times["graceful"].counts.pop()
    if spoiled == "format":
        meters.format += 1
    data = msgspec.msgpack.encode(meters)
    texts = {"utf-8": data.replace(b"web", b"w\xffb"), "list": b"\x90", "empty": b""}
    (tmp_path / metric_table.METERS_FILE_NAME).write_bytes(texts.get(spoiled, data))
    assert metric_table.kept_meters([DirectorySource(tmp_path)], b"j" * 16) == metric_table.Meters(
        journal_id=b"j" * 16
    )


@pytest.mark.parametrize("state", [None, metric_table.ShippingState(stored=3, pending=2, reason="HTTP 503")])
def test_numbers_come_whole_through_the_socket(
    monkeypatch: pytest.MonkeyPatch, state: metric_table.ShippingState | None
) -> None:
    """``ebbtide metrics`` equals a scrape."""
    side, meters = Side([]), metric_table.Meters()
    metric_table.fold(meters, records())
    ways = MetricsBackend(side.keep, side.rebuild, lambda: 0, shipping=lambda: state)
    recorder = MetricsRecorder(meters, Journal(0, 0), ways, MetricsOptions())
    sent = json.dumps(recorder.document())
    monkeypatch.setattr("ebbtide.cli.metrics.ask", lambda verb, socket: json.loads(sent))
    found = meters_of_daemon(Path("socket"))
    assert metric_table.exposition(*found) == recorder.text()


def test_a_journal_alone_is_counted(run: Run) -> None:
    """With its shutdowns, without the running daemon's own values."""
    code, out, _ = run("metrics", "--journal", str(SHUTDOWN))
    assert code == 0
    assert 'ebbtide_shutdowns_total{kind="reboot",outcome="complete"} 1' in out.splitlines()
    assert '_causes{cause="signal-ignored",level="pod",severity="mixed",line="1"} 1' in out
    assert "ebbtide_armed" in metric_table.exposition(
        metric_table.Meters(), metric_table.ReadContext(now_wall_ns=0)
    )
    assert "\nebbtide_armed" not in out
    assert "\nebbtide_journal_lost" not in out
    code, out, _ = run("metrics", "--journal", str(SHUTDOWN), "-o", "json")
    assert json.loads(out)["kind"] == "Metrics"


async def test_the_causes_are_read_once_a_shutdown() -> None:
    """Not while one runs, and not after each record."""
    side, meters, looks = Side([]), metric_table.Meters(episode=7), []

    async def causes() -> list[metric_table.CauseCount]:
        looks.append(meters.seq)
        return [metric_table.CauseCount("runtime", "part", "bad", 9)]

    ways = MetricsBackend(side.keep, side.rebuild, lambda: 0, causes=causes)
    metering = MetricsRecorder(meters, Journal(10**6, 10**6), ways, MetricsOptions())
    await metering.read_causes(lambda level, line: None)
    assert looks == []
    metering.fold(records())  # to the shutdown's close
    for _ in range(2):
        await metering.read_causes(lambda level, line: None)
    assert looks == [records()[-1].seq]
    assert 'cause="runtime"' in metering.text()


async def test_only_what_is_durable_is_kept() -> None:
    """A power cut frees record numbers for reuse: sums that counted them would skip the new records."""
    side = Side([])
    metering = side.metering(metric_table.Meters(), synced_seq=records()[-1].seq - 1)
    metering.fold(records())
    await metering.save()
    assert side.kept == []
