"""The spans of one trace while it is being read: those that are open, and those that have just ended.

A span is made once, when it ends, from what stood in the journal until then. What becomes of it afterwards is
never written into it: another reader, at another time, must make the same bytes.
"""

from __future__ import annotations

from events.frames import RawRecord
from otel import attributes as at
from otel.ids import SpanIds
from otel.span import Attributes, Link, Span, SpanEvent, Status, Value

#: Of one span; as many as OpenTelemetry's own SDKs keep.
EVENTS_MAX = 128

#: Jaeger corrects a span without length, and then takes its copies for different spans.
LENGTH_NS_MIN = 1


class Open:
    """A span that has begun. ``children`` are those that cannot outlive it, by role and container."""

    __slots__ = (
        "attributes",
        "children",
        "dropped",
        "events",
        "key",
        "links",
        "name",
        "over",
        "parent_id",
        "span_id",
        "start_ns",
    )

    def __init__(self, name: str, key: str, span_id: bytes, parent_id: bytes, start_ns: int) -> None:
        self.name = name
        self.key = key
        self.span_id = span_id
        self.parent_id = parent_id
        self.start_ns = start_ns
        self.attributes: dict[str, Value] = {}
        self.events: list[SpanEvent] = []
        self.links: list[Link] = []
        self.children: dict[tuple[str, str], Open] = {}
        self.dropped = 0
        self.over = False

    def note(self, name: str, time_ns: int, attributes: Attributes = ()) -> None:
        """Something that happened within it; nothing once it is over."""
        if self.over:
            return
        if len(self.events) < EVENTS_MAX:
            self.events.append(SpanEvent(name, time_ns, attributes))
        else:
            self.dropped += 1


class Spans:
    """``raw`` and ``now_ns`` (wall clock) are of the record that is being told."""

    def __init__(self, trace_id: bytes, episode: int, first: RawRecord) -> None:
        self.trace_id = trace_id
        self.episode = episode
        self.raw = first
        self.now_ns = first.wall_ns
        self.finished: list[Span] = []
        self.opened: dict[bytes, Open] = {}
        self._ids = SpanIds(trace_id)
        self._attempts: dict[tuple[str, str], int] = {}

    def begin(self, name: str, key: str, parent: bytes, attributes: Attributes = ()) -> Open:
        """A span begins now. A key that was there already gives another attempt, never the same id."""
        attempt = self._attempts.get((name, key), 0)
        self._attempts[(name, key)] = attempt + 1
        span_id = self._ids.of(name, key, attempt)
        made = self.opened[span_id] = Open(name, key, span_id, parent, self.now_ns)
        made.attributes.update(attributes)
        return made

    def begin_again(self, name: str, key: str, parent: bytes, attributes: Attributes, before: bytes) -> Open:
        """A span that may be a retry: ``before`` is the id of the one that it links to, or empty."""
        made = self.begin(name, key, parent, attributes)
        if before:
            made.links.append(self.link(before, "retry"))
        return made

    def end(
        self,
        span: Open,
        attributes: Attributes = (),
        end_ns: int | None = None,
        status: Status = "unset",
        text: str = "",
    ) -> None:
        """The span has its last word; a second one is not heard."""
        if span.over:
            return
        span.over = True
        self.opened.pop(span.span_id, None)
        span.attributes.update(attributes)
        if span.dropped:
            span.attributes[at.DROPPED] = span.dropped
        end_ns = self.now_ns if end_ns is None else end_ns
        self.finished.append(
            Span(
                self.trace_id,
                span.span_id,
                span.parent_id,
                span.name,
                span.start_ns,
                max(span.start_ns + LENGTH_NS_MIN, end_ns),
                tuple(span.attributes.items()),
                self.episode,
                self.raw.seq,
                tuple(span.events),
                tuple(span.links),
                status,
                text,
            )
        )

    def fail(
        self, span: Open, error: at.Error, text: str, attributes: Attributes = (), end_ns: int | None = None
    ) -> None:
        """It ends with an error: for people ``text`` says which, for queries ``error``."""
        self.end(span, (*attributes, (at.ERROR_TYPE, error)), end_ns, "error", text)

    def point(self, name: str, key: str, parent: bytes, attributes: Attributes = ()) -> None:
        """A span of no time: something that is worth a line of its own."""
        self.end(self.begin(name, key, parent, attributes))

    def link(self, span_id: bytes, what: str) -> Link:
        """To a span of this trace."""
        return Link(self.trace_id, span_id, ((at.LINK, what),))
