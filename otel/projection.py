"""The journal as traces: an incremental fold over its records that gives each span once, when it has ended.

It does not matter how the records are divided into batches, in which process, or when: the same records
give the same spans. It may begin anywhere outside of a shutdown, such as at the checkpoint of a segment; a
shutdown that it did not see begin is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from events.codec import decode_event
from events.decisions import PROJECTION_VERSION
from events.episodes import parted
from events.frames import FLAG_LAST, RawRecord
from events.segment import Header
from otel import attributes as at
from otel.span import Attributes, Resource, Span
from otel.traces.shutdown import abandon, end_start
from otel.traces.table import TOLD
from otel.traces.trace import Trace

#: What this code can project. A shutdown that recorded another version needs the program that wrote it.
VERSIONS = (PROJECTION_VERSION,)

#: Shutdowns whose resource is remembered, the latest ones.
RESOURCES_MAX = 4096

#: Written at a segment's begin, with stamps of another moment.
UNTIMED = ("Checkpoint",)


class UnknownProjection(LookupError):
    """A shutdown asks for a projection that this version does not have; use the one that recorded it."""

    def __init__(self, episode: int, version: int) -> None:
        super().__init__(
            f"the shutdown at record {episode} asks for projection version {version}; "
            f"this ebbtide has {', '.join(map(str, VERSIONS))}: export it with the version that recorded it"
        )
        self.episode, self.version = episode, version


class Projection:
    """``refused``: shutdowns of an unknown projection version, by number; they give no spans."""

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self._resources: dict[int, Resource] = {}
        self._trace: Trace | None = None
        self._fact: RawRecord | None = None

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[Span]:
        """The spans that end in these records, in the order of their ends.

        ``records`` are whole steps in order, as `events.history.Batch` has them with their ``header``; of a
        step that closes one shutdown and opens the next, each record goes to its own. Raises
        events.codec.BadPayload.
        """
        spans: list[Span] = []
        boot_id, told = header.identity.boot_id, TOLD
        for raw in parted(records):
            if not raw.cause:
                self._fact = raw
            trace = self._trace
            if raw.episode and (trace is None or raw.episode != trace.episode):
                trace = self._trace = self._begin(raw, header, journal_id, spans)
            if trace is None or trace.over:
                continue
            # The monotonic clock starts anew with each boot; then only the record's own wall time is left.
            same = boot_id == trace.boot_id
            trace.now_ns = raw.mono_ns + trace.offset_ns if same else raw.wall_ns
            tell = told.get(raw.tag)
            if tell is not None and raw.episode:
                trace.raw, trace.fact = raw, self._fact or raw
                tell(trace, decode_event(raw.tag, raw.payload))
            if trace.start is not None and raw.flags & FLAG_LAST:
                end_start(trace)
            if raw.tag not in UNTIMED:
                trace.last_ns = trace.now_ns
            if trace.finished:
                self._take(trace, spans)
        return spans

    def resource(self, episode: int) -> Resource:
        """What a shutdown's spans have in common. Raises KeyError, and UnknownProjection."""
        if episode in self.refused:
            raise UnknownProjection(episode, self.refused[episode])
        return self._resources[episode]

    def _begin(self, raw: RawRecord, header: Header, journal_id: bytes, spans: list[Span]) -> Trace | None:
        """The fact that opens an episode is its first record, even where it still belonged to another."""
        former, first = self._trace, self._fact
        if former is not None and not former.over:  # the journal has a gap
            abandon(former)
            self._take(former, spans)
        if first is None or first.seq != raw.episode:
            return None
        self._remember(raw.episode, resource_of(header, journal_id))
        trace = Trace(first, raw.episode, header)
        if former is not None and former.carried:
            trace.carried = former.carried
            trace.root.links.append(former.link(former.root.span_id, "cancelled"))
        return trace

    def _remember(self, episode: int, resource: Resource) -> None:
        self._resources[episode] = resource
        if len(self._resources) > RESOURCES_MAX:
            del self._resources[next(iter(self._resources))]

    def _take(self, trace: Trace, spans: list[Span]) -> None:
        """What has ended, unless it is not ours to project."""
        ended, trace.finished = trace.finished, []
        if trace.version in VERSIONS:
            spans += ended
        else:
            self.refused[trace.episode] = trace.version


def resource_of(header: Header, journal_id: bytes, version: int = PROJECTION_VERSION) -> Resource:
    """What is constant for a shutdown, from the segment in which it began."""
    names = header.identity
    attributes: Attributes = (
        (at.SERVICE_NAME, "ebbtide"),
        (at.SERVICE_VERSION, names.code_version),
        (at.SERVICE_INSTANCE_ID, _as_uuid(journal_id)),
        (at.HOST_NAME, names.node),
        (at.HOST_ID, names.machine_id),
        (at.NODE_NAME, names.node),
        (at.BOOT_ID, names.boot_id),
    )
    return Resource(attributes, version)


def _as_uuid(journal_id: bytes) -> str:
    digits = journal_id.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
