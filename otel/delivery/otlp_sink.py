"""Where traces, log records and metrics go: what is made of the journal, how it is cut into requests, and how
far that came.

Spans leave in the order of the records that end them, so one number says what is settled. Making the open
ones again needs an earlier record: a projection can begin only outside of a shutdown.

`deliver` sends the spans of one trace without a cursor: for ``ebbtide export otlp``, and for the controller
of outages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import trio
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Source, find_path
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_record
from ebbtide.events.reader import Batch, History
from ebbtide.events.segment import Header
from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery.cursor import Cursor, Rejection
from ebbtide.otel.delivery.destination import PATHS, TRACES_PATH, BadDestination, Destination, SignalName
from ebbtide.otel.delivery.journal_tail import Tail
from ebbtide.otel.delivery.otlp_sender import sender_for
from ebbtide.otel.delivery.sending import Accepted, Answer, GaveUp, Rejected, Sending, Sink
from ebbtide.otel.logs import Logs
from ebbtide.otel.meters import METERED, Meters, fold, kept_meters
from ebbtide.otel.metric_table import ReadContext
from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.span import Resource, Span
from ebbtide.otel.traces.projection import Projection, resource_of, with_given

#: Spans of one request, as in the SDKs: some hundred kilobytes.
BATCH_SPANS_MAX = 512
#: Records of one look: a shutdown of a dozen pods, and 5 ms of projecting.
READ_RECORDS = 512
#: Spans that were refused for so long, and at so many starts, go on record as rejected: long enough to come
#: back from holidays and renew a token, but not for ever in front of all others.
REFUSED_DAYS_MAX, REFUSALS_MAX = 7, 5
NS_PER_DAY = 86_400 * NS_PER_SECOND


class BatchSender(Protocol):
    """`otlp_sender.Sender`."""

    async def send(self, batch: Any) -> Answer: ...

    async def close(self) -> None: ...


#: Spans, or log records, in the SDK's types.
BatchMaker = Callable[[Sequence[Any], Resource], Any]


class Loss(NamedTuple):
    """``number`` of these spans will never be taken."""

    spans: tuple[Span, ...]
    number: int
    reason: str


class SpanSender:
    """``settled`` gets the spans of each request whose answer settles them; before it ``lost``, if some were
    rejected.
    """

    def __init__(
        self,
        sender: BatchSender,
        readable: BatchMaker,
        sending: Sending,
        settled: Callable[[Sequence[Span]], Awaitable[None]],
        lost: Callable[[Loss], None],
    ) -> None:
        self._sender, self._readable, self._sending = sender, readable, sending
        self._settled, self._lost = settled, lost
        #: Halved when a server refuses a size.
        self._spans_max = BATCH_SPANS_MAX

    async def deliver(self, spans: Iterable[Span], resource: Resource) -> None:
        """All of one resource, in order. Raises GaveUp with the rest unsettled."""
        todo = list(spans)
        while todo:
            batch = todo[: self._spans_max]
            # Made once: the same bytes each time, by which a back end knows a span again.
            send = partial(self._sender.send, self._readable(batch, resource))
            answer: Accepted | Rejected = await self._sending.ask(send)
            if isinstance(answer, Rejected) and answer.too_large and len(batch) > 1:
                self._spans_max = len(batch) // 2
                continue
            del todo[: len(batch)]
            if isinstance(answer, Rejected):
                self._lost(Loss(tuple(batch), len(batch), answer.reason))
            elif answer.rejected:
                # A partial success does not name them: the whole batch is on record.
                reason = answer.reason or "partial success, without a reason"
                self._lost(Loss(tuple(batch), min(answer.rejected, len(batch)), reason))
            await self._settled(batch)


# --- the signals -----------------------------------------------------------------------------------


class SignalProjection(Protocol):
    """Fed with whole steps in order."""

    refused: dict[int, int]

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> Sequence[Any]: ...

    def resource(self, episode: int) -> Resource: ...


class Signal(NamedTuple):
    """``cursor``: the side file's name."""

    name: SignalName
    cursor: str
    project: Callable[[], SignalProjection]
    readable: BatchMaker


TRACES = Signal("traces", cursors.FILE_NAME, Projection, readable_spans)


def signals_of(destination: Destination) -> tuple[Signal, ...]:
    """The signals that have a cursor; the traces first."""
    if "logs" not in destination.signals:
        return (TRACES,)
    # Most nodes send traces alone: they do not load this part of the SDK.
    from ebbtide.otel.sdk_beside import readable_logs

    return (TRACES, Signal("logs", cursors.LOGS_NAME, Logs, readable_logs))


