"""Server answers: protobuf output is readable, and arbitrary bytes are harmless."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.answers import (
    PROTOBUF,
    NotProtobuf,
    answer_of_grpc,
    answer_of_http,
    parse_partial_success,
    parse_status,
    printable_line,
)
from ebbtide.otel.delivery.sending import Accepted, Again, Refused, Rejected
from tests.otel.delivery.collector import Collector, Got, Reply
from tests.otel.delivery.test_otlp_grpc import Service, send, serving
from tests.otel.delivery.test_otlp_http import once


@given(st.integers(0, 2**63 - 1), st.text(max_size=50))
def test_what_the_library_writes_is_read(rejected: int, words: str) -> None:
    """Any number and any text, the text as one printable line."""
    inner = ExportTracePartialSuccess(rejected_spans=rejected, error_message=words)
    data = ExportTraceServiceResponse(partial_success=inner).SerializeToString()
    assert parse_partial_success(data) == Accepted(rejected, printable_line(words))


@given(st.binary(max_size=200))
def test_no_bytes_do_any_harm(data: bytes) -> None:
    """Garbage is one exception; the sender treats it as no answer."""
    for read in (parse_partial_success, parse_status):
        try:
            read(data)
        except NotProtobuf:
            pass
    assert isinstance(answer_of_http(200, "application/x-protobuf", "", data), Accepted | Again)
    assert isinstance(answer_of_http(400, "application/x-protobuf", "", data), Rejected)
    assert answer_of_grpc(14, "UNAVAILABLE", "", data).reason == "gRPC UNAVAILABLE"


# --- what each answer means (OTLP specification, "Failures" and "OTLP/gRPC Response") ------------

STATUSES = [
    (429, Again), (502, Again), (503, Again), (504, Again),
    (400, Rejected), (413, Rejected), (415, Rejected),
    (301, Refused), (401, Refused), (403, Refused), (404, Refused), (500, Refused),
]  # fmt: skip


@pytest.mark.parametrize("status, kind", STATUSES)
def test_each_status_has_its_meaning(status: int, kind: type) -> None:
    answer: Any = answer_of_http(status, "text/plain", "", b"because \x1b[31m of this")
    assert isinstance(answer, kind)
    assert answer.reason == f"HTTP {status}: because \ufffd[31m of this"
    assert answer_of_http(400, PROTOBUF, "", b"\x08\x03\x12\x03bad") == Rejected("HTTP 400: bad")


PAUSES = [
    ("7", 7 * NS_PER_SECOND), ("9999999999", 300 * NS_PER_SECOND), ("soon", None),
    ("Wed, 21 Oct 2015 07:28:00 GMT", None),
]  # fmt: skip


@pytest.mark.parametrize("text, after_ns", PAUSES)
def test_retry_after_is_heard(text: str, after_ns: int | None) -> None:
    """Seconds within bounds; other values are ignored."""
    assert answer_of_http(503, "", text, b"") == Again("HTTP 503", after_ns)


TYPES = [
    ("text/html", b"", Again), ("application/json", b"{}", Again), ("", b"x", Again),
    ("", b"", Accepted), (PROTOBUF, b"", Accepted), ("Application/X-Protobuf; v=1", b"", Accepted),
]  # fmt: skip


@pytest.mark.parametrize("content_type, body, kind", TYPES)
def test_only_an_answer_of_otlps_type_is_an_acknowledgement(
    content_type: str, body: bytes, kind: type
) -> None:
    """An empty page of another type acknowledges no span; a body without a type does."""
    assert isinstance(answer_of_http(200, content_type, "", body), kind)


CODES = {
    Again: ["UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "DATA_LOSS", "CANCELLED", "OUT_OF_RANGE"],
    Rejected: ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"],
    Refused: ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INTERNAL", "NOT_FOUND"],
}


@pytest.mark.parametrize("kind", CODES)
def test_each_code_has_its_meaning(kind: type) -> None:
    for name in CODES[kind]:
        answer = answer_of_grpc(grpc.StatusCode[name].value[0], name, "the reason", b"")
        assert isinstance(answer, kind)
        assert answer.reason == f"gRPC {name}: the reason"


# --- no value of a header leaves in a server's words -------------------------------------------

SECRET = 'TOPSECRET/+"x'
VALUES = [SECRET, f"Bearer {SECRET}", f"Api-Token  {SECRET}"]
TEXT = (("content-type", "text/plain"),)


def echo(status: int, fill: int, got: Got) -> Reply:
    return Reply(status, f"{'.' * fill}x-last: {got.headers['x-last']}".encode(), TEXT)


@pytest.mark.parametrize("value", VALUES)
async def test_an_echo_over_http_is_starred_out(value: str) -> None:
    """The value is hidden in the answer's text, even at a cut."""
    for fill in range(255, 300, 18):
        collector = Collector(partial(echo, 401, fill))
        answer: Any = await once(collector, headers=(("x-last", value),))
        assert "TOP" not in answer.reason
    assert answer.reason.startswith("HTTP 401: ...")


async def test_an_echo_over_grpc_is_starred_out() -> None:
    """A gRPC status's details are server text too."""
    service = Service(grpc.StatusCode.UNAUTHENTICATED, f"authorization: Bearer {SECRET}, who is that")
    with serving(service) as endpoint:
        answer = await send(endpoint, headers=(("authorization", f"Bearer {SECRET}"),))
    assert SECRET not in answer.reason
    assert answer.reason.endswith(", who is that")
