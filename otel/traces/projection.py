"""The journal as traces: an incremental reader of its records that returns each span once, when it has ended.

The same records give the same spans, in any batches, in any process, at any time. It may begin anywhere
outside of a shutdown, such as at a segment's checkpoint; it skips a shutdown without its begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.outage_events import OutageBegan
from ebbtide.events.record.fold import grouped_by_episode
from ebbtide.events.segment import Header
from ebbtide.otel.span import Resource, Span
from ebbtide.otel.traces.outage_trace import OutageTrace
from ebbtide.otel.traces.shutdown_trace import ShutdownTrace
from ebbtide.otel.traces.trace import EpisodeTrace, resource_of, with_given

#: Remembers the resources of so many latest shutdowns.
RESOURCES_MAX = 4096

#: The first decisions of an episode. They record the configured attributes of its resource.
BEGINS = (ShutdownBegan.__name__, OutageBegan.__name__)


class Projection:
    def __init__(self) -> None:
        self._resources: dict[int, Resource] = {}
        self._trace: EpisodeTrace | None = None
        self._fact: RawRecord | None = None

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[Span]:
        """The spans that end in these records, in the order of their ends.

        ``records`` are whole steps in order, as in `events.reader.Batch` with their ``header``; if a step
        closes one shutdown and opens the next, each record goes to its own. Raises events.codec.BadPayload.
        """
        spans: list[Span] = []
        for raw in grouped_by_episode(records):
            if not raw.cause:
                self._fact = raw
            trace, fact = self._trace, self._fact or raw
            if raw.episode and (trace is None or raw.episode != trace.fold.number):
                if trace is not None and not trace.over:  # the journal has a gap
                    trace.abandon()
                    spans += trace.finished
                trace = self._trace = self._begin(raw, fact, header, journal_id)
            late = trace is not None and trace.over and not raw.episode and raw.tag in trace.fold.late_tags
            if trace is None or (trace.over and not late):
                continue
            if raw.episode or late:
                trace.take(raw, header, fact)
                if raw.tag in BEGINS:
                    event = decode_event(raw.tag, raw.payload)
                    assert isinstance(event, ShutdownBegan | OutageBegan)
                    known = self._resources[raw.episode]
                    self._resources[raw.episode] = with_given(known, event.resource)
            spans += trace.finished
            trace.finished.clear()
        return spans

    def resource(self, episode: int) -> Resource:
        """The common attributes of a shutdown's spans. Raises KeyError."""
        return self._resources[episode]

    def _begin(
        self, raw: RawRecord, first: RawRecord, header: Header, journal_id: bytes
    ) -> EpisodeTrace | None:
        """None: the fact that opens an episode is its first record, even if it still belonged to another.
        Without it there is no trace id, and so no span.
        """
        if first.seq != raw.episode:
            return None
        self._resources[raw.episode] = resource_of(header, journal_id)
        if len(self._resources) > RESOURCES_MAX:
            del self._resources[next(iter(self._resources))]
        if header.of_outages:
            return OutageTrace(first, raw.episode, header)
        former = self._trace if isinstance(self._trace, ShutdownTrace) else None
        return ShutdownTrace(first, raw.episode, header, former)