def destination_for(destination: Destination, signal: SignalName) -> Destination:
    """The signal's own destination, else the same back end. Raises BadDestination."""
    path = PATHS[signal]
    if own := next((own for each, own in destination.beside.items() if each == signal), None):
        return own
    if destination.exporter or destination.protocol == "grpc" or path == TRACES_PATH:
        return destination
    parts = urlsplit(destination.endpoint)
    if not parts.path.endswith(TRACES_PATH):
        raise BadDestination(
            f"{path} does not follow from {parts.path}: name the endpoint without a path of traces"
        )
    whole = parts._replace(path=parts.path.removesuffix(TRACES_PATH) + path)
    return replace(destination, endpoint=urlunsplit(whole))


class Log(Protocol):
    """Must not block."""

    def log(self, level: int, text: str) -> None: ...

    def well(self, reason: str) -> None:
        """The back end answers now, or the reason why it does not."""


class OtlpSink(Sink):
    """One signal. ``well``: whether to report how the back end is. ``load``, ``keep``: read and
    write the cursor; they may raise OSError.
    """

    def __init__(
        self,
        signal: Signal,
        tail: Tail,
        sender: BatchSender,
        log: Log,
        keep: Callable[[Cursor], None],
        load: Callable[[], Cursor | None],
    ) -> None:
        super().__init__(signal.name, Sending(self._trouble))
        self._tail, self._sender, self._log, self._keep = tail, sender, log, keep
        self._projection, self._load = signal.project(), load
        self._spans = SpanSender(sender, signal.readable, self.sending, self._settled, self._lost)
        #: Made and not settled yet.
        self._waiting: deque[Span] = deque()
        self.cursor: Cursor | None = None
        #: The last record outside of a shutdown; the same before the open shutdown; its number.
        self._outside_seq, self._before_seq, self._episode = 0, 0, 0
        self._unwell = "the back end has not answered"
        self._unknown: set[int] = set()

    def learn(self, durable_seq: int) -> None:
        self._tail.learn(durable_seq)
        super().learn(durable_seq)

    @property
    def expects_more(self) -> bool:
        return bool(self._episode) and not self._tail.damage

    @property
    def left(self) -> str:
        return self._tail.damage

    def read(self) -> list[Batch]:
        if self.cursor is None:
            # A cursor ahead of the journal belongs to another one, or the end was lost with a disk.
            end_seq = self._tail.end_seq()
            journal, found = self._tail.journal_id.hex(), self._load()
            fits = found is not None and found.of(journal, end_seq)
            self.cursor = found if found is not None and fits else Cursor(journal=journal)
            self._tail.from_seq, self.settled_seq = self.cursor.from_seq, self.cursor.seq
        return self._tail.read(READ_RECORDS)

    async def take(self, items: list[Batch]) -> None:
        assert self.cursor is not None
        after = self.cursor.seq
        for number, batch in enumerate(items):
            for raw in batch.records:
                if not raw.episode:
                    self._outside_seq = raw.seq
                elif raw.episode != self._episode:
                    self._before_seq = self._outside_seq
                self._episode = raw.episode
            made = self._projection.feed(batch.header, batch.records, self._tail.journal_id)
            # Spans up to the cursor were settled by an earlier process.
            self._waiting += (span for span in made if span.seq > after)
            if number % 16 == 0:
                await trio.lowlevel.checkpoint()
        for episode, version in self._projection.refused.items():
            if episode not in self._unknown:
                self._unknown.add(episode)
                what = f"the shutdown at record {episode} needs projection version {version}"
                how = "export it with the ebbtide that recorded it"
                self._log.log(4, f"{self.name}: {what}: {how}")
        try:
            while self._waiting:
                # A request has one resource, and two boots of a node are two.
                resource = self._projection.resource(self._waiting[0].episode)
                await self._spans.deliver(self._of_one_episode(), resource)
        except GaveUp as error:
            if error.refused:
                self._refused(str(error))
            raise
        read_seq = items[-1].records[-1].seq
        from_seq = self._before_seq if self._episode else read_seq + 1
        # Never back: after a start the journal is read again from before the cursor.
        seq, from_seq = max(self.cursor.seq, read_seq), max(self.cursor.from_seq, from_seq)
        self.cursor = replace(self.cursor, seq=seq, from_seq=from_seq)
        self.settled_seq = seq
        self.moved.set()
        self.moved = trio.Event()

    def _of_one_episode(self) -> list[Span]:
        episode = self._waiting[0].episode
        return list(takewhile(lambda span: span.episode == episode, self._waiting))

    # --- what became of them -------------------------------------------------------------------

    async def _settled(self, spans: Sequence[Span]) -> None:
        self._report_well("")
        self._settle(spans, reason="")

    def _settle(self, spans: Sequence[Span], reason: str) -> None:
        """The first that wait. No earlier refusal counts any longer."""
        assert self.cursor is not None
        for _ in spans:
            self._waiting.popleft()
        seq = self._waiting[0].seq - 1 if self._waiting else spans[-1].seq
        seq = max(self.cursor.seq, seq)
        self.cursor = replace(self.cursor, seq=seq, reason=reason, refusals=0, refused_wall_ns=0)

    def _lost(self, loss: Loss) -> None:
        assert self.cursor is not None
        first, last = loss.spans[0], loss.spans[-1]
        rejection = Rejection(
            wall_ns=wall_ns(),
            trace_id=first.trace_id.hex(),
            spans=loss.number,
            first_seq=first.seq,
            last_seq=last.seq,
            reason=loss.reason,
        )
        self.cursor = self.cursor.with_rejection(rejection)
        items = "spans" if self.name == "traces" else "records"
        what = f"{loss.number} {items} of {rejection.trace_id} were rejected"
        self._log.log(4, f"{self.name}: {what}: {loss.reason}")

    def _refused(self, reason: str) -> None:
        """After too many refusals of the same spans, put them on record as rejected."""
        assert self.cursor is not None
        now_ns, since_ns = wall_ns(), self.cursor.refused_wall_ns
        # The first time, or a clock that was set back.
        if not 0 < since_ns <= now_ns:
            since_ns = now_ns
        refusals = self.cursor.refusals + 1
        if refusals < REFUSALS_MAX or now_ns - since_ns < REFUSED_DAYS_MAX * NS_PER_DAY:
            self.cursor = replace(self.cursor, reason=reason, refusals=refusals, refused_wall_ns=since_ns)
            return
        spans = self._of_one_episode()[:BATCH_SPANS_MAX]
        self._lost(Loss(tuple(spans), len(spans), reason))
        self._settle(spans, reason)

    def _trouble(self, reason: str) -> None:
        self._log.log(4 if reason else 6, f"{self.name}: {reason or 'they arrive again'}")
        self._report_well(reason)

    def _report_well(self, reason: str) -> None:
        # A shutdown waits for the traces alone.
        if reason != self._unwell and self.name == "traces":
            self._log.well(reason)
        self._unwell = reason

    def save(self) -> None:
        if self.cursor is not None:
            self.cursor = replace(self.cursor, wall_ns=wall_ns())
            self._keep(self.cursor)

    async def close(self) -> None:
        if self._tail.damage:
            self._log.log(3, f"{self.name}: {self._tail.damage}: what is behind it is not sent")
        await self._sender.close()


