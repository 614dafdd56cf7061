"""Sends the traces of a journal and keeps a cursor.

It sends spans in the order of the records that end them. So one record's number is the cursor.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import trio
from msgspec.structs import replace

from ebbtide.events.catalog import JournalPath, Segment, Source, find_path
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import Batch, History, Scan
from ebbtide.events.segment import Header, Link
from ebbtide.otel.cursor import Cursor
from ebbtide.otel.destination import Destination
from ebbtide.otel.otlp import sender_for
from ebbtide.otel.projection import Projection
from ebbtide.otel.sending import Accepted, Answer, GaveUp, Rejected, Sending, Sink
from ebbtide.otel.span import Resource, Span

#: Of one request, as in the SDKs: some hundred kilobytes.
BATCH_SPANS_MAX = 512
#: Of one look: a shutdown of a dozen pods, and 10 ms of projection.
READ_RECORDS = 512


class BatchSender(Protocol):
    """As in `otlp.Sender`."""

    async def send(self, spans: Sequence[Span], resource: Resource) -> Answer: ...

    async def close(self) -> None: ...


class SpanSender:
    """``settled`` gets the spans of each settled request; before, ``lost`` gets the rejected ones' number and
    the reason.
    """

    def __init__(
        self,
        sender: BatchSender,
        sending: Sending,
        settled: Callable[[Sequence[Span]], None],
        lost: Callable[[int, Sequence[Span], str], None],
    ) -> None:
        self._sender, self._sending = sender, sending
        self._settled, self._lost = settled, lost
        #: Halved when a server refuses a size.
        self._spans_max = BATCH_SPANS_MAX

    async def deliver(self, spans: Sequence[Span], resource: Resource) -> None:
        """Raises GaveUp with the rest unsettled."""
        todo = list(spans)
        while todo:
            batch = todo[: self._spans_max]
            answer: Accepted | Rejected = await self._sending.ask(partial(self._sender.send, batch, resource))
            if isinstance(answer, Rejected) and answer.too_large and len(batch) > 1:
                self._spans_max = len(batch) // 2
                continue
            del todo[: len(batch)]
            if isinstance(answer, Rejected):
                self._lost(len(batch), batch, answer.reason)
            elif answer.rejected:
                reason = answer.reason or "partial success, without a reason"
                self._lost(min(answer.rejected, len(batch)), batch, reason)
            self._settled(batch)


#: Of records that wait for the disk: a shutdown of a hundred pods. Above it, reading waits too.
HELD_MAX = 20_000


class Tail:
    """Follows the journal: whole steps in order, each once, when they are durable.

    ``journal``: its id's begin; default: the newest. ``volatile``: locations that end with the boot, so their
    syncs do not count.
    """

    def __init__(
        self, sources: Sequence[Source], journal: str = "", from_seq: int = 0, volatile: Collection[str] = ()
    ) -> None:
        self._sources, self._journal, self._volatile = sources, journal, volatile
        #: Reading begins at this record, or before it.
        self.from_seq = from_seq
        self._names: tuple[tuple[str, str], ...] = ()
        self._path: JournalPath | None = None
        self._at: Link | None = None
        self._header: Header | None = None
        self._open_step: list[RawRecord] = []
        #: Whole steps that are not yet durable.
        self._held: deque[Batch] = deque()
        self._held_records = 0
        self._passing: Iterator[None] | None = None
        self.durable_seq = 0
        #: Why no more will come: `History`, too, ends at damage.
        self.damage = ""
        #: The last returned record.
        self.seq = 0

    @property
    def journal_id(self) -> bytes:
        """Empty until a segment was read."""
        return self._path.journal_id if self._path is not None else b""

    def end_seq(self) -> int:
        """The newest segment's last readable record. Raises OSError."""
        segments = self.look().segments
        if not segments:
            return 0
        scan = Scan(segments[-1], None)
        for _ in scan.pieces():
            pass
        return scan.end.seq

    def learn(self, durable_seq: int) -> None:
        self.durable_seq = max(self.durable_seq, durable_seq)

    def read(self, records_max: int, durable_seq: int = 0) -> list[Batch]:
        """About ``records_max`` durable records at most. ``durable_seq``: from the daemon. Raises OSError."""
        self.learn(durable_seq)
        given: list[Batch] = []
        count = 0
        while True:
            while self._held and self._held[0].records[-1].seq <= self.durable_seq:
                batch = self._held.popleft()
                given.append(batch)
                count += len(batch.records)
                self._held_records -= len(batch.records)
                self.seq = batch.records[-1].seq
            if count >= records_max or self._held_records > HELD_MAX:
                return given
            self._passing = self._passing or self._pass()
            if next(self._passing, self) is self:
                self._passing = None
                if not (self._held and self._held[0].records[-1].seq <= self.durable_seq):
                    return given

    def _pass(self) -> Iterator[None]:
        """All present records, one piece at a time."""
        segments = self.look().segments
        if self._at is not None:
            at = self._at.segment
            first = next((i for i, each in enumerate(segments) if each.number >= at), len(segments))
        else:
            begins = [each.header.link.seq + 1 if each.header else 0 for each in segments]
            reached = [i for i, seq in enumerate(begins) if seq <= max(self.from_seq, begins[0])]
            first = max(reached, default=0)
        for index in range(first, len(segments)):
            if self.damage:
                return
            following = segments[index + 1].header if index + 1 < len(segments) else None
            yield from self._segment(segments[index], following.link if following is not None else None)

    def look(self) -> JournalPath:
        """Reads headers again only when files came or went."""
        sizes = {
            (source.location, file.name): file.size for source in self._sources for file in source.files()
        }
        names, path = tuple(sizes), self._path
        # At the last look, a file with an unusable header may have been incomplete.
        if path is None or names != self._names or path.tail or not path.segments:
            path = find_path(self._sources, self._journal)
            self._journal = self._journal or path.journal_id.hex()
        else:
            tip = path.segments[-1]
            size = sizes.get((tip.source.location, tip.name), tip.size)
            path = path._replace(segments=(*path.segments[:-1], tip._replace(size=size)))
        self._names, self._path = names, path
        return path

    def _segment(self, segment: Segment, limit: Link | None) -> Iterator[None]:
        assert segment.header is not None
        scan, volatile = Scan(segment, limit), segment.source.location in self._volatile
        if self._at is not None and self._at.segment == segment.number and self._header is not None:
            scan.end, scan.header = self._at, self._header
        else:
            # A new segment continues from its link. Later records of a failed file were never durable.
            link, self._open_step = segment.header.link, []
            while self._held and self._held[-1].records[-1].seq > link.seq:
                self._held_records -= len(self._held.pop().records)
            self.learn(0 if volatile else link.seq)
        # The next segment continues before this place.
        if limit is not None and limit.segment == segment.number and scan.end.offset > limit.offset:
            return
        for piece in scan.pieces():
            # Records that a failed file has given come again in the next file, with their numbers.
            after = self._held[-1].records[-1].seq if self._held else self.seq
            for raw in piece.records:
                self._open_step.append(raw)
                if raw.flags:
                    step = [each for each in self._open_step if each.seq > after]
                    if step:
                        self._held.append(Batch(piece.header, step))
                        self._held_records += len(step)
                    self._open_step = []
            # Before the pause: after an error in the next piece the next pass begins here.
            self._at, self._header = scan.end, scan.header
            self.learn(0 if volatile else scan.durable_seq)
            yield
        self._at, self._header = scan.end, scan.header
        self.learn(0 if volatile else scan.durable_seq)
        if limit is not None and scan.damage is not None:
            # No damage if retention has removed the file.
            if any(file.name == segment.name for file in segment.source.files()):
                self.damage = f"{segment.name} is damaged behind record {scan.end.seq}: {scan.damage}"
        elif limit is not None and not volatile:
            self.learn(limit.seq)


