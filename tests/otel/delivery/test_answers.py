"""A server's answers: what the protobuf library writes is read, and no bytes do any harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ebbtide.otel.delivery.answers import (
    Accepted,
    Again,
    NotProtobuf,
    PartialSuccess,
    Rejected,
    answer_of_grpc,
    answer_of_http,
    message_fields,
    parse_partial_success,
    parse_status,
    printable_line,
)


@given(st.integers(0, 2**63 - 1), st.text(max_size=50))
def test_what_the_library_writes_is_read(rejected: int, words: str) -> None:
    """Any number, any words; these in one printable line."""
    inner = ExportTracePartialSuccess(rejected_spans=rejected, error_message=words)
    data = ExportTraceServiceResponse(partial_success=inner).SerializeToString()
    assert parse_partial_success(data) == PartialSuccess(rejected, printable_line(words))


def test_empty_bytes_are_full_success() -> None:
    """As protobuf has it: every field is at its default."""
    assert parse_partial_success(b"") == PartialSuccess()


@given(st.binary(max_size=200))
def test_no_bytes_do_any_harm(data: bytes) -> None:
    """Nonsense is one exception, and to whoever sends it the request was simply not answered."""
    for read in (parse_partial_success, parse_status, lambda data: list(message_fields(data))):
        try:
            read(data)
        except NotProtobuf:
            pass
    assert isinstance(answer_of_http(200, "application/x-protobuf", "", data, 0.0), Accepted | Again)
    assert isinstance(answer_of_http(400, "application/x-protobuf", "", data, 0.0), Rejected)
    assert answer_of_grpc(14, "UNAVAILABLE", "", data).reason == "gRPC UNAVAILABLE"


@pytest.mark.parametrize("data", [b"\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", b"\xff" * 11, b"\x0d\x00"])
def test_what_is_cut_short_is_no_message(data: bytes) -> None:
    """Field number 0, a length beyond the end, a group, an endless number, half a fixed one."""
    with pytest.raises(NotProtobuf):
        list(message_fields(data))


@given(st.binary())
def test_words_are_one_printable_line(data: bytes) -> None:
    """They reach terminals and logs."""
    line = printable_line(data)
    assert line.isprintable() or not line
    assert len(line) <= 300