def wall_ns() -> int:
    """For the record; no decision but the age of a refusal depends on this clock."""
    return time.time_ns()


# --- the metrics, once -----------------------------------------------------------------------------


def meters_of(
    sources: Sequence[Source], tail: Tail, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[Meters, Resource] | None:
    """The sums that the daemon kept, and what became durable since. None: the journal has no segment."""
    tail.look()
    segments = find_path(sources).segments
    header = segments[-1].header if segments else None
    if header is None:
        return None
    # The daemon's sums also count what retention has removed. After them only durable records are added: a
    # counter never goes back.
    meters = kept_meters(sources, tail.journal_id)
    tail.from_seq = meters.seq + 1
    while batches := tail.read(READ_RECORDS):
        for batch in batches:
            for raw in batch.records:
                if raw.tag in METERED:
                    with suppress(BadPayload, UnknownType):
                        fold(meters, (decode_record(raw),))
    return meters, with_given(resource_of(header, tail.journal_id), given)


async def send_metrics(
    sender: BatchSender, sources: Sequence[Source], tail: Tail, prefix: str, given: Mapping[str, str]
) -> str:
    """Why they did not arrive; empty: they did. The next ones contain them."""
    found = meters_of(sources, tail, given)
    if found is None:
        return "there is no journal yet"
    from ebbtide.otel.sdk_beside import metrics_data

    meters, resource = found
    answer = await sender.send(metrics_data(meters, ReadContext(time.time_ns()), resource, prefix))
    return "" if isinstance(answer, Accepted) else answer.reason


# --- one trace, once -------------------------------------------------------------------------------


class EpisodeSpans(NamedTuple):
    """All that has ended of one shutdown or outage."""

    spans: list[Span]
    resource: Resource


def spans_of(history: History, episode: int) -> EpisodeSpans:
    """``episode``: the number of its first record. Reads the history to its end.

    Raises otel.traces.projection.UnknownProjection, events.codec.BadPayload, and KeyError: the journal no
    longer has its begin.
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
    """What became of the spans. ``trouble``: as for `Sending`."""

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
    """Whether every span was taken or rejected. Sending a trace again is harmless. Raises BadDestination."""
    sender = sender_for(destination)
    sending = Sending(sent.trouble, give_up_seconds=give_up_seconds)
    try:
        await SpanSender(sender, readable_spans, sending, sent.settled, sent.lost).deliver(*found)
    except GaveUp as error:
        sent.reason = str(error)
        return False
    finally:
        await sender.close()
    return True
