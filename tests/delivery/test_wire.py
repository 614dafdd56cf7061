"""A server's answers: what the protobuf library writes is read, and no bytes do any harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otel.delivery.answers import Accepted, Again, Rejected, of_grpc, of_http
from otel.delivery.wire import NotWire, PartialSuccess, fields, partial_success, plain, refusal


@given(st.integers(0, 2**63 - 1), st.text(max_size=50))
def test_what_the_library_writes_is_read(rejected: int, words: str) -> None:
    """Any number, any words; these in one printable line."""
    inner = ExportTracePartialSuccess(rejected_spans=rejected, error_message=words)
    data = ExportTraceServiceResponse(partial_success=inner).SerializeToString()
    assert partial_success(data) == PartialSuccess(rejected, plain(words))


def test_empty_bytes_are_full_success() -> None:
    """As protobuf has it: every field is at its default."""
    assert partial_success(b"") == PartialSuccess()


@given(st.binary(max_size=200))
def test_no_bytes_do_any_harm(data: bytes) -> None:
    """Nonsense is one exception, and to whoever sends it the request was simply not answered."""
    for read in (partial_success, refusal, lambda data: list(fields(data))):
        try:
            read(data)
        except NotWire:
            pass
    assert isinstance(of_http(200, "application/x-protobuf", "", data, 0.0), Accepted | Again)
    assert isinstance(of_http(400, "application/x-protobuf", "", data, 0.0), Rejected)
    assert of_grpc(14, "UNAVAILABLE", "", data).reason == "gRPC UNAVAILABLE"


@pytest.mark.parametrize("data", [b"\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", b"\xff" * 11, b"\x0d\x00"])
def test_what_is_cut_short_is_no_message(data: bytes) -> None:
    """Field number 0, a length beyond the end, a group, an endless number, half a fixed one."""
    with pytest.raises(NotWire):
        list(fields(data))


@given(st.binary())
def test_words_are_one_printable_line(data: bytes) -> None:
    """They reach terminals and logs."""
    line = plain(data)
    assert line.isprintable() or not line
    assert len(line) <= 300
