"""Log records and metrics beside the traces: asked for, delivered once, and never in the traces' way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.delivery.cursor import FILE_NAME, LOGS_NAME, keep_from, load
from ebbtide.otel.delivery.destination import PATHS
from ebbtide.otel.delivery.journal_tail import Tail
from ebbtide.otel.delivery.otlp_sink import meters_of
from ebbtide.otel.logs import LogRecord, Logs
from ebbtide.otel.meters import Meters, fold
from tests.daemon.test_tracing import Journal, running
from tests.journals import SHUTDOWN
from tests.otel.delivery.collector import OK, Collector, Got, Reply, collecting
from tests.waiting import until

BOTH = ("logs", "metrics")
METRICS_PATH = PATHS["metrics"]


def by_path(logs: int = 200) -> Collector:
    """A collector that takes all signals, or refuses the logs."""

    def answer(got: Got) -> Reply:
        if got.target == "/v1/traces":
            return OK
        return Reply(status=logs if got.target == "/v1/logs" else 200, keeps=False)

    return Collector(answer)


def paths(collector: Collector) -> Counter[str]:
    return Counter(got.target for got in collector.got)


def told(folder: Path) -> list[LogRecord]:
    history, logs = History([DirectorySource(folder)]), Logs()
    return [
        record
        for header, records in history.batches()
        for record in logs.feed(header, records, history.journal_id)
    ]


def bodies_of(collector: Collector) -> list[str]:
    return [
        record.body.string_value
        for got in collector.got
        if got.target == "/v1/logs"
        for of_resource in ExportLogsServiceRequest.FromString(got.body).resource_logs
        for of_scope in of_resource.scope_logs
        for record in of_scope.log_records
    ]


async def test_logs_and_metrics_go_to_their_own_paths(tmp_path: Path) -> None:
    """Each record once, in order, and the sums at the end; the next start repeats none of the records."""
    collector = by_path()
    async with collecting(collector), running(tmp_path, collector.endpoint, signals=BOTH) as bed:
        await collector.until(lambda: paths(collector)[METRICS_PATH] > 0)
        assert len(collector.spans) == bed.spans
    assert bodies_of(collector) == [record.body for record in told(tmp_path)]
    (metrics,) = (got.body for got in collector.got if got.target == METRICS_PATH)
    names = ExportMetricsServiceRequest.FromString(metrics).resource_metrics[0].scope_metrics[0].metrics
    assert "ebbtide_pods_total" in [metric.name for metric in names]
    cursor = load(tmp_path, LOGS_NAME)
    assert cursor is not None
    assert cursor.seq == Journal(tmp_path).synced_seq


async def test_a_back_end_without_logs_gets_the_traces_all_the_same(tmp_path: Path) -> None:
    """Refused log records wait for another start, with the reason in the log; the traces are there."""
    collector = by_path(logs=404)
    async with collecting(collector), running(tmp_path, collector.endpoint, signals=("logs",)) as bed:
        await collector.until(lambda: len(collector.spans) == bed.spans and paths(collector)["/v1/logs"] > 0)
        # The exporter has still to read the answer, and the daemon what it makes of it.
        await until(lambda: [line for line in bed.said if line.startswith("logs: ") and "404" in line], "404")
    journal = Journal(tmp_path)
    kept_from = keep_from([tmp_path], journal.journal_id, journal.synced_seq, (FILE_NAME, LOGS_NAME))
    assert kept_from <= told(tmp_path)[0].episode


@pytest.mark.parametrize("kept_seq", [0, 40, 10_000])
def test_metrics_are_those_of_the_whole_journal(tmp_path: Path, kept_seq: int) -> None:
    """Whatever the daemon kept of the sums, what is sent are the sums of everything durable."""
    golden = [DirectorySource(SHUTDOWN)]
    history, whole = History(golden), Meters()
    whole.journal_id = history.journal_id
    kept = Meters(journal_id=history.journal_id)
    records = list(history.records())
    fold(whole, records)
    fold(kept, (record for record in records if record.seq <= kept_seq))
    (tmp_path / "metrics").write_bytes(msgspec.msgpack.encode(kept))
    tail = Tail(golden)
    tail.learn(10**6)
    found = meters_of([*golden, DirectorySource(tmp_path)], tail)
    assert found is not None
    assert found[0].pods == whole.pods
    assert found[0].shutdowns == whole.shutdowns
