"""Spans made up for tests of the exporters."""

from __future__ import annotations

from ebbtide.otel.span import Resource, Span
from tests.otel.wire import encode_traces

RESOURCE = Resource((("service.name", "ebbtide"),), 1)
TRACE = bytes(range(16))


def span(number: int, *, episode: int = 1) -> Span:
    """Span ``number`` of a trace; its end is the record of the same number."""
    return Span(
        trace_id=TRACE,
        span_id=number.to_bytes(8, "big"),
        parent_id=b"",
        name="wave",
        start_ns=1_700_000_000_000_000_000,
        end_ns=1_700_000_000_000_000_000 + number,
        attributes=(("ebbtide.wave", number),),
        episode=episode,
        seq=number,
    )


def batch(count: int = 1) -> tuple[list[Span], Resource]:
    return [span(number) for number in range(1, count + 1)], RESOURCE


def payload(count: int = 1) -> bytes:
    return encode_traces(*batch(count))
