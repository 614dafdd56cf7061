"""Log records and metrics as OTLP, for a collector that gets them beside the spans.

The same records give the same bytes. Sums are cumulative from the first record that was folded, so a
collector sees a restart of the daemon, or a reboot, as what it is for them: nothing.

This imports protobuf's messages of both. The exporter loads it at its start: nothing is imported while a
machine goes down.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.attributes import SCHEMA_URL
from ebbtide.otel.logs import LogRecord
from ebbtide.otel.meters import BOUNDS_SECONDS, Histogram, Meters
from ebbtide.otel.metrics import CATALOG, ReadContext, metric_name
from ebbtide.otel.otlp import key_values
from ebbtide.otel.span import Resource

# --- log records ----------------------------------------------------------------------------------

#: The instrumentation scope.
LOGS_SCOPE = "ebbtide.log"

#: Trace flags of a record whose trace is sampled (W3C Trace Context).
LOG_FLAGS_SAMPLED = 1


def encode_logs(records: Sequence[LogRecord], resource: Resource) -> bytes:
    """The bytes of an ``ExportLogsServiceRequest``, all of one resource; the same records, the same bytes."""
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add(schema_url=SCHEMA_URL)
    of_resource.resource.attributes.extend(key_values(resource.attributes))
    of_scope = of_resource.scope_logs.add(schema_url=SCHEMA_URL)
    of_scope.scope.name, of_scope.scope.version = LOGS_SCOPE, str(resource.version)
    for record in records:
        # The observed time is the record's own: there is no clock here, and a later one would say nothing
        # more. Without one some back ends fill in their own, and the same record has two.
        made = of_scope.log_records.add(
            time_unix_nano=record.time_ns,
            observed_time_unix_nano=record.time_ns,
            severity_number=record.severity_number,
            severity_text=record.severity_text,
            event_name=record.event_name,
            attributes=key_values(record.attributes),
            flags=LOG_FLAGS_SAMPLED,
            trace_id=record.trace_id,
            span_id=record.span_id,
        )
        made.body.string_value = record.body
    data: bytes = request.SerializeToString(deterministic=True)
    return data


# --- metrics --------------------------------------------------------------------------------------

#: The instrumentation scope.
METRICS_SCOPE = "ebbtide.metrics"

_CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE


def encode_metrics(meters: Meters, around: ReadContext, resource: Resource, prefix: str = "") -> bytes:
    """The bytes of an ``ExportMetricsServiceRequest``. ``around.now_wall_ns`` is when they were read."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add(schema_url=SCHEMA_URL)
    of_resource.resource.attributes.extend(key_values(resource.attributes))
    of_scope = of_resource.scope_metrics.add(schema_url=SCHEMA_URL)
    of_scope.scope.name, of_scope.scope.version = METRICS_SCOPE, str(resource.version)
    for metric in CATALOG:
        samples = tuple(metric.read(meters, around))
        if not samples:
            continue
        made = of_scope.metrics.add(name=metric_name(metric, prefix), description=metric.help)
        made.unit = "s" if "_seconds" in metric.name else "1"
        if metric.kind == "histogram":
            made.histogram.aggregation_temporality = _CUMULATIVE
        elif metric.kind == "counter":
            made.sum.aggregation_temporality, made.sum.is_monotonic = _CUMULATIVE, True
        # What is of a moment has no begin: with one, a back end would take it for a sum since then.
        begun_ns = 0 if metric.kind == "gauge" else meters.begun_wall_ns
        points = made.sum.data_points if metric.kind == "counter" else made.gauge.data_points
        for labels, value, seconds in samples:
            if isinstance(value, Histogram):
                made.histogram.data_points.add(
                    attributes=key_values(labels),
                    bucket_counts=value.counts,  # each its own, unlike in Prometheus' text
                    explicit_bounds=BOUNDS_SECONDS,
                    count=sum(value.counts),
                    sum=value.sum_ns / NS_PER_SECOND,
                    start_time_unix_nano=begun_ns,
                    time_unix_nano=around.now_wall_ns,
                )
                continue
            point = points.add(
                attributes=key_values(labels),
                start_time_unix_nano=begun_ns,
                time_unix_nano=around.now_wall_ns,
            )
            if seconds:
                point.as_double = value / NS_PER_SECOND
            else:
                point.as_int = value
    data: bytes = request.SerializeToString(deterministic=True)
    return data
