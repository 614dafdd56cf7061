"""The journal as traces: it returns each span once, when the span has ended.

The same records give the same spans, in any batches and process. A reader may begin anywhere outside of a
shutdown; it skips a shutdown without its begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.decisions import PROJECTION_VERSION, ShutdownBegan
from ebbtide.events.outage_events import OutageBegan
from ebbtide.events.record.fold import grouped_by_episode
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.outage_trace import OutageTrace
from ebbtide.otel.shutdown_trace import ShutdownTrace
from ebbtide.otel.span import Attributes, Resource, Span
from ebbtide.otel.trace import EpisodeTrace

#: Of an outage's spans.
OUTAGE_SCOPE, OUTAGE_VERSION = "ebbtide.outage", 1
#: The latest ones. A span may be sent long after its shutdown.
RESOURCES_MAX = 4096

#: They record the configured attributes of an episode's resource.
BEGINS = (ShutdownBegan.__name__, OutageBegan.__name__)


class Projection:
    def __init__(self) -> None:
        self._resources: dict[int, Resource] = {}
        self._trace: EpisodeTrace | None = None
        self._fact: RawRecord | None = None

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[Span]:
        """The spans that end in these records, in the order of their ends.

        ``records`` are whole steps, as in `events.reader.Batch` with their ``header``. Raises
        events.codec.BadPayload.
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
            if trace.finished:
                spans += trace.finished
                trace.finished.clear()
        return spans

    def resource(self, episode: int) -> Resource:
        """Raises KeyError."""
        return self._resources[episode]

    def _begin(
        self, raw: RawRecord, first: RawRecord, header: Header, journal_id: bytes
    ) -> EpisodeTrace | None:
        """None: without the fact that opened the episode there is no trace id."""
        if first.seq != raw.episode:
            return None
        self._resources[raw.episode] = resource_of(header, journal_id)
        if len(self._resources) > RESOURCES_MAX:
            del self._resources[next(iter(self._resources))]
        if header.of_outages:
            return OutageTrace(first, raw.episode, header)
        former = self._trace if isinstance(self._trace, ShutdownTrace) else None
        return ShutdownTrace(first, raw.episode, header, former)


def resource_of(header: Header, journal_id: bytes) -> Resource:
    """From the segment of an episode's begin. For an outage: the node, not the controller's machine."""
    names, digits = header.identity, journal_id.hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    service: Attributes = (
        (at.SERVICE_NAME, "ebbtide"),
        (at.SERVICE_VERSION, names.code_version),
        (at.SERVICE_INSTANCE_ID, uuid),
    )
    if header.of_outages:
        node: Attributes = ((at.NODE_NAME, names.node), (at.NODE_UID, names.machine_id))
        return Resource((*service, *node), OUTAGE_VERSION, OUTAGE_SCOPE)
    host: Attributes = (
        (at.HOST_NAME, names.node),
        (at.HOST_ID, names.machine_id),
        (at.NODE_NAME, names.node),
        (at.BOOT_ID, names.boot_id),
    )
    return Resource((*service, *host), PROJECTION_VERSION)


def with_given(resource: Resource, given: Mapping[str, str]) -> Resource:
    """With the configured attributes."""
    known = dict(resource.attributes)
    # The journal's values win, except for the service's name.
    known |= {name: value for name, value in given.items() if name not in known or name == at.SERVICE_NAME}
    return resource._replace(attributes=tuple(known.items()))
