"""Log records as OTLP, as a collector takes them. This imports protobuf; the daemon never does."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel.attributes import SCHEMA_URL
from otel.encode import key_values
from otel.logs import LogRecord
from otel.span import Resource

#: The instrumentation scope.
SCOPE = "ebbtide.log"

#: Trace flags of a record whose trace is sampled (W3C Trace Context).
SAMPLED = 1


def encode_logs(records: Sequence[LogRecord], resource: Resource) -> bytes:
    """The bytes of an ``ExportLogsServiceRequest``, all of one resource; the same records, the same bytes.

    The observed time is the record's own: there is no clock here, and a later one would say nothing more.
    """
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add(schema_url=SCHEMA_URL)
    of_resource.resource.attributes.extend(key_values(resource.attributes))
    of_scope = of_resource.scope_logs.add(schema_url=SCHEMA_URL)
    of_scope.scope.name, of_scope.scope.version = SCOPE, str(resource.version)
    for record in records:
        made = of_scope.log_records.add(
            time_unix_nano=record.time_ns,
            observed_time_unix_nano=record.time_ns,
            severity_number=record.severity_number,
            severity_text=record.severity_text,
            event_name=record.event_name,
            attributes=key_values(record.attributes),
            flags=SAMPLED,
            trace_id=record.trace_id,
            span_id=record.span_id,
        )
        made.body.string_value = record.body
    data: bytes = request.SerializeToString(deterministic=True)
    return data
