"""One episode's trace during the reading: its fold, its open orders, and the spans that have just ended.

A span is made once, when its end is on record. Later events never change it, because another reader must make
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_MS, TYPES, Order
from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.record.fold import EpisodeFold
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
    trace_id_of,
)

#: Of one span, as in OpenTelemetry's own SDKs.
EVENTS_MAX = 128

#: Jaeger changes a span without length, and then its copies are different spans.
LENGTH_NS_MIN = 1

#: By role, the attribute at the end of a span's name.
DETAILS = {HOOK_ROLE: at.HOOK_KIND, STOP_ROLE: at.SIGNAL}

#: Why a span is an error, for queries and for people.
Failure = tuple[at.Error, str]

#: Attributes, some without a value.
Values = tuple[tuple[str, AttributeValue | None], ...]

CUT: Values = ((at.CUT, True),)


class OpenOrder:
    """An order with a span. ``links``: to the order that it repeats."""

    def __init__(self, order: Order, began_ns: int) -> None:
        self.order, self.began_ns = order, began_ns
        self.links: tuple[SpanLink, ...] = ()
        self.parent = b""
        self.attributes: dict[str, AttributeValue | None] = {}
        self.ended_ns: int | None = None

    def end(self, event: f.OrderEnded, ended_ns: int) -> None:
        self.ended_ns = ended_ns
        self.attributes |= {at.RESULT: event.result, at.REASON: event.reason}


class EpisodeTrace:
    """``raw``: the current record; ``fact`` began its step. Times are nanoseconds since the trace's begin."""

    root_role: ClassVar[str]
    #: By type tag.
    handlers: ClassVar[Mapping[str, Callable[[Any, Any], None]]]

    def __init__(self, fold: EpisodeFold, first: RawRecord) -> None:
        self.fold, self.raw, self.fact = fold, first, first
        self.trace_id = trace_id_of(first.hash)
        self._ids = SpanIds(self.trace_id)
        #: Many spans have one parent.
        self._first_ids: dict[tuple[str, str], bytes] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self.root_id = self.first_id(self.root_role, "")
        self.finished: list[Span] = []
        self.orders: dict[str, OpenOrder] = {}
        #: No more spans, except of late events.
        self.over = False

    def take(self, raw: RawRecord, header: Header, fact: RawRecord) -> None:
        """Raises BadPayload."""
        self.raw, self.fact = raw, fact
        event = self.fold.take(raw, header, fact)
        handle = self.handlers.get(raw.tag)
        if handle is not None:
            handle(self, decode_event(raw.tag, raw.payload) if event is None else event)

    def abandon(self) -> None:
        """Ends the trace, because the journal has a gap."""
        raise NotImplementedError

    @property
    def at_ns(self) -> int:
        return self.fold.point.at_ns

    def first_id(self, role: str, key: str) -> bytes:
        """The first span's id, also before that exists."""
        found = self._first_ids.get((role, key))
        if found is None:
            found = self._first_ids[role, key] = self._ids.of(role, key)
        return found

    def made(self, role: str, key: str = "") -> bool:
        return (role, key) in self._attempts

    def span(
        self,
        role: str,
        key: str,
        began_ns: int,
        attributes: Values = (),
        *,
        ended_ns: int | None = None,
        parent: bytes | None = None,
        subject: str = "",
        failed: Failure | None = None,
        events: Iterable[SpanEvent] = (),
        links: tuple[SpanLink, ...] = (),
    ) -> bytes:
        """Returns the new span's id. A repeated key gets another id."""
        attempt = self._attempts.get((role, key), 0)
        self._attempts[(role, key)] = attempt + 1
        span_id = self._ids.of(role, key, attempt) if attempt else self.first_id(role, key)
        values, noted = dict(with_value(attributes)), tuple(events)
        # Count the rest: a back end would cut them silently.
        if len(noted) > EVENTS_MAX:
            values[at.DROPPED] = len(noted) - EVENTS_MAX
        if failed is not None:
            values[at.ERROR_TYPE] = failed[0]
        name = (role, subject, str(values.get(DETAILS.get(role, ""), "")))
        began_wall_ns = self.wall_ns(began_ns)
        self.finished.append(
            Span(
                self.trace_id,
                span_id,
                self.root_id if parent is None else parent,
                " ".join(filter(None, name)),
                began_wall_ns,
                # Never before its begin: the clocks of two boots may differ.
                max(
                    began_wall_ns + LENGTH_NS_MIN, self.wall_ns(self.at_ns if ended_ns is None else ended_ns)
                ),
                tuple(values.items()),
                self.fold.number,
                self.raw.seq,
                noted[:EVENTS_MAX],
                links,
                "error" if failed else "unset",
                failed[1] if failed else "",
            )
        )
        return span_id

    def wall_ns(self, at_ns: int) -> int:
        return self.fold.started.wall_ns + at_ns

    def event(self, name: str, at_ns: int, *attributes: tuple[str, AttributeValue | None]) -> SpanEvent:
        return SpanEvent(name, self.wall_ns(at_ns), with_value(attributes))

    def link(self, span_id: bytes, what: str) -> SpanLink:
        return SpanLink(self.trace_id, span_id, ((at.LINK, what),))

    def begin_order(self, order: Order, attributes: Values = ()) -> OpenOrder:
        made = self.orders[order.key] = OpenOrder(order, self.at_ns)
        made.attributes |= {**dict(attributes), at.ORDER: order.key}
        made.parent = self.root_id
        return made

    def order_span(
        self,
        made: OpenOrder,
        attributes: Values = (),
        ended_ns: int | None = None,
        failed: Failure | None = None,
    ) -> bytes:
        order = made.order
        return self.span(
            order.span_role,
            order.key,
            made.began_ns,
            (*made.attributes.items(), *attributes),
            ended_ns=ended_ns,
            parent=made.parent,
            links=made.links,
            failed=failed,
        )

    def cut_orders(self, ended_ns: int | None = None) -> None:
        """The root does not wait for outcomes. A pod's orders end with their pod."""
        for each in self.orders.values():
            if not each.order.pod_uid:
                self.order_span(each, CUT, ended_ns)
        self.orders.clear()


def with_value(attributes: Values) -> Attributes:
    # 0 and False are values.
    return tuple([(name, value) for name, value in attributes if value or value == 0])


def orders_of(module: ModuleType) -> tuple[str, ...]:
    """The tags of orders with a span."""
    found = (kind for kind in TYPES.values() if issubclass(kind, Order) and kind.span_role)
    return tuple(kind.__name__ for kind in found if kind.__module__ == module.__name__)


def milliseconds(ns: int | None) -> int | None:
    return None if ns is None else ns // NS_PER_MS
