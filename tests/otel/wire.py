"""The bytes of OTLP, as the SDK's own encoders make them of what the projections give."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common import _log_encoder as logs
from opentelemetry.exporter.otlp.proto.common import metrics_encoder as metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from ebbtide.otel.logs import LogRecord
from ebbtide.otel.meters import Meters
from ebbtide.otel.metric_table import ReadContext
from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.sdk_beside import metrics_data, readable_logs
from ebbtide.otel.span import Resource, Span


def encode_traces(spans: Sequence[Span], resource: Resource) -> bytes:
    """An ``ExportTraceServiceRequest``."""
    return encode_spans(readable_spans(spans, resource)).SerializeToString(deterministic=True)


def encode_logs(records: Sequence[LogRecord], resource: Resource) -> bytes:
    """An ``ExportLogsServiceRequest``."""
    return logs.encode_logs(readable_logs(records, resource)).SerializeToString(deterministic=True)


def encode_metrics(meters: Meters, around: ReadContext, resource: Resource, prefix: str = "") -> bytes:
    """An ``ExportMetricsServiceRequest``."""
    data = metrics_data(meters, around, resource, prefix)
    return metrics.encode_metrics(data).SerializeToString(deterministic=True)
