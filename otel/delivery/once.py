"""One trace, read from a journal at rest or in memory, and sent once: no cursor, no process of its own.

For who sends a trace again by hand (``ebbtide export otlp``), and for the controller of outages, whose
journals are short and lie in the API server. To send a trace twice is harmless: each span has the same id
and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ebbtide.events.reader import History
from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.exporters import sender_for
from ebbtide.otel.delivery.sender import GaveUp, Loss, RetryingSender
from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.span import Resource, Span
from ebbtide.otel.traces.projection import Projection


class EpisodeSpans(NamedTuple):
    """All that has ended of one shutdown or outage."""

    spans: list[Span]
    resource: Resource


def spans_of(history: History, episode: int) -> EpisodeSpans:
    """Of the one whose first record has this number; reads the history to its end.

    Raises otel.traces.projection.UnknownProjection, KeyError where the journal no longer holds its begin, and
    events.codec.BadPayload.
    """
    projection = Projection()
    spans = [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
        if span.episode == episode
    ]
    return EpisodeSpans(spans, projection.resource(episode))


class Delivered:
    """What became of the spans. ``trouble`` is told why nothing arrives, and empty text when it does."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        self.accepted, self.rejected, self.reason = 0, 0, ""
        self.trouble = trouble

    async def settled(self, spans: Sequence[Span]) -> None:
        self.accepted += len(spans)

    def lost(self, loss: Loss) -> None:
        self.rejected += loss.number
        self.reason = loss.reason


async def deliver(
    found: EpisodeSpans, destination: Destination, sent: Delivered, give_up_seconds: float
) -> bool:
    """Whether every span is settled, taken or rejected. Raises BadDestination."""
    sender = sender_for(destination)
    exporter = RetryingSender(
        sender,
        readable_spans,
        settled=sent.settled,
        lost=sent.lost,
        trouble=sent.trouble,
        give_up_seconds=give_up_seconds,
    )
    try:
        await exporter.deliver(found.spans, found.resource)
    except GaveUp as error:
        # What was taken until then stays taken: the numbers say how much, and a second run sends all again.
        sent.reason = str(error)
        return False
    finally:
        await sender.aclose()
    return True
