"""Spans in the types of OpenTelemetry's SDK, for every exporter, and as OTLP's JSON, for files.
`otel.sdk_beside` has logs and metrics, so that plain spans do not load their messages.

Every id, time and attribute comes from the span, none from the environment, the clock or this process
(`Resource.create` would). So the same spans always give the same bytes.

This imports the SDK. Only the exporter and the export verbs load it, never the daemon.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk import resources as sdk
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ebbtide.otel.attributes import SCHEMA_URL
from ebbtide.otel.span import Resource, Span

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)


def sdk_resource(resource: Resource) -> sdk.Resource:
    """Not by `Resource.create`: it adds attributes of the environment and of this machine."""
    return sdk.Resource(dict(resource.attributes), SCHEMA_URL)


def readable_spans(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    """The input of a `SpanExporter`: all of one resource, in the same order."""
    of_resource = sdk_resource(resource)
    scope = InstrumentationScope(resource.scope, str(resource.version), SCHEMA_URL)
    return [_readable(span, of_resource, scope) for span in spans]


def _readable(span: Span, resource: sdk.Resource, scope: InstrumentationScope) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=span_context(span.trace_id, span.span_id),
        parent=span_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=dict(span.attributes),
        events=[Event(event.name, dict(event.attributes), event.time_ns) for event in span.events],
        links=[Link(span_context(link.trace_id, link.span_id), dict(link.attributes)) for link in span.links],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.status_text) if span.status == "error" else _UNSET,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


def span_context(trace_id: bytes, span_id: bytes) -> SpanContext:
    """Sampled, and from this program."""
    return SpanContext(
        int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"), is_remote=False, trace_flags=_SAMPLED
    )


# --- JSON --------------------------------------------------------------------------------------

#: In hex, unlike protobuf's own JSON (OTLP specification, "JSON Protobuf Encoding").
_IDS = ("traceId", "spanId", "parentSpanId")


def encode_traces_json(spans: Sequence[Span], resource: Resource) -> bytes:
    """A collector's request as OTLP/JSON in one line."""
    request = encode_spans(readable_spans(spans, resource))
    document = json_format.MessageToDict(request, use_integers_for_enums=True)
    for message in _with_ids(document):
        for name in _IDS:
            if name in message:
                message[name] = base64.b64decode(message[name]).hex()
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _with_ids(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for of_resource in document.get("resourceSpans", ()):
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                yield span
                yield from span.get("links", ())
