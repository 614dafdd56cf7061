"""What a back end's waterfall shows as the critical path: the algorithm of Jaeger's user interface.

From the end of the root backwards: whoever ended last, and before it began, whoever ended last before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.backends.backends import Key


class Section(NamedTuple):
    """The part of a span that everybody waited for, in wall-clock nanoseconds."""

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
    """What of this span, and of those below it, was waited for until then; the last first."""
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