class Log(Protocol):
    """Must not block."""

    def log(self, level: int, text: str) -> None: ...

    def well(self, reason: str) -> None:
        """``reason``: why the back end does not answer; empty: it answers."""


class OtlpSink(Sink):
    """``load`` and ``keep`` the cursor; both may raise OSError."""

    def __init__(
        self,
        tail: Tail,
        sender: BatchSender,
        log: Log,
        keep: Callable[[Cursor], None],
        load: Callable[[], Cursor | None],
    ) -> None:
        super().__init__("traces", Sending(self._trouble))
        self._tail, self._sender, self._log, self._keep = tail, sender, log, keep
        self._projection, self._load = Projection(), load
        self._spans = SpanSender(sender, self.sending, self._settled, self._lost)
        #: Made and not settled yet.
        self._waiting: deque[Span] = deque()
        self.cursor: Cursor | None = None
        #: The last record outside of a shutdown; the same before the open shutdown; the number of that.
        self._outside_seq, self._before_seq, self._episode = 0, 0, 0
        self._unwell = "the back end has not answered"

    @property
    def expects_more(self) -> bool:
        return bool(self._episode) and not self._tail.damage

    @property
    def left(self) -> str:
        return self._tail.damage

    def read(self) -> list[Batch]:
        if self.cursor is None:
            # A cursor ahead of the journal is another journal's, or the end was lost with a disk.
            end_seq = self._tail.end_seq()
            journal, found = self._tail.journal_id.hex(), self._load()
            fits = found is not None and found.of(journal, end_seq)
            self.cursor = found if found is not None and fits else Cursor(journal=journal)
            self._tail.from_seq, self.settled_seq = self.cursor.from_seq, self.cursor.seq
        return self._tail.read(READ_RECORDS, self.durable_seq)

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
            # An earlier process settled the spans up to the cursor.
            self._waiting += (span for span in made if span.seq > after)
            if number % 16 == 0:
                await trio.lowlevel.checkpoint()
        while self._waiting:
            # A request has one resource, and each boot has another.
            episode = self._waiting[0].episode
            spans = [span for span in self._waiting if span.episode == episode]
            await self._spans.deliver(spans, self._projection.resource(episode))
        read_seq = items[-1].records[-1].seq
        from_seq = self._before_seq if self._episode else read_seq + 1
        # Never back: after a start, reading begins before the cursor.
        seq, from_seq = max(self.cursor.seq, read_seq), max(self.cursor.from_seq, from_seq)
        self.cursor = replace(self.cursor, seq=seq, from_seq=from_seq)
        self.settled_seq = seq

    def _settled(self, spans: Sequence[Span]) -> None:
        assert self.cursor is not None
        self._report_well("")
        for _ in spans:
            self._waiting.popleft()
        seq = self._waiting[0].seq - 1 if self._waiting else spans[-1].seq
        self.cursor = replace(self.cursor, seq=max(self.cursor.seq, seq))

    def _lost(self, number: int, spans: Sequence[Span], reason: str) -> None:
        self._log.log(4, f"{self.name}: {number} spans of {spans[0].trace_id.hex()} were rejected: {reason}")

    def _trouble(self, reason: str) -> None:
        self._log.log(4 if reason else 6, f"{self.name}: {reason or 'they arrive again'}")
        self._report_well(reason)

    def _report_well(self, reason: str) -> None:
        if reason != self._unwell:
            self._log.well(reason)
        self._unwell = reason

    def save(self) -> None:
        if self.cursor is not None:
            # Only `cursor.load_first` reads this clock.
            self.cursor = replace(self.cursor, wall_ns=time.time_ns())
            self._keep(self.cursor)

    async def close(self) -> None:
        if self._tail.damage:
            self._log.log(3, f"{self.name}: {self._tail.damage}: the records behind it are not sent")
        await self._sender.close()


class EpisodeSpans(NamedTuple):
    spans: list[Span]
    resource: Resource


def spans_of(history: History, episode: int) -> EpisodeSpans:
    """The ended spans of an episode. Reads the history to its end.

    Raises events.codec.BadPayload, and KeyError: the journal no longer has its begin.
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
    """``trouble``: as for `Sending`."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        self.accepted, self.rejected, self.reason = 0, 0, ""
        self.trouble = trouble

    def settled(self, spans: Sequence[Span]) -> None:
        self.accepted += len(spans)

    def lost(self, number: int, spans: Sequence[Span], reason: str) -> None:
        self.rejected += number
        self.reason = reason


async def deliver(
    found: EpisodeSpans, destination: Destination, sent: Delivered, give_up_seconds: float
) -> bool:
    """Sends one trace, without a cursor: a repetition is harmless. True: every span was taken or rejected.

    Raises BadDestination.
    """
    sender = sender_for(destination)
    sending = Sending(sent.trouble, give_up_seconds=give_up_seconds)
    try:
        await SpanSender(sender, sending, sent.settled, sent.lost).deliver(*found)
    except GaveUp as error:
        sent.reason = str(error)
        return False
    finally:
        await sender.close()
    return True
