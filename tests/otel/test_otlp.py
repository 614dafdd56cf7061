"""OTLP bytes by way of the SDK: what protobuf reads back is what the projection gave, in both encodings."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ebbtide.otel.attributes import SCHEMA_URL
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


def test_the_protobuf_library_reads_what_was_encoded() -> None:
    """Every field of a span, its events and its links arrives."""
    request = parsed(encode_traces([PLAIN, FULL], RESOURCE))
    (of_resource,) = request.resource_spans
    (of_scope,) = of_resource.scope_spans
    plain, full = of_scope.spans
    assert of_resource.schema_url == of_scope.schema_url == SCHEMA_URL
    assert [each.value.string_value for each in of_resource.resource.attributes] == ["ebbtide", "knoten-ä"]
    assert (of_scope.scope.name, of_scope.scope.version) == ("ebbtide.shutdown", "1")
    assert (plain.trace_id, plain.span_id, plain.parent_span_id) == (PLAIN.trace_id, PLAIN.span_id, b"")
    assert (plain.start_time_unix_nano, plain.end_time_unix_nano) == (PLAIN.start_ns, PLAIN.end_ns)
    assert (plain.status.code, plain.flags) == (0, 0x100)
    assert (full.status.code, full.status.message) == (2, "SIGKILL")
    values = {each.key: each.value for each in full.attributes}
    assert values["text"].string_value == "später"
    assert values["number"].int_value == -(2**62)
    assert values["yes"].WhichOneof("value") == "bool_value"
    assert values["one"].WhichOneof("value") == "int_value"
    assert [each.string_value for each in values["names"].array_value.values] == ["a", "b"]
    assert values["none"].HasField("array_value")
    assert [event.name for event in full.events] == ["autopsy"]
    assert full.links[0].attributes[0].value.string_value == "retry"


def test_json_is_the_same_request() -> None:
    """OTLP/JSON differs from protobuf's own JSON only in ids: hex in the place of base64."""
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


@pytest.mark.parametrize("encode", [encode_traces, encode_traces_json])
def test_a_span_has_the_same_bytes_whatever_is_sent_with_it(encode: Any) -> None:
    """What recurs is kept built between calls: that is not seen in any byte."""
    alone = encode([FULL], RESOURCE)
    encode([PLAIN, FULL, PLAIN], RESOURCE)
    assert encode([FULL], RESOURCE) == alone
