"""A finished span, as the projection makes it and the delivery sends it.

Everything in it comes from the journal, so its bytes are the same whenever and wherever it is made.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

#: A value of an attribute, as OTLP knows them.
Value = str | int | bool | tuple[str, ...]
Attributes = tuple[tuple[str, Value], ...]
Status = Literal["unset", "ok", "error"]


class Link(NamedTuple):
    """A span of another trace (or of this one) that belongs to the same matter."""

    trace_id: bytes
    span_id: bytes
    attributes: Attributes = ()


class SpanEvent(NamedTuple):
    """Something that happened within a span. ``time_ns``: wall clock."""

    name: str
    time_ns: int
    attributes: Attributes = ()


class Span(NamedTuple):
    """``trace_id`` has 16 bytes, ``span_id`` and ``parent_id`` 8 (``parent_id`` is empty for a root).

    Times are wall-clock nanoseconds: the anchor plus the monotonic difference. ``seq`` is the record that
    ended it: the span may be sent as soon as that is durable. ``episode``: the number of its shutdown's first
    record.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    episode: int
    seq: int
    events: tuple[SpanEvent, ...] = ()
    links: tuple[Link, ...] = ()
    status: Status = "unset"
    status_text: str = ""


class Resource(NamedTuple):
    """What a shutdown's spans have in common, frozen when it began. ``version``: of the projection."""

    attributes: Attributes
    version: int
