"""One trace while it is being read: the spans that are open, and those that have just ended.

A span is made once, when it ends, from what stood in the journal until then. What becomes of it afterwards is
never written into it: another reader, at another time, must make the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from events.decisions import PROJECTION_VERSION
from events.frames import RawRecord
from events.record import episode_id
from events.segment import Header
from otel import attributes as at
from otel.ids import SpanIds, trace_id
from otel.span import Attributes, Link, Resource, Span, SpanEvent, Status, Value

#: Of one span; as many as OpenTelemetry's own SDKs keep.
EVENTS_MAX = 128

NS_PER_MS = 1_000_000

ROOT = "shutdown"


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
        self.attributes: list[tuple[str, Value]] = []
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


class Carried(NamedTuple):
    """A hook or stop that goes on in the next shutdown. ``place``: its role and container."""

    place: tuple[str, str]
    key: str
    attributes: Attributes
    link: Link


class Trace:
    """One shutdown. ``now_ns``, ``raw`` and ``fact`` are of the record that is being told.

    Times are wall-clock nanoseconds: the first record's, plus the monotonic difference within its boot.
    """

    def __init__(self, first: RawRecord, episode: int, header: Header, resource: Resource) -> None:
        self.episode = episode
        self.boot_id = header.identity.boot_id
        self.resource = resource
        self.trace_id = trace_id(first.hash)
        self.offset_ns = first.wall_ns - first.mono_ns
        self.raw = self.fact = first
        self.now_ns = self.last_ns = first.wall_ns
        #: The start that is being told, and where the record before it ends.
        self.start: RawRecord | None = None
        self.start_boot_id = ""
        self.cut_ns = 0
        self.moved = False
        self.version = PROJECTION_VERSION
        self.over = False
        self.finished: list[Span] = []
        self.opened: dict[bytes, Open] = {}
        self._ids = SpanIds(self.trace_id)
        self._attempts: dict[tuple[str, str], int] = {}
        self.root = self.begin(ROOT, "", parent=b"")
        self.root.attributes.append((at.EPISODE, episode_id(header.journal_id, episode)))
        # What the spans' stories remember of pods, waves and orders.
        self.pods: dict[str, Attributes] = {}
        self.plans: dict[str, Attributes] = {}
        self.labels: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.waves: dict[int, bytes] = {}
        self.last_wave = -1
        self.open_waves: dict[int, Open] = {}
        self.open_pods: dict[str, Open] = {}
        self.orders: dict[str, Open] = {}
        self.named: dict[str, Open] = {}
        #: The last order of its kind without a known outcome: what comes next of that kind is a retry.
        self.lost: dict[str, bytes] = {}
        self.listed: dict[str, int] = {}
        self.hook: Attributes = ()
        self.exit_codes: dict[str, int] = {}
        self.findings: dict[tuple[str, str], Attributes] = {}
        self.unfinished = 0
        self.missed = False
        #: What the cancelled shutdown before left on its way, by UID.
        self.carried: dict[str, list[Carried]] = {}

    # --- spans --------------------------------------------------------------------------------

    def begin(self, name: str, key: str, parent: bytes, attributes: Attributes = ()) -> Open:
        """A span begins now. A key that was there already gives another attempt, never the same id."""
        attempt = self._attempts.get((name, key), 0)
        self._attempts[(name, key)] = attempt + 1
        span_id = self._ids.of(name, key, attempt)
        made = self.opened[span_id] = Open(name, key, span_id, parent, self.now_ns)
        made.attributes.extend(attributes)
        return made

    def end(
        self,
        span: Open,
        attributes: Attributes = (),
        status: Status = "unset",
        text: str = "",
        end_ns: int | None = None,
    ) -> None:
        """The span has its last word; a second one is not heard."""
        if span.over:
            return
        span.over = True
        self.opened.pop(span.span_id, None)
        dropped: Attributes = ((at.DROPPED, span.dropped),) if span.dropped else ()
        end_ns = self.now_ns if end_ns is None else end_ns
        self.finished.append(
            Span(
                self.trace_id,
                span.span_id,
                span.parent_id,
                span.name,
                span.start_ns,
                max(span.start_ns, end_ns),
                (*span.attributes, *attributes, *dropped),
                self.episode,
                self.raw.seq,
                tuple(span.events),
                tuple(span.links),
                status,
                text,
            )
        )

    def point(self, name: str, key: str, parent: bytes, attributes: Attributes = ()) -> None:
        """A span without length: something that is worth a line of its own."""
        self.end(self.begin(name, key, parent, attributes))

    def link(self, span_id: bytes, what: str) -> Link:
        """To a span of this trace."""
        return Link(self.trace_id, span_id, ((at.LINK, what),))

    def note(self, name: str, attributes: Attributes = ()) -> None:
        """An event of the whole shutdown."""
        self.root.note(name, self.now_ns, attributes)

    # --- where it stands ----------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Does the record say what a start found: that the boot, or userspace, of this shutdown is over?"""
        return self.start is not None and (self.moved or self.raw.cause == self.start.seq)

    @property
    def asked_to_stop(self) -> bool:
        """Did people end the waiting, in this very step? Then no deadline was missed."""
        return self.fact.tag == "ReleaseRequested"

    def wave_id(self, wave: int) -> bytes:
        """The parent of what belongs to a wave; the shutdown itself where that wave has not begun."""
        return self.waves.get(wave, self.root.span_id)


def milliseconds(ns: int) -> int:
    return ns // NS_PER_MS


def seconds(ns: int) -> str:
    """For people: three decimals."""
    return f"{ns // 1_000_000_000}.{ns // NS_PER_MS % 1000:03d} s"
