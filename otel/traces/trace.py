"""One shutdown's trace during the reading: its open spans, and those that have just ended.

A span is made once, at its end, from the records up to there. Later events never change it: another reader,
at another time, must make the same bytes.

`EpisodeTrace` adds the root span, and `Trace` the memory of `pod_spans` and `shutdown_trace`.
"""

from __future__ import annotations

from typing import NamedTuple

from ebbtide.events.base import NS_PER_MS, NS_PER_SECOND, episode_id
from ebbtide.events.codec import RawRecord
from ebbtide.events.decisions import FIRST_PROJECTION_VERSION
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.span import (
    HOOK_ROLE,
    STOP_ROLE,
    Attributes,
    AttributeValue,
    Span,
    SpanEvent,
    SpanIds,
    SpanLink,
    Status,
    trace_id_of,
)

#: Of one span, as in OpenTelemetry's own SDKs.
EVENTS_MAX = 128

#: Jaeger corrects a span without length, and then takes its copies for different spans.
LENGTH_NS_MIN = 1


#: The first version whose names have a subject.
SUBJECTS_FROM_VERSION = 2
#: By role, the attribute that ends such a name.
DETAILS = {HOOK_ROLE: at.HOOK_KIND, STOP_ROLE: at.SIGNAL}


class OpenSpan:
    """A span that has begun. ``children``: spans that cannot outlive it, by role and container."""

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
        "subject",
    )

    def __init__(self, name: str, key: str, span_id: bytes, parent_id: bytes, start_ns: int) -> None:
        #: Its role, which decides its id and all rules.
        self.name = name
        #: Its workload, or another bounded name.
        self.subject = ""
        self.key = key
        self.span_id = span_id
        self.parent_id = parent_id
        self.start_ns = start_ns
        self.attributes: dict[str, AttributeValue] = {}
        self.events: list[SpanEvent] = []
        self.links: list[SpanLink] = []
        self.children: dict[tuple[str, str], OpenSpan] = {}
        self.dropped = 0
        self.over = False

    def full_name(self) -> str:
        """Since version 2: ``hook shop/web exec``."""
        detail = self.attributes.get(DETAILS.get(self.name, ""), "")
        return " ".join(str(part) for part in (self.name, self.subject, detail) if part)

    def note(self, name: str, time_ns: int, attributes: Attributes = ()) -> None:
        """Adds an event; ignored after the span's end."""
        if self.over:
            return
        # Count the rest: a back end cuts them without a sign.
        if len(self.events) < EVENTS_MAX:
            self.events.append(SpanEvent(name, time_ns, attributes))
        else:
            self.dropped += 1


