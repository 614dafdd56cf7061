"""The journal as log records, each beside the span that it is about, also what became known after its end.

A span says only what stood in the journal until its end. Everything else (a straggler that ended late, a
status that was delivered at the next boot, a daemon that came back) is a record here, with the same ids.
Pure and incremental, as the traces are: the same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from events.codec import BadPayload, UnknownType, decode_event
from events.decisions import EpisodeClosed
from events.frames import RawRecord
from events.record import Stamp
from events.segment import Header
from events.words import DEBUG, ERROR, INFO, NOTICE, WARNING, Names, say
from otel import attributes as at
from otel.correlation import pod_of, span_of
from otel.ids import trace_id
from otel.projection import RESOURCES_MAX, resource_of
from otel.span import Attributes, Resource

#: sd-daemon(3) levels to OpenTelemetry's severity numbers (logs data model, "Mapping of SeverityNumber").
SEVERITIES = {
    ERROR: (17, "ERROR"),
    WARNING: (13, "WARN"),
    NOTICE: (10, "INFO2"),
    INFO: (9, "INFO"),
    DEBUG: (5, "DEBUG"),
}

#: What is worth a record outside of the journal: DEBUG is the journal's own bookkeeping.
LEVEL_MAX = INFO

EVENT_PREFIX = "ebbtide."


class LogRecord(NamedTuple):
    """``time_ns``: wall clock. ``seq``: it may be sent as soon as that record is durable."""

    time_ns: int
    trace_id: bytes
    span_id: bytes
    severity_number: int
    severity_text: str
    event_name: str
    body: str
    attributes: Attributes
    episode: int
    seq: int


class Logs:
    """Fed with whole steps in order, from anywhere outside of a shutdown."""

    def __init__(self) -> None:
        self._names = Names()
        self._trace_id = b""
        self._episode = 0
        self._fact: RawRecord | None = None
        self._resources: dict[int, Resource] = {}
        #: No version of a projection is asked for: a record is what this program says of it.
        self.refused: dict[int, int] = {}

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[LogRecord]:
        """What is said of the records of shutdowns; a type that this version does not know says nothing."""
        made: list[LogRecord] = []
        for raw in records:
            if not raw.cause:
                self._fact = raw
            if raw.episode != self._episode:
                self._begin(raw, header, journal_id)
            record = self._tell(header, raw)
            made += () if record is None else (record,)
        return made

    def resource(self, episode: int) -> Resource:
        """What a shutdown's records have in common: the same as its spans. Raises KeyError."""
        return self._resources[episode]

    def _tell(self, header: Header, raw: RawRecord) -> LogRecord | None:
        try:
            event = decode_event(raw.tag, raw.payload)
        except (BadPayload, UnknownType):
            return None
        said = say(self._names, event, Stamp(raw.mono_ns, raw.wall_ns))
        if said is None or said.level > LEVEL_MAX or not self._trace_id:
            return None
        number, text = SEVERITIES[said.level]
        made = LogRecord(
            time_ns=header.wall_ns(raw.mono_ns),
            trace_id=self._trace_id,
            span_id=span_of(self._trace_id, event),
            severity_number=number,
            severity_text=text,
            event_name=EVENT_PREFIX + raw.tag,
            body=said.text,
            attributes=(*self._pod(pod_of(event)), (at.ACTOR, raw.actor), (at.SEQ, raw.seq)),
            episode=raw.episode,
            seq=raw.seq,
        )
        if isinstance(event, EpisodeClosed):
            self._trace_id = b""
        return made

    def _pod(self, uid: str) -> Attributes:
        if not uid:
            return ()
        namespace, _, name = self._names.of(uid).partition("/")
        return ((at.POD_UID, uid), *(((at.NAMESPACE, namespace), (at.POD_NAME, name)) if name else ()))

    def _begin(self, raw: RawRecord, header: Header, journal_id: bytes) -> None:
        """A shutdown's first record is its fact, whose hash gives the trace; one not seen has none."""
        self._episode = raw.episode
        first = self._fact
        seen = raw.episode and first is not None and first.seq == raw.episode
        self._trace_id = trace_id(first.hash) if seen and first is not None else b""
        if self._trace_id:
            self._resources[raw.episode] = resource_of(header, journal_id)
            if len(self._resources) > RESOURCES_MAX:
                del self._resources[next(iter(self._resources))]
