"""The critical path in Jaeger's user interface.

Walk back from the root's end: the span that ended last, then the one that ended last before its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.backends.backends import Key


class Section(NamedTuple):
    """The exclusive part of a span, in wall-clock nanoseconds."""

    span: Span
    began_ns: int
    ended_ns: int


def critical_path(spans: Mapping[Key, Span]) -> list[Section]:
    """From the root's begin to its end."""
    (root,) = (span for span in spans.values() if not span.parent_span_id)
    children: dict[bytes, list[Span]] = {}
    for span in spans.values():
        children.setdefault(span.parent_span_id, []).append(span)
    found: list[Section] = []
    _back_from(root, root.end_time_unix_nano, children, found)
    return found[::-1]


def _back_from(span: Span, at_ns: int, children: Mapping[bytes, list[Span]], found: list[Section]) -> None:
    """The span's and its children's parts of the path before that time; the last first."""
    while True:
        before = [
            each
            for each in children.get(span.span_id, ())
            if each.end_time_unix_nano <= at_ns and each.start_time_unix_nano >= span.start_time_unix_nano
        ]
        last = max(before, key=lambda each: each.end_time_unix_nano, default=None)
        began_ns = span.start_time_unix_nano if last is None else last.end_time_unix_nano
        if began_ns < at_ns:
            found.append(Section(span, began_ns, at_ns))
        if last is None:
            return
        _back_from(last, last.end_time_unix_nano, children, found)
        at_ns = last.start_time_unix_nano
        if at_ns <= span.start_time_unix_nano:
            return