class Spans:
    """``raw`` and ``now_ns`` (wall clock) are of the current record."""

    def __init__(self, trace_id: bytes, episode: int, first: RawRecord) -> None:
        self.trace_id = trace_id
        #: Until its first decision records one.
        self.version = FIRST_PROJECTION_VERSION
        self.episode = episode
        self.raw = first
        self.now_ns = first.wall_ns
        self.finished: list[Span] = []
        self.opened: dict[bytes, OpenSpan] = {}
        self._ids = SpanIds(trace_id)
        self._attempts: dict[tuple[str, str], int] = {}

    def begin(self, name: str, key: str, parent: bytes, attributes: Attributes = ()) -> OpenSpan:
        """A span begins now. A repeated key gives another attempt, never the same id."""
        attempt = self._attempts.get((name, key), 0)
        self._attempts[(name, key)] = attempt + 1
        span_id = self._ids.of(name, key, attempt)
        made = self.opened[span_id] = OpenSpan(name, key, span_id, parent, self.now_ns)
        made.attributes.update(attributes)
        return made

    def begin_again(
        self, name: str, key: str, parent: bytes, attributes: Attributes, before: bytes
    ) -> OpenSpan:
        """A span that may be a retry: ``before`` is the id to link to, or empty."""
        made = self.begin(name, key, parent, attributes)
        if before:
            made.links.append(self.link(before, "retry"))
        return made

    def end(
        self,
        span: OpenSpan,
        attributes: Attributes = (),
        end_ns: int | None = None,
        status: Status = "unset",
        text: str = "",
    ) -> None:
        """Ends the span; a second end is a no-op."""
        if span.over:
            return
        span.over = True
        self.opened.pop(span.span_id, None)
        span.attributes.update(attributes)
        if span.dropped:
            span.attributes[at.DROPPED] = span.dropped
        # Never before its begin, whatever the clocks of two boots show.
        end_ns = self.now_ns if end_ns is None else end_ns
        self.finished.append(
            Span(
                self.trace_id,
                span.span_id,
                span.parent_id,
                span.full_name() if self.version >= SUBJECTS_FROM_VERSION else span.name,
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
        self,
        span: OpenSpan,
        error: at.Error,
        text: str,
        attributes: Attributes = (),
        end_ns: int | None = None,
    ) -> None:
        """It ends with an error: ``text`` for people, ``error`` for queries."""
        self.end(span, (*attributes, (at.ERROR_TYPE, error)), end_ns, "error", text)

    def point(
        self, name: str, key: str, parent: bytes, attributes: Attributes = (), subject: str = ""
    ) -> None:
        """A span of no time: an event that needs a line of its own."""
        span = self.begin(name, key, parent, attributes)
        span.subject = subject
        self.end(span)

    def link(self, span_id: bytes, what: str) -> SpanLink:
        """To a span of this trace."""
        return SpanLink(self.trace_id, span_id, ((at.LINK, what),))


# --- one shutdown ---------------------------------------------------------------------------------

ROOT = "shutdown"


class CarriedSpan(NamedTuple):
    """A hook or stop that continues in the next shutdown. ``place``: its role and container."""

    place: tuple[str, str]
    key: str
    attributes: Attributes
    link: SpanLink


class PodFacts(NamedTuple):
    """A planned pod: ``names`` for all of its spans, ``plan`` for its own.

    ``by_kubelet``: the kubelet ends it. ``workload``: ``namespace/name`` without random and counted parts.
    """

    label: str
    names: Attributes
    plan: Attributes
    by_kubelet: bool = False
    workload: str = ""


class DaemonStart:
    """A daemon's start during a shutdown: ``cut_ns`` is the end of the record before it."""

    def __init__(self, raw: RawRecord, boot_id: str, cut_ns: int, *, moved: bool) -> None:
        self.raw = raw
        self.boot_id = boot_id
        self.cut_ns = cut_ns
        #: Another boot: all open spans ended with the last one.
        self.moved = moved


class EpisodeTrace(Spans):
    """Times are wall-clock nanoseconds: the first record's, plus the monotonic difference within its boot.

    ``fact`` began the current step. ``last_ns`` is the time of the record before.
    """

    def __init__(self, root: str, first: RawRecord, episode: int, header: Header) -> None:
        super().__init__(trace_id_of(first.hash), episode, first)
        self.boot_id, self.node = header.identity.boot_id, header.identity.node
        self.offset_ns = first.wall_ns - first.mono_ns
        self.fact = first
        self.last_ns = first.wall_ns
        self.over = False
        self.root = self.begin(root, "", parent=b"")
        self.root.attributes[at.EPISODE] = episode_id(header.journal_id, episode)

    def note(self, name: str, attributes: Attributes = ()) -> None:
        """An event of the whole."""
        self.root.note(name, self.now_ns, attributes)


class Trace(EpisodeTrace):
    """A shutdown's."""

    def __init__(self, first: RawRecord, episode: int, header: Header) -> None:
        super().__init__(ROOT, first, episode, header)
        self.start: DaemonStart | None = None
        # Waves.
        self.waves: dict[int, bytes] = {}
        self.open_waves: dict[int, OpenSpan] = {}
        self.last_wave = -1
        # Pods and their containers.
        self.pods: dict[str, PodFacts] = {}
        self.open_pods: dict[str, OpenSpan] = {}
        self.outcomes: dict[str, str] = {}
        self.hook: Attributes = ()
        self.exit_codes: dict[str, int] = {}
        self.findings: dict[tuple[str, str], Attributes] = {}
        #: Of signalled pods, by container: why the runtime refused the signal; empty: it did not.
        self.refusals: dict[str, dict[str, str]] = {}
        #: Of pods whose delete the API server refused: why.
        self.undeleted: dict[str, str] = {}
        #: SIGKILLs without a known effect.
        self.unmet: dict[str, None] = {}
        #: Open work of the cancelled shutdown before, by UID.
        self.carried: dict[str, list[CarriedSpan]] = {}
        # Orders, and spans that exist once at a time.
        self.orders: dict[str, OpenSpan] = {}
        self.named: dict[str, OpenSpan] = {}
        self.listed: dict[str, int] = {}
        #: By role, a lost order: the next one of its kind is a retry.
        self.lost: dict[str, bytes] = {}
        self.unfinished = 0
        self.missed = False

    # --- where it stands ----------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Does the record report that this shutdown's boot, or userspace, is over?"""
        return self.start is not None and (self.start.moved or self.raw.cause == self.start.raw.seq)

    @property
    def cut_ns(self) -> int:
        """The end of the finished boot's record; or now."""
        return self.start.cut_ns if self.start is not None and self.gone else self.now_ns

    @property
    def asked_to_stop(self) -> bool:
        """Did people end the wait in this very step? Then no deadline was missed."""
        return self.fact.tag == "ReleaseRequested"

    def left_behind(self, pods: int) -> None:
        """The wait for so many pods is over."""
        self.unfinished = pods
        self.missed = pods > 0 and not self.asked_to_stop

    def wave_id(self, wave: int) -> bytes:
        """The parent for a wave's spans; the shutdown itself before the wave's begin."""
        return self.waves.get(wave, self.root.span_id)


def milliseconds(ns: int) -> int:
    return ns // NS_PER_MS


def seconds_text(ns: int) -> str:
    """For people: three decimals."""
    return f"{ns // NS_PER_SECOND}.{ns // NS_PER_MS % 1000:03d} s"


def counted(number: int, what: str) -> str:
    """For people: one pod, two pods, two statuses."""
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"
