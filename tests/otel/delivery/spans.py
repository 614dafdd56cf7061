"""Spans made up for tests of the exporters, and OTLP's bytes from the SDK's encoder."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from ebbtide.otel.otlp import readable_spans
from ebbtide.otel.span import Resource, Span

RESOURCE = Resource((("service.name", "ebbtide"),), 1)
TRACE = bytes(range(16))


def encode_traces(spans: Sequence[Span], resource: Resource) -> bytes:
    """An ``ExportTraceServiceRequest``."""
    return encode_spans(readable_spans(spans, resource)).SerializeToString(deterministic=True)


def spans(count: int = 1) -> list[Span]:
    """Spans of one trace; the end of each is the record of its number."""
    return [
        Span(
            trace_id=TRACE,
            span_id=number.to_bytes(8, "big"),
            parent_id=b"",
            name="wave",
            start_ns=1_700_000_000_000_000_000,
            end_ns=1_700_000_000_000_000_000 + number,
            attributes=(("ebbtide.wave", number),),
            episode=1,
            seq=number,
        )
        for number in range(1, count + 1)
    ]
