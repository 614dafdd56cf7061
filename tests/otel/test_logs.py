"""Log records are a projection of the journal, and stand beside the spans that they are about."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import Batch, History
from ebbtide.otel.attributes import POD_NAME, TABLE
from ebbtide.otel.logs import LogRecord, Logs
from ebbtide.otel.span import Resource
from tests.otel.golden import GOLDEN
from tests.otel.records import JOURNAL_ID
from tests.otel.story import everything
from tests.otel.wire import encode_logs

RESOURCE = Resource((("service.name", "ebbtide"),), 1)


def history() -> History:
    return History([DirectorySource(GOLDEN / "shutdown-v1")])


def batches() -> list[Batch]:
    return list(history().batches())


def told(*steps: Batch) -> list[LogRecord]:
    logs = Logs()
    return [record for header, records in steps for record in logs.feed(header, records, JOURNAL_ID)]


def test_the_killed_pods_end_is_a_warning_with_its_name() -> None:
    """What an operator searches for: severity, pod and reason."""
    (record,) = (
        each
        for each in told(*batches())
        if each.event_name == "ebbtide.PodEnded" and each.severity_number > 10
    )
    assert record.severity_text == "WARN"
    assert dict(record.attributes)[POD_NAME] == "stuck-0"
    assert "killed after 10.006 s" in record.body


@pytest.mark.parametrize("steps", [batches(), everything().steps], ids=["golden", "everything"])
def test_the_protobuf_library_reads_them(steps: list[Batch]) -> None:
    """Every field arrives, and the same records give the same bytes."""
    records = told(*steps)
    data = encode_logs(records, RESOURCE)
    assert data == encode_logs(records, RESOURCE)
    (of_resource,) = ExportLogsServiceRequest.FromString(data).resource_logs
    found = of_resource.scope_logs[0].log_records
    assert [each.body.string_value for each in found] == [record.body for record in records]
    assert [each.span_id for each in found] == [record.span_id for record in records]
    assert {each.key for record in found for each in record.attributes} <= set(TABLE)
