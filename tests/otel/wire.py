"""OTLP bytes from the SDK's encoder."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.span import Resource, Span


def encode_traces(spans: Sequence[Span], resource: Resource) -> bytes:
    """An ``ExportTraceServiceRequest``."""
    return encode_spans(readable_spans(spans, resource)).SerializeToString(deterministic=True)
