"""Spans as OTLP: the protobuf that collectors take, and the JSON that they read from files. What goes beside
them is in `otel.otlp_beside`: whoever only wants spans does not load its messages.

The same spans give the same bytes, wherever and however often: fields go in the order of their numbers, and
attributes in the order in which the projection gives them. The generated classes of ``opentelemetry-proto``
do the encoding; what recurs from span to span (attributes, mostly) is built once.

This imports protobuf. Only the exporter and the verbs that export load it, never the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2 as common
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from ebbtide.otel.attributes import SCHEMA_URL
from ebbtide.otel.span import Attributes, AttributeValue, Resource, Span

#: Sampled; and the parent (or link) is known not to come from another program.
SPAN_FLAGS = 0x101

#: Distinct attributes that are kept built: those of a few hundred pods.
_CACHED_ATTRIBUTES_MAX = 8192

_SPAN_KIND = trace.Span.SPAN_KIND_INTERNAL
_STATUS_CODES = {
    "unset": trace.Status.STATUS_CODE_UNSET,
    "ok": trace.Status.STATUS_CODE_OK,
    "error": trace.Status.STATUS_CODE_ERROR,
}


# --- protobuf ----------------------------------------------------------------------------------


def encode_traces(spans: Sequence[Span], resource: Resource) -> bytes:
    """The bytes of an ``ExportTraceServiceRequest`` with these spans, all of one resource."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add(schema_url=SCHEMA_URL)
    of_resource.resource.attributes.extend(key_values(resource.attributes))
    of_scope = of_resource.scope_spans.add(schema_url=SCHEMA_URL)
    of_scope.scope.name, of_scope.scope.version = resource.scope, str(resource.version)
    add = of_scope.spans.add
    for span in spans:
        made = add(
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_id,
            flags=SPAN_FLAGS,
            name=span.name,
            kind=_SPAN_KIND,
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=key_values(span.attributes),
        )
        for event in span.events:
            details = key_values(event.attributes)
            made.events.add(name=event.name, time_unix_nano=event.time_ns, attributes=details)
        for link in span.links:
            made.links.add(
                trace_id=link.trace_id,
                span_id=link.span_id,
                flags=SPAN_FLAGS,
                attributes=key_values(link.attributes),
            )
        if span.status != "unset":
            made.status.code, made.status.message = _STATUS_CODES[span.status], span.status_text
    data: bytes = request.SerializeToString(deterministic=True)
    return data


def key_values(attributes: Attributes) -> list[common.KeyValue]:
    """As protobuf; what was asked for before is not built again."""
    return [_key_value(name, value) for name, value in attributes]


@lru_cache(maxsize=_CACHED_ATTRIBUTES_MAX, typed=True)
def _key_value(name: str, value: AttributeValue) -> common.KeyValue:
    return common.KeyValue(key=name, value=_any_value(value))


def _any_value(value: AttributeValue) -> common.AnyValue:
    # Before int: Python's True is one.
    if isinstance(value, bool):
        return common.AnyValue(bool_value=value)
    if isinstance(value, int):
        return common.AnyValue(int_value=value)
    if isinstance(value, str):
        return common.AnyValue(string_value=value)
    return common.AnyValue(array_value=common.ArrayValue(values=[_any_value(each) for each in value]))


# --- JSON --------------------------------------------------------------------------------------


def encode_traces_json(spans: Sequence[Span], resource: Resource) -> bytes:
    """The same request as OTLP/JSON, in one line: ids in hex, 64-bit integers as strings."""
    made_spans = []
    for span in spans:
        events = [
            {
                "timeUnixNano": str(event.time_ns),
                "name": event.name,
                "attributes": _json_attributes(event.attributes),
            }
            for event in span.events
        ]
        links = [
            {
                "traceId": link.trace_id.hex(),
                "spanId": link.span_id.hex(),
                "attributes": _json_attributes(link.attributes),
                "flags": SPAN_FLAGS,
            }
            for link in span.links
        ]
        status = {"code": int(_STATUS_CODES[span.status]), "message": span.status_text}
        made = {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "parentSpanId": span.parent_id.hex(),
            "flags": SPAN_FLAGS,
            "name": span.name,
            "kind": int(_SPAN_KIND),
            "startTimeUnixNano": str(span.start_ns),
            "endTimeUnixNano": str(span.end_ns),
            "attributes": _json_attributes(span.attributes),
            "events": events,
            "links": links,
            "status": status if span.status != "unset" else {},
        }
        # As protobuf leaves its defaults out, so that a reader finds the same in both forms. An empty status
        # stays: it is there in protobuf's own JSON of the same request.
        made_spans.append({key: value for key, value in made.items() if value not in ("", [])})
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _json_attributes(resource.attributes)},
                "scopeSpans": [
                    {
                        "scope": {"name": resource.scope, "version": str(resource.version)},
                        "spans": made_spans,
                        "schemaUrl": SCHEMA_URL,
                    }
                ],
                "schemaUrl": SCHEMA_URL,
            }
        ]
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _json_attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": name, "value": _json_value(value)} for name, value in attributes]


def _json_value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_json_value(each) for each in value]}}
