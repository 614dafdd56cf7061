"""Log records and metrics in the types of OpenTelemetry's SDK, for a collector that takes them beside the
spans.

The same records give the same bytes. Sums are cumulative from the first folded record, so a restart or a
reboot does not reset them.

This imports the SDK's parts for both. The exporter loads it at its start: no import while a machine goes
down.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry._logs import LogRecord as SdkLogRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.attributes import SCHEMA_URL
from ebbtide.otel.logs import LogRecord
from ebbtide.otel.meters import BOUNDS_SECONDS, Histogram, Meters
from ebbtide.otel.metric_table import CATALOG, Metric, ReadContext, Sample, metric_name
from ebbtide.otel.sdk import sdk_resource, span_context
from ebbtide.otel.span import Resource

# --- log records ----------------------------------------------------------------------------------

#: The instrumentation scope.
LOGS_SCOPE = "ebbtide.log"


def readable_logs(records: Sequence[LogRecord], resource: Resource) -> list[ReadableLogRecord]:
    """The input of a `LogRecordExporter`: all of one resource, in the same order."""
    of_resource = sdk_resource(resource)
    scope = InstrumentationScope(LOGS_SCOPE, str(resource.version), SCHEMA_URL)
    return [ReadableLogRecord(_log_record(record), of_resource, scope) for record in records]


def _log_record(record: LogRecord) -> SdkLogRecord:
    span = NonRecordingSpan(span_context(record.trace_id, record.span_id))
    # The observed time is the record's own. Without one the SDK would use its clock, and the same record
    # would have two times.
    return SdkLogRecord(
        timestamp=record.time_ns,
        observed_timestamp=record.time_ns,
        context=set_span_in_context(span),
        severity_number=SeverityNumber(record.severity_number),
        severity_text=record.severity_text,
        event_name=record.event_name,
        body=record.body,
        attributes=dict(record.attributes),
    )


# --- metrics --------------------------------------------------------------------------------------

#: The instrumentation scope.
METRICS_SCOPE = "ebbtide.metrics"

_CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE


def metrics_data(
    meters: Meters, around: ReadContext, resource: Resource, prefix: str = ""
) -> sdk.MetricsData:
    """The input of a `MetricExporter`. ``around.now_wall_ns``: the time of reading."""
    scope = InstrumentationScope(METRICS_SCOPE, str(resource.version), SCHEMA_URL)
    metrics = []
    for metric in CATALOG:
        if samples := tuple(metric.read(meters, around)):
            name, unit = metric_name(metric, prefix), "s" if "_seconds" in metric.name else "1"
            data = _data(metric, samples, meters.begun_wall_ns, around.now_wall_ns)
            metrics.append(sdk.Metric(name, metric.help, unit, data))
    of_scope = sdk.ScopeMetrics(scope, metrics, SCHEMA_URL)
    return sdk.MetricsData([sdk.ResourceMetrics(sdk_resource(resource), [of_scope], SCHEMA_URL)])


def _data(
    metric: Metric, samples: Sequence[Sample], begun_ns: int, now_ns: int
) -> sdk.Sum | sdk.Gauge | sdk.Histogram:
    if metric.kind == "histogram":
        histograms = [(labels, value) for labels, value, _ in samples if isinstance(value, Histogram)]
        return sdk.Histogram(
            [
                sdk.HistogramDataPoint(
                    attributes=dict(labels),
                    start_time_unix_nano=begun_ns,
                    time_unix_nano=now_ns,
                    count=sum(value.counts),
                    sum=value.sum_ns / NS_PER_SECOND,
                    bucket_counts=value.counts,  # each its own, unlike in Prometheus' text
                    explicit_bounds=BOUNDS_SECONDS,
                    # Unknown for sums over boots, and optional in OTLP and for the encoder.
                    min=None,  # type: ignore[arg-type]
                    max=None,  # type: ignore[arg-type]
                )
                for labels, value in histograms
            ],
            _CUMULATIVE,
        )
    # A gauge has no begin: with one, a back end would take it for a sum.
    of_moment = metric.kind == "gauge"
    points = [
        sdk.NumberDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=0 if of_moment else begun_ns,
            time_unix_nano=now_ns,
            value=value / NS_PER_SECOND if seconds else value,
        )
        for labels, value, seconds in samples
        if isinstance(value, int)
    ]
    return sdk.Gauge(points) if of_moment else sdk.Sum(points, _CUMULATIVE, is_monotonic=True)
