"""Sends the metrics once, as they stand in what is durable of the journal.

Sums that do not arrive are contained in the next ones, so nothing is kept and nothing is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from events.catalog import find_path
from events.codec import BadPayload, UnknownType
from events.frames import decode
from events.history import Batch
from events.source import Source
from otel.delivery.answers import Accepted, Answer
from otel.delivery.courier import Sender
from otel.delivery.tail import Tail
from otel.metrics.fold import METERED, fold
from otel.metrics.kept import kept_meters
from otel.metrics.otlp import encode_metrics
from otel.metrics.reading import Around
from otel.metrics.state import Meters
from otel.projection import resource_of
from otel.span import Resource

#: Records of one look; the sums that the daemon keeps leave few.
READ_RECORDS = 4096


def meters_of(sources: Sequence[Source], tail: Tail) -> tuple[Meters, Resource] | None:
    """What the daemon kept, and what became durable since; None for a journal without a segment."""
    tail.look()
    segments = find_path(sources).segments
    header = segments[-1].header if segments else None
    if header is None:
        return None
    meters = kept_meters(sources, tail.journal_id)
    tail.from_seq = meters.seq + 1
    while batches := tail.read(READ_RECORDS):
        for batch in batches:
            _fold(meters, batch)
    return meters, resource_of(header, tail.journal_id)


def _fold(meters: Meters, batch: Batch) -> None:
    for raw in batch.records:
        if raw.tag in METERED:
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode(raw),))


async def send_metrics(sender: Sender, sources: Sequence[Source], tail: Tail, prefix: str) -> str:
    """Why they did not arrive; nothing where they did."""
    found = meters_of(sources, tail)
    if found is None:
        return "there is no journal yet"
    meters, resource = found
    answer: Answer = await sender.send(encode_metrics(meters, Around(time.time_ns()), resource, prefix))
    return "" if isinstance(answer, Accepted) else answer.reason
