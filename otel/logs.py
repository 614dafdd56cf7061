"""The journal as log records, each with its span, also about events after the span's end.

A span has only the events until its end. Later ones (a late straggler, a status that was delivered at the
next boot, a daemon that came back) are records here, with the same ids. Pure and incremental like the traces:
the same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ebbtide.events.base import Stamp
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_event
from ebbtide.events.decisions import PodStopBegan, ShutdownBegan
from ebbtide.events.messages import DEBUG, ERROR, INFO, NOTICE, WARNING, Names
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Attributes, Resource, span_of, trace_id_of
from ebbtide.otel.traces.projection import RESOURCES_MAX, resource_of, with_given

#: sd-daemon(3) levels to OpenTelemetry's severity numbers (logs data model, "Mapping of SeverityNumber").
SEVERITIES = {
    ERROR: (17, "ERROR"),
    WARNING: (13, "WARN"),
    NOTICE: (10, "INFO2"),
    INFO: (9, "INFO"),
    DEBUG: (5, "DEBUG"),
}

#: DEBUG is the journal's own bookkeeping.
LEVEL_MAX = INFO

#: A step belongs at most to the shutdown that it closes and the one that it opens.
TRACES_MAX = 2

EVENT_PREFIX = "ebbtide."

Kept = TypeVar("Kept")


class LogRecord(NamedTuple):
    """``time_ns``: wall clock. ``seq``: the record that must be durable before an export."""

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
    """Takes whole steps in order, from anywhere outside of a shutdown."""

    def __init__(self) -> None:
        self._names = Names()
        #: By number, of the last shutdowns with a known begin.
        self._trace_ids: dict[int, bytes] = {}
        #: Pods of the open shutdown whose stop has begun, by UID.
        self._begun: dict[str, None] = {}
        self._fact: RawRecord | None = None
        self._resources: dict[int, Resource] = {}
        #: A log record depends on no projection version.
        self.refused: dict[int, int] = {}

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[LogRecord]:
        """The log records of shutdowns; an unknown type makes none."""
        made: list[LogRecord] = []
        for raw in records:
            if not raw.cause:
                self._fact = raw
            # A shutdown's first record is its fact, whose hash gives the trace. Without it there is no trace
            # id to refer to.
            first = self._fact
            begins = raw.episode and raw.episode not in self._trace_ids
            if begins and first is not None and first.seq == raw.episode:
                self._begun.clear()
                # The former shutdown may have its last record behind this one, in the same step.
                _keep(self._trace_ids, raw.episode, trace_id_of(first.hash), TRACES_MAX)
                _keep(self._resources, raw.episode, resource_of(header, journal_id), RESOURCES_MAX)
            record = self._record(header, raw)
            made += () if record is None else (record,)
        return made

    def resource(self, episode: int) -> Resource:
        """The common attributes of a shutdown's records: the same as of its spans. Raises KeyError."""
        return self._resources[episode]

    def _record(self, header: Header, raw: RawRecord) -> LogRecord | None:
        try:
            event = decode_event(raw.tag, raw.payload)
        except (BadPayload, UnknownType):
            return None
        if isinstance(event, ShutdownBegan) and raw.episode in self._resources:
            self._resources[raw.episode] = with_given(self._resources[raw.episode], event.resource)
        if isinstance(event, PodStopBegan):
            self._begun[event.uid] = None
        # Describe first: names also come from events without a log record.
        message = event.describe(self._names, Stamp(raw.mono_ns, raw.wall_ns))
        trace = self._trace_ids.get(raw.episode)
        if message.level > LEVEL_MAX or trace is None:
            return None
        number, text = SEVERITIES[message.level]
        uid = event.pod_uid
        pod: Attributes = ((at.POD_UID, uid),) if uid else ()
        namespace, _, name = self._names.of(uid).partition("/")
        if uid and name:
            pod = (*pod, (at.NAMESPACE, namespace), (at.POD_NAME, name))
        return LogRecord(
            time_ns=header.wall_ns(raw.mono_ns),
            trace_id=trace,
            span_id=span_of(trace, event, self._begun),
            severity_number=number,
            severity_text=text,
            event_name=EVENT_PREFIX + raw.tag,
            body=message.text,
            attributes=(*pod, (at.ACTOR, raw.actor), (at.SEQ, raw.seq), (at.RECORD_HASH, raw.hash.hex())),
            episode=raw.episode,
            seq=raw.seq,
        )


def _keep(kept: dict[int, Kept], episode: int, value: Kept, count_max: int) -> None:
    """Drops the oldest one."""
    kept[episode] = value
    if len(kept) > count_max:
        del kept[next(iter(kept))]
