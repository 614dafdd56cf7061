"""The exporter's work: read what is durable, send what has ended there, remember how far that came, and go.

It runs beside the shutdown in a process of its own and may be killed at any moment. Everything that it
holds can be made again from the journal; nothing that it does is waited for longer than somebody decided
beforehand.

`Exporter` has two loops, one from the journal to `PendingSpans` and one from there to the back end. Spans
come in the order of the records that end them and leave in it, so one number tells what is settled. Where
reading has to begin again is another matter: a projection can begin only outside of a shutdown.
`DeliveryProgress` is the cursor while it moves: what is settled, what was rejected, what a back end refuses
for now. `Tail` follows the journal for them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

import trio
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import JournalPath, Segment, Source, find_path
from ebbtide.events.codec import BadPayload, RawRecord
from ebbtide.events.reader import Batch, Scan
from ebbtide.events.segment import Header, Link
from ebbtide.otel.delivery.cursor import Cursor, Rejection
from ebbtide.otel.delivery.pipes import innermost_error
from ebbtide.otel.delivery.sender import (
    BATCH_SPANS_MAX,
    BatchMaker,
    GaveUp,
    Loss,
    RetryingSender,
    Sender,
    wall_ns,
)
from ebbtide.otel.span import Resource, Span
from ebbtide.otel.traces.projection import Projection

# --- following a journal for its durable records -----------------------------------------------

# Whole steps, in order, each once, and none that a power cut could take. Every frame says the highest record
# that was known durable when it was written, a later segment's link vouches for what it goes on from, and the
# daemon itself may say more. What lies above all that is held back.

#: Records read ahead of what is durable: a shutdown of a hundred pods. Then reading waits for the disk.
HELD_MAX = 20_000


class Tail:
    """``read`` gives what has become durable since the last call. ``journal``: the id's first 8 digits.

    ``volatile``: locations that go with the boot. What is synced there, and only there, a power cut takes.
    """

    def __init__(
        self, sources: Sequence[Source], journal: str = "", from_seq: int = 0, volatile: Collection[str] = ()
    ) -> None:
        self._volatile = volatile
        self._sources = sources
        self._journal = journal
        #: Reading begins at this record at the latest.
        self.from_seq = from_seq
        self._names: tuple[tuple[str, str], ...] = ()
        self._path: JournalPath | None = None
        self._at: Link | None = None
        self._header: Header | None = None
        self._open_step: list[RawRecord] = []
        self._held: list[Batch] = []
        self._passing: Iterator[None] | None = None
        self.durable_seq = 0
        #: Why nothing more will ever come: what stands behind damage is not the journal's, as in `History`.
        self.damage = ""
        #: The last record that was given.
        self.seq = 0

    @property
    def journal_id(self) -> bytes:
        """16 bytes; empty until a segment was seen."""
        return self._path.journal_id if self._path is not None else b""

    @property
    def read_seq(self) -> int:
        """The last record of a whole step that was read, durable or not."""
        return self._held[-1].records[-1].seq if self._held else self.seq

    def end_seq(self) -> int:
        """The last record that can be read in the newest segment. Raises OSError."""
        segments = self.look().segments
        if not segments:
            return 0
        scan = Scan(segments[-1], None)
        for _ in scan.pieces():
            pass
        return scan.end.seq

    def learn(self, durable_seq: int) -> None:
        """What the daemon reports its disk to have confirmed."""
        self.durable_seq = max(self.durable_seq, durable_seq)

    def read(self, records_max: int) -> list[Batch]:
        """At most about so many records; none: there is nothing new. Raises OSError."""
        given: list[Batch] = []
        count = 0
        while count < records_max:
            for batch in self._release():
                given.append(batch)
                count += len(batch.records)
            # The disk is far behind: memory is bounded, and nothing more can be given before it catches up.
            if sum(len(batch.records) for batch in self._held) > HELD_MAX:
                break
            self._passing = self._passing or self._pass()
            if next(self._passing, self) is self:
                self._passing = None
                given += self._release()
                break
        return given

    def _release(self) -> list[Batch]:
        """What of the held steps is durable, as a whole step is."""
        given = []
        while self._held:
            batch = self._held[0]
            # Back to the last end of a step that is durable: a projection of half a step would end spans
            # with what the other half may still say otherwise.
            keep = len(batch.records)
            while keep and not (
                batch.records[keep - 1].seq <= self.durable_seq and batch.records[keep - 1].flags
            ):
                keep -= 1
            if not keep:
                break
            given.append(Batch(batch.header, batch.records[:keep]))
            self.seq = batch.records[keep - 1].seq
            if keep < len(batch.records):
                self._held[0] = Batch(batch.header, batch.records[keep:])
                break
            self._held.pop(0)
        return given

    # --- from files to steps ------------------------------------------------------------------

    def _pass(self) -> Iterator[None]:
        """All that is there now, one piece at a time."""
        segments = self.look().segments
        # Reading goes on in the segment where it stopped, or begins at the last one that begins no later than
        # `from_seq`.
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
        """The path, found anew only where files came or went; sizes are always those of now."""
        sizes = {
            (source.location, file.name): file.size for source in self._sources for file in source.files()
        }
        names = tuple(sizes)
        path = self._path
        # Anew also where a file was of no use: its header may have been in the making at the last look.
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
            # A new segment goes on from its link: what was read behind that place, in a file that failed, has
            # no part in the journal. It cannot have been given: it was never durable.
            link = segment.header.link
            self._open_step = []
            while self._held and self._held[-1].records[-1].seq > link.seq:
                batch = self._held.pop()
                kept = [raw for raw in batch.records if raw.seq <= link.seq]
                if kept:
                    self._held.append(Batch(batch.header, kept))
            self.learn(0 if volatile else link.seq)
        # Read beyond the place from which the next segment goes on: all that counts of this one is known.
        if limit is not None and limit.segment == segment.number and scan.end.offset > limit.offset:
            return
        for piece in scan.pieces():
            records = [*self._open_step, *piece.records]
            whole = len(records) - len(piece.records) + piece.whole if piece.whole else 0
            self._open_step = records[whole:]
            # What a failed file has already given is carried over to the next one with its numbers.
            after = self.read_seq
            fresh = [raw for raw in records[:whole] if raw.seq > after]
            if fresh:
                self._held.append(Batch(piece.header, fresh))
            # Noted before the pause: an error in the next piece ends this pass, and the next pass begins
            # here.
            self._at, self._header = scan.end, scan.header
            self.learn(0 if volatile else scan.durable_seq)
            yield
        self._at, self._header = scan.end, scan.header
        self.learn(0 if volatile else scan.durable_seq)
        if limit is not None and scan.damage is not None:
            # One that retention took while it was read is not damaged.
            if any(file.name == segment.name for file in segment.source.files()):
                self.damage = f"{segment.name} is damaged behind record {scan.end.seq}: {scan.damage}"
        elif limit is not None and not volatile:
            self.learn(limit.seq)


# --- the exporter ------------------------------------------------------------------------------

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ExporterLog(Protocol):
    """Where the exporter reports what happened; must not block."""

    def log(self, level: int, text: str) -> None: ...

    def well(self, reason: str) -> None:
        """The back end answers, or why it does not: after its first answer, and whenever that changes."""


async def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    """A disk that hangs holds nobody who asks how far we are."""
    return await trio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


# --- the two loops --------------------------------------------------------------------------------

#: How often new records are looked for: soon in a shutdown, where somebody may wait, else seldom.
LOOK_SECONDS, LOOK_IDLE_SECONDS = 0.02, 0.25
#: Records of one look: a shutdown of a dozen pods, and 5 ms of projecting.
READ_RECORDS = 512
#: With nothing to send and no shutdown under way for so long the process ends.
IDLE_SECONDS = 1.0
#: When the daemon has gone the machine goes down: what is here is sent, if it goes quickly.
LINGER_SECONDS = 5.0
#: For a connection's last words.
CLOSE_SECONDS_MAX = 1.0


class Exporter:
    """One journal to one back end. ``keep`` writes the cursor, and may raise OSError; ``blocking`` runs what
    waits for a disk.
    """

    def __init__(
        self,
        tail: Tail,
        sender: Sender,
        readable: BatchMaker,
        log: ExporterLog,
        keep: Callable[[Cursor], None],
        blocking: Callable[..., Awaitable[Any]] = in_thread,
        project: Callable[[], SignalProjection] = Projection,
        name: str = "traces",
    ) -> None:
        self._project, self._name, self._items = project, name, "spans" if name == "traces" else "records"
        self._tail, self._log, self._blocking = tail, log, blocking
        self._sending = RetryingSender(
            sender, readable, settled=self._settled, lost=self._lost, trouble=self._trouble_changed
        )
        self._sender = sender
        self._progress = DeliveryProgress(keep, blocking)
        self._pending = PendingSpans(project=project)
        self._poke, self._changed = trio.Event(), trio.Event()
        self._empty_looks = 0
        self._leaving = False
        self._scope = trio.CancelScope()
        self._unwell = "the back end has not answered"
        self._unknown: list[int] = []
        self.delivered = 0
        #: The back end was given up: another start may do better.
        self.gave_up = False

    # --- life ---------------------------------------------------------------------------------

    async def run(self, found: Cursor | None) -> str:
        """Until there is nothing left to do; why it did not all go, or nothing."""
        # A cursor is believed only up to the journal's end as it is now: one that is ahead of it is of
        # another journal, or the end was lost with a disk, and would leave out what is yet to be written.
        reason = ""
        try:
            end_seq = self._tail.end_seq()
            cursor = self._progress.begin(found, self._tail.journal_id.hex(), end_seq)
            self._tail.from_seq = cursor.from_seq
            self._pending = PendingSpans(cursor.seq, self._project)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._send)
                self._scope = nursery.cancel_scope
                await self._idle()
                nursery.cancel_scope.cancel()
        except* GaveUp as group:
            error = innermost_error(group)
            assert isinstance(error, GaveUp)
            reason, self.gave_up = str(error), True
            if error.refused and self._pending:
                # After the same refusal at so many starts the spans there are no longer held on to.
                passed_over = self._progress.refused(self._pending, reason)
                if passed_over:
                    self._lost(Loss(tuple(passed_over), len(passed_over), reason))
                    self._pending.drop(len(passed_over))
        except* BadPayload as group:
            reason = f"the journal holds a record that cannot be read: {innermost_error(group)}"
            self._log.log(3, f"{self._name}: {reason}")
        except* OSError as group:
            reason = f"the journal cannot be read: {innermost_error(group)}"
            self._log.log(3, f"{self._name}: {reason}")
        finally:
            with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
                await self._sender.aclose()
        if self._tail.damage and not reason:
            reason = self._tail.damage
            self._log.log(3, f"{self._name}: {reason}: what stands behind it is not sent")
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            await self._progress.save(self._pending)
        return reason

    async def _idle(self) -> None:
        """Until nothing is left and no shutdown is under way, or the daemon has gone and nothing more
        comes.
        """
        # Done for a while, and not only once: between two records of a shutdown there is a moment with
        # nothing to do, and a process that ended there would be started again for the next one.
        while True:
            if not self._done:
                await self._next_change()
                continue
            with trio.move_on_after(0 if self._leaving else IDLE_SECONDS) as waited:
                while self._done:
                    await self._next_change()
            if waited.cancelled_caught:
                return

    @property
    def _done(self) -> bool:
        # A look that was under way when the daemon left may have begun before its last words: one more
        # decides.
        caught_up = self._empty_looks > (1 if self._leaving else 0)
        complete = self._leaving or not self._pending.episode or bool(self._tail.damage)
        return caught_up and not self._pending and complete

    def leave(self) -> None:
        """The daemon has gone. The look that is under way may have missed its last records."""
        self._leaving, self._empty_looks = True, 0
        self._poke.set()
        self._change()

    @property
    def unwell(self) -> str:
        """Why nothing arrives; empty where it does, or nothing was tried."""
        return self._sending.unwell

    def stop(self) -> None:
        """At once; what is not acknowledged is left to the next start."""
        self._scope.cancel()

    # --- from the journal to the back end -----------------------------------------------------

    async def _read(self) -> None:
        while True:
            # Made before the look: what is learned while it goes on wakes the wait behind it.
            self._poke = trio.Event()
            batches = await self._blocking(self._tail.read, READ_RECORDS)
            for batch in batches:
                self._pending.add(batch, self._tail.journal_id)
                # Shutdowns that another version recorded are reported once: that one can export them.
                for episode, version in self._pending.refused.items():
                    if episode not in self._unknown:
                        self._unknown.append(episode)
                        what = f"the shutdown at record {episode} needs projection version {version}"
                        how = "export it with the ebbtide that recorded it"
                        self._log.log(4, f"{self._name}: {what}: {how}")
                await trio.lowlevel.checkpoint()
            self._empty_looks = 0 if batches else self._empty_looks + 1
            self._change()
            while self._pending.full:
                await self._next_change()
            if not batches:
                pause = LOOK_SECONDS if self._pending.episode else LOOK_IDLE_SECONDS
                with trio.move_on_after(pause):
                    await self._poke.wait()

    async def _send(self) -> None:
        while True:
            while not self._pending:
                await self._next_change()
            spans, resource = self._pending.next(BATCH_SPANS_MAX)
            await self._sending.deliver(spans, resource)

    async def _settled(self, spans: Sequence[Span]) -> None:
        self.delivered += len(spans)
        self._report_well("")
        # Dropped before the cursor is written, never after: it says where the first that is left begins.
        self._pending.drop(len(spans))
        self._change()
        await self._progress.settled(self._pending)

    def _lost(self, loss: Loss) -> None:
        rejection = self._progress.rejected(loss)
        what = f"{loss.number} {self._items} of {rejection.trace_id} were rejected"
        self._log.log(4, f"{self._name}: {what}: {loss.reason}")

    def _trouble_changed(self, reason: str) -> None:
        self._log.log(4 if reason else 6, f"{self._name}: {reason or 'they arrive again'}")
        self._report_well(reason)
        self._change()

    def _report_well(self, reason: str) -> None:
        if reason != self._unwell:
            self._unwell = reason
            self._log.well(reason)

    # --- being asked --------------------------------------------------------------------------

    def learn(self, durable_seq: int) -> None:
        self._tail.learn(durable_seq)
        self._poke.set()

    async def flush(self, seq: int) -> str:
        """Until all that ended at or before record ``seq`` is settled; at once, and why, where the back end
        is not well. Whoever asks bounds the time.
        """
        self.learn(seq)
        while self._pending.settled_seq < seq:
            if reason := self._sending.unwell or (self._tail.damage if not self._pending else ""):
                return reason
            # Looked at again without a change as well: that a server takes too long is told by time alone.
            with trio.move_on_after(LOOK_SECONDS):
                await self._next_change()
        return ""

    # --- waiting ------------------------------------------------------------------------------

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()


# --- what waits to be sent ------------------------------------------------------------------------

#: Spans that wait: some megabytes. Then reading waits for the back end.
PENDING_SPANS_MAX = 4096


class SignalProjection(Protocol):
    """A projection of the journal, fed with whole steps in order."""

    refused: dict[int, int]

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> Sequence[Any]: ...

    def resource(self, episode: int) -> Resource: ...


class PendingSpans:
    """``after_seq``: spans that ended at or before this record are settled already and are not given
    again.
    """

    def __init__(self, after_seq: int = 0, project: Callable[[], SignalProjection] = Projection) -> None:
        self._projection = project()
        self._after_seq = after_seq
        self._spans: deque[Span] = deque()
        #: The last record that was read, the last of them outside of a shutdown, and the open shutdown's
        #: number.
        self.read_seq = 0
        self._outside_seq = 0
        self.episode = 0
        #: For each shutdown with spans here, and the open one: the last record before it that is outside of
        #: any.
        self._outside: dict[int, int] = {}
        self.made = 0

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def full(self) -> bool:
        return len(self._spans) >= PENDING_SPANS_MAX

    @property
    def refused(self) -> dict[int, int]:
        """Shutdowns of a projection version that this code does not have, by number."""
        return self._projection.refused

    def add(self, batch: Batch, journal_id: bytes) -> None:
        """Durable records, whole steps in order. Raises events.codec.BadPayload."""
        for raw in batch.records:
            if not raw.episode:
                self._outside_seq = raw.seq
            elif raw.episode != self.episode:
                self._outside.setdefault(raw.episode, self._outside_seq)
            self.episode = raw.episode
        self.read_seq = batch.records[-1].seq
        for span in self._projection.feed(batch.header, batch.records, journal_id):
            if span.seq > self._after_seq:
                self._spans.append(span)
                self.made += 1

    def next(self, count_max: int) -> tuple[Sequence[Span], Resource]:
        """The first spans, all of one shutdown; there must be one. They stay until `drop`."""
        # Of one shutdown, because a request has one resource, and two boots of a node are two.
        first = self._spans[0]
        taken: list[Span] = []
        for span in self._spans:
            if span.episode != first.episode or len(taken) == count_max:
                break
            taken.append(span)
        return taken, self._projection.resource(first.episode)

    def drop(self, count: int) -> None:
        """The first so many are settled."""
        for _ in range(count):
            self._spans.popleft()
        # Where to begin is kept for the shutdowns that still have spans here, and for the open one: its spans
        # may end long after all the others are settled.
        needed = {self.episode, self._spans[0].episode if self._spans else self.episode}
        oldest = min(needed - {0}, default=0)
        for episode in [each for each in self._outside if each < oldest or not oldest]:
            del self._outside[episode]

    @property
    def settled_seq(self) -> int:
        """Every span that ended at or before this record has been given and dropped."""
        return self._spans[0].seq - 1 if self._spans else self.read_seq

    @property
    def from_seq(self) -> int:
        """Reading from this record on makes all the spans again that are not settled, the open ones too."""
        episode = self._spans[0].episode if self._spans else self.episode
        return self._outside.get(episode, self._outside_seq) if episode else self.read_seq + 1


# --- the cursor while it moves --------------------------------------------------------------------

#: The cursor is written so seldom while spans flow: its sync must not queue behind the journal's.
SAVE_SECONDS = 1.0
#: Spans that were refused for so long, and at so many starts, are put on record and passed over: long enough
#: for somebody to come back from holidays and renew a token, and not for ever in the way of all others.
REFUSED_DAYS_MAX, REFUSALS_MAX = 7, 5
NS_PER_DAY = 86_400 * NS_PER_SECOND


class DeliveryProgress:
    """``keep`` writes the cursor, and may raise OSError; ``blocking`` runs what waits for a disk."""

    def __init__(self, keep: Callable[[Cursor], None], blocking: Callable[..., Awaitable[Any]]) -> None:
        self._keep, self._blocking = keep, blocking
        self._saved_at = -math.inf
        self.cursor = Cursor(journal="")

    def begin(self, found: Cursor | None, journal: str, end_seq: int) -> Cursor:
        """From where it was left, if that is this journal's and in it."""
        ours = found is not None and found.of(journal, end_seq)
        self.cursor = found if found is not None and ours else Cursor(journal=journal)
        return self.cursor

    async def settled(self, pending: PendingSpans) -> None:
        """Something arrived, or was rejected: no refusal stands any more. Written now and then."""
        self.cursor = replace(self.cursor, reason="", refusals=0, refused_wall_ns=0)
        if trio.current_time() - self._saved_at > SAVE_SECONDS:
            await self.save(pending)

    async def save(self, pending: PendingSpans) -> None:
        """One that cannot be written costs a repetition."""
        self._saved_at = trio.current_time()
        # Never back: while the journal is read again from ``from_seq`` on, less is settled here than was.
        seq, from_seq = self.cursor.seq, self.cursor.from_seq
        if pending.read_seq:
            seq, from_seq = max(seq, pending.settled_seq), max(from_seq, pending.from_seq)
        self.cursor = replace(self.cursor, seq=seq, from_seq=from_seq, wall_ns=wall_ns())
        with suppress(OSError):
            await self._blocking(self._keep, self.cursor)

    def rejected(self, loss: Loss) -> Rejection:
        """On record, and written with what is settled next."""
        first, last = loss.spans[0], loss.spans[-1]
        rejection = Rejection(
            wall_ns=wall_ns(),
            trace_id=first.trace_id.hex(),
            spans=loss.number,
            first_seq=first.seq,
            last_seq=last.seq,
            reason=loss.reason,
        )
        # Written with what is settled next, however soon: nothing else says that these spans will never come.
        self.cursor = self.cursor.with_rejection(rejection)
        self._saved_at = -math.inf
        return rejection

    def refused(self, pending: PendingSpans, reason: str) -> Sequence[Span]:
        """The spans that are no longer held on to: those at a place that was refused for too long."""
        now_ns, since_ns = wall_ns(), self.cursor.refused_wall_ns
        if not 0 < since_ns <= now_ns:  # the first time, or a clock that was set back
            since_ns = now_ns
        refusals = self.cursor.refusals + 1
        self.cursor = replace(self.cursor, reason=reason, refusals=refusals, refused_wall_ns=since_ns)
        if refusals < REFUSALS_MAX or now_ns - since_ns < REFUSED_DAYS_MAX * NS_PER_DAY:
            return ()
        self.cursor = replace(self.cursor, refusals=0, refused_wall_ns=0)
        return pending.next(BATCH_SPANS_MAX)[0]
