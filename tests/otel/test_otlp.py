"""OTLP bytes through the SDK: protobuf reads back the projection in both encodings."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ebbtide.otel.sdk import encode_traces_json
from ebbtide.otel.span import Resource, Span, SpanEvent, SpanLink
from tests.otel.wire import encode_traces

RESOURCE = Resource((("service.name", "ebbtide"), ("host.name", "knoten-ä")), 1)
PLAIN = Span(bytes(range(16)), bytes(range(8)), b"", "shutdown", 10**18, 10**18 + 5, (), 3, 9)
FULL = PLAIN._replace(
    span_id=bytes(range(8, 16)),
    parent_id=bytes(range(8)),
    name="pod",
    attributes=(
        ("text", "später"),
        ("number", -(2**62)),
        ("yes", True),
        ("one", 1),
        ("names", ("a", "b")),
        ("none", ()),
    ),
    events=(SpanEvent("autopsy", 10**18 + 1, (("pid", 7),)),),
    links=(SpanLink(bytes(16), bytes(8), (("ebbtide.link", "retry"),)),),
    status="error",
    status_text="SIGKILL",
)


def parsed(data: bytes) -> Any:
    return ExportTraceServiceRequest.FromString(data)


def test_json_is_the_same_request() -> None:
    """OTLP/JSON differs from protobuf's JSON only in hex IDs instead of base64."""
    data = encode_traces_json([PLAIN, FULL], RESOURCE)
    assert b"\n" not in data
    document = json.loads(data)

    def in_base64(value: Any) -> Any:
        if isinstance(value, list):
            return [in_base64(each) for each in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {
            key: b64encode(bytes.fromhex(each)).decode() if key in ids else in_base64(each)
            for key, each in value.items()
        }

    read = json_format.ParseDict(in_base64(document), ExportTraceServiceRequest())
    assert read == parsed(encode_traces([PLAIN, FULL], RESOURCE))
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
    assert span["startTimeUnixNano"] == str(10**18)
    assert span["attributes"][1]["value"] == {"intValue": str(-(2**62))}
