"""Reads a journal: all locations merged, verified, in whole steps, as a stream that writes no byte.

`History` is the interface; after a full read `History.verdict` explains the journal's end.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from ebbtide.events.base import Record
from ebbtide.events.catalog import JournalPath, Segment, Source, find_path
from ebbtide.events.codec import (
    FLAG_TRAILER,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    FRAME_HEAD,
    FRAME_MAGIC_BYTES,
    HASH_BYTES,
    STOP_BOUNDARY,
    STOP_TRAILER,
    ParsedFrames,
    RawRecord,
    decode_record,
    parse_frames,
)
from ebbtide.events.recovery import SEVERITY, Case, Finding, Verdict, row_for, stated_findings
from ebbtide.events.segment import DamagedHeader, Header, IncompatibleHeader, Link, parse_header
from ebbtide.events.units import size_text

#: The reader keeps a step's records until its end. The largest step is a checkpoint, one frame; the plan of
#: 5 000 pods has 4 MB.
STEP_BYTES_MAX = 2 * FRAME_BYTES_MAX


class Batch(NamedTuple):
    """Whole steps, and the header of the last one's segment."""

    header: Header
    records: list[RawRecord]


class Unread(RuntimeError):
    """Read the history to its end before its verdict."""


class History:
    """One journal; each reading starts at its begin.

    ``journal``: its id or the id's begin (default: the newest). ``logics``: a reader that executes the logic
    again refuses segments of another logic.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        journal: str = "",
        from_checkpoint: bool = False,
        bytes_max: int = 0,
        logics: Collection[str] | None = None,
    ) -> None:
        """``bytes_max``: only so much of its end, in whole segments. Raises OSError."""
        self.path: JournalPath = without_short_copies(find_path(sources, journal))
        self._sources = tuple(sources)
        self._segments, self._gap = (self.path.older or self.path.segments), self.path.gap
        if from_checkpoint:
            # Ignore a gap before a checkpoint, which has the whole state.
            for at in range(len(self.path.segments) - 1, -1, -1):
                if self.path.segments[at].begins_with_checkpoint():
                    self._segments, self._gap = self.path.segments[at:], ""
                    break
        while bytes_max and len(self._segments) > 1 and sum(each.size for each in self._segments) > bytes_max:
            self._segments, self._gap = self._segments[1:], ""
        self._logics = logics
        self._findings: list[Finding] = []
        self._open_step: list[RawRecord] = []
        self._header: Header | None = None
        self._head = b""
        self._end, self._durable_seq, self._first_seq = Link(), 0, 0
        self._begin()

    @property
    def journal_id(self) -> bytes:
        """Empty for an empty journal."""
        return self.path.journal_id

    @property
    def of_outages(self) -> bool:
        """The controller in the cluster wrote it."""
        return any(each.header is not None and each.header.of_outages for each in self.segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments to read: before a gap if there is one."""
        return self._segments

    @property
    def stated(self) -> tuple[Finding, ...]:
        """Findings about the original of these segments, if they are a copy."""
        mine = (*self.path.older, *self.path.segments, *self.path.tail)
        used = (each for each in self._sources if any(segment.source is each for segment in mine))
        return tuple(finding for source in used for finding in stated_findings(source))

    @property
    def verdict(self) -> Verdict:
        """Raises Unread."""
        if not self._read:
            raise Unread("read the history to its end before asking for the verdict")
        states = [finding.row.state for finding in self._findings]
        state = max(states, key=SEVERITY.index, default=SEVERITY[0])
        return Verdict(
            state,
            tuple(self._findings),
            self.path.journal_id,
            self._header,
            self._first_seq,
            self._end,
            self._durable_seq,
            self.path.next_number,
            self._head,
        )

    def read(self) -> Verdict:
        for _ in self.batches():
            pass
        return self.verdict

    def records(self) -> Iterator[Record]:
        """Raises events.codec.UnknownType and BadPayload."""
        return map(decode_record, self.raw())

    def raw(self) -> Iterator[RawRecord]:
        """All records of whole steps."""
        for batch in self.batches():
            yield from batch.records

    def earlier(self, bytes_max: int) -> Iterator[RawRecord]:
        """For display: records before this history's begin, from whole segments of at most so many bytes.

        Damage ends the reading and changes no verdict.
        """
        begin = self._segments[0] if self._segments else None
        if begin is None or begin not in self.path.segments:
            return
        front = at = self.path.segments.index(begin)
        while front and bytes_max >= self.path.segments[front - 1].size:
            front -= 1
            bytes_max -= self.path.segments[front].size
        for segment, following in zip(
            self.path.segments[front:at], self.path.segments[front + 1 :], strict=False
        ):
            assert following.header is not None
            for piece in Scan(segment, following.header.link).pieces():
                yield from piece.records

    def batches(self) -> Iterator[Batch]:
        """The same as `raw` in lists, which is faster."""
        self._begin()
        open_bytes = 0
        for segment, following in zip_longest(self._segments, self._segments[1:]):
            assert segment.header is not None
            logic = segment.header.identity.logic
            if self._logics is not None and logic not in self._logics:
                reason = f"unknown logic {logic!r}; this program executes {', '.join(self._logics)}"
                self._find(Case(format="unknown"), segment, 0, self._end.seq + 1, reason)
                break
            limit = following.header.link if following is not None and following.header is not None else None
            scan = Scan(segment, limit)
            self._header = scan.header
            for piece in scan.pieces():
                # Hold a step back until its end: no order of an incomplete step took effect.
                whole = piece.records[: piece.whole]
                if whole:
                    records, self._open_step, open_bytes = [*self._open_step, *whole], [], 0
                    self._end, self._header, self._head = piece.whole_end, piece.header, records[-1].hash
                    yield Batch(piece.header, records)
                rest = piece.records[piece.whole :]
                self._open_step += rest
                open_bytes += sum(len(raw.payload) + FRAME_BYTES_MIN for raw in rest)
                if open_bytes > STEP_BYTES_MAX:
                    scan.damage = f"a step is larger than {size_text(STEP_BYTES_MAX)}"
            if not self._open_step:
                # A writer continues behind a trailer.
                self._end = scan.end
            self._durable_seq = max(self._durable_seq, scan.durable_seq)
            if not self._judge(segment, scan, limit):
                break
        if self._gap:
            case = Case(damage="missing", place="linked")
            self._find(case, self.path.segments[0], 0, self._end.seq + 1, self._gap)
        for segment in self.path.tail:
            found = find_evidence(segment, 0)
            seq = self._end.seq + 1
            case = Case(
                format="unknown" if segment.incompatible else "known",
                damage="header",
                durable="below" if seq <= found.durable_seq else "above",
                sealed="sealed" if found.sealed else "open",
            )
            self._find(case, segment, 0, seq, segment.problem)
        self._findings += self.stated
        self._read = True

    def _begin(self) -> None:
        self._read = False
        self._findings, self._open_step, self._header, self._head = [], [], None, b""
        self._end, self._durable_seq, self._first_seq = Link(), 0, 0
        first = self._segments[0].header if self._segments else None
        if first is not None:
            self._end, self._first_seq = first.link, first.link.seq + 1

    def _judge(self, segment: Segment, scan: Scan, limit: Link | None) -> bool:
        """Whether reading may go on in the next segment."""
        # All before a link was durable, so damage there is never a tear.
        seq = scan.end.seq + 1
        if limit is not None:
            if scan.damage is not None:
                self._find(Case(damage="record", place="linked"), segment, scan.end.offset, seq, scan.damage)
            return scan.damage is None
        if scan.damage is None and not self._open_step:
            return True
        # At the tip, a crash may have torn off bytes. The durable numbers of whole frames behind the damage
        # show whether these were durable.
        found = find_evidence(segment, scan.end.offset) if scan.damage else Evidence(0, False)
        self._durable_seq = max(self._durable_seq, found.durable_seq)
        case = Case(
            damage="record" if scan.damage else "none",
            durable="below" if seq <= self._durable_seq else "above",
            sealed="sealed" if scan.sealed or found.sealed else "open",
            step="incomplete" if self._open_step else "whole",
        )
        reason = scan.damage or "the journal ends in the middle of a step"
        self._find(case, segment, scan.end.offset, seq, reason)
        return True

    def _find(self, case: Case, segment: Segment, offset: int, seq: int, reason: str) -> None:
        if row_for(case).state != "intact":
            self._findings.append(Finding(case, segment.name, offset, seq, reason))


#: For each read: large beside a frame, small beside a daemon's memory.
CHUNK_BYTES = 256 * 1024


class ScannedPiece(NamedTuple):
    """Records of a segment; ``whole`` of them end with a step, at ``whole_end``."""

    header: Header
    records: list[RawRecord]
    whole: int
    whole_end: Link


class Scan:
    """One pass over one segment. ``limit``: a later segment continues there."""

    def __init__(self, segment: Segment, limit: Link | None) -> None:
        assert segment.header is not None
        self._segment = segment
        self._limit = limit
        self._size = limit.offset if limit else segment.size
        self.header = segment.header
        start_hash = (
            segment.header.link.hash if segment.header.carries else segment.header_bytes[-HASH_BYTES:]
        )
        #: The place behind the last good frame.
        self.end = Link(segment.number, len(segment.header_bytes), segment.header.link.seq, start_hash)
        self.durable_seq = 0
        self.sealed = False
        #: Why reading stopped before the end.
        self.damage: str | None = None

    def pieces(self) -> Iterator[ScannedPiece]:
        """Damage raises no error: see `damage` and `end`. Raises PermissionError."""
        buffer, behind = self.end.hash, self.end.offset
        while self.damage is None and (chunk := self._read(behind)):
            buffer, behind = buffer + chunk, behind + len(chunk)
            pos = HASH_BYTES
            while True:
                parsed = parse_frames(buffer, pos, len(buffer), self.end.seq)
                if parsed.records:
                    base, last = behind - len(buffer), parsed.records[-1]
                    self.end = Link(self._segment.number, base + parsed.pos, last.seq, last.hash)
                    self.durable_seq = max(self.durable_seq, parsed.durable_seq)
                    # A record behind a trailer continues the sealed segment.
                    self.sealed, end = False, self.end
                    if parsed.whole:
                        whole = parsed.records[parsed.whole - 1]
                        end = Link(self._segment.number, base + parsed.whole_pos, whole.seq, whole.hash)
                    yield ScannedPiece(self.header, parsed.records, parsed.whole, end)
                pos = self._special(buffer, parsed)
                if pos == parsed.pos:
                    break
            # The next chunk's first frame is chained to this hash.
            buffer = buffer[pos - HASH_BYTES :]
        if self.damage is None and len(buffer) > HASH_BYTES:
            self.damage = "a frame is cut short"
        elif self.damage is None and self._limit and self.end[2:] != self._limit[2:]:
            self.damage = "the next segment continues from something else"

    def _read(self, offset: int) -> bytes:
        try:
            size = min(CHUNK_BYTES, self._size - offset)
            return self._segment.source.read(self._segment.name, offset, size) if size > 0 else b""
        except PermissionError:
            raise  # of the reader, not of the file
        # A bad sector is damage; the part before it counts.
        except OSError as error:
            self.damage = f"cannot be read: {error}"
            return b""

    def _special(self, buffer: bytes, parsed: ParsedFrames) -> int:
        """Pass a trailer or a carried header. Returns the position behind it, or the old one after damage."""
        if parsed.stop is None:
            return parsed.pos
        if parsed.stop not in (STOP_TRAILER, STOP_BOUNDARY):
            self.damage = parsed.stop
            return parsed.pos
        length: int = FRAME_HEAD.unpack_from(buffer, parsed.pos)[2]
        frame = buffer[parsed.pos : parsed.pos + length]
        before = buffer[parsed.pos - HASH_BYTES : parsed.pos]
        if parsed.stop == STOP_TRAILER:
            # A carried trailer names another header and does not seal this segment.
            self.sealed = frame[FRAME_HEAD.size : -HASH_BYTES] == self._segment.header_bytes[-HASH_BYTES:]
            seq, durable_seq = FRAME_HEAD.unpack_from(frame)[3:5]
            chained = hashlib.sha256(before + frame[:-HASH_BYTES]).digest() == frame[-HASH_BYTES:]
            fits = chained and seq == self.end.seq
            if fits and self.sealed:
                self.durable_seq = max(self.durable_seq, durable_seq)
        else:
            # A carried header links to the record before it.
            try:
                self.header, header_length = parse_header(frame[FRAME_HEAD.size :])
                link = self.header.link
                fits = header_length == len(frame) - FRAME_HEAD.size
                fits = fits and (link.seq, link.hash) == (self.end.seq, before)
                self.sealed = False
            except (DamagedHeader, IncompatibleHeader):
                fits = False
        if not fits:
            self.damage = f"a {parsed.stop} does not fit"
            return parsed.pos
        self.end = self.end._replace(offset=self.end.offset + length, hash=frame[-HASH_BYTES:])
        return parsed.pos + length


class Evidence(NamedTuple):
    durable_seq: int
    sealed: bool


def find_evidence(segment: Segment, offset: int) -> Evidence:
    """Search whole frames behind damage by magic and checksum, without the chain."""
    # A checksum does not fit by accident, and a forged frame can only make the verdict worse.
    durable_seq, sealed, behind, buffer = 0, False, offset, b""
    # Check at most twice the file's bytes: a file full of false heads would keep a reader busy for days.
    left = 2 * (segment.size - offset) + FRAME_BYTES_MAX
    while (size := min(CHUNK_BYTES, segment.size - behind)) > 0 and left > 0:
        try:
            chunk = segment.source.read(segment.name, behind, size)
        except OSError:
            chunk = bytes(size)  # what cannot be read is as good as zeros
        if not chunk:
            break
        behind += len(chunk)
        buffer += chunk
        at = buffer.find(FRAME_MAGIC_BYTES)
        while at >= 0 and left > 0:
            length = _frame_length(buffer, at, final=behind >= segment.size)
            if length is None:
                break
            left -= abs(length)
            if length > 0:
                head = FRAME_HEAD.unpack_from(buffer, at)
                durable_seq = max(durable_seq, head[4])
                sealed = sealed or head[9] == FLAG_TRAILER
            at = buffer.find(FRAME_MAGIC_BYTES, at + max(length, 1))
        # A magic number may begin at the end of this chunk.
        buffer = buffer[at:] if at >= 0 else buffer[1 - len(FRAME_MAGIC_BYTES) :]
    return Evidence(durable_seq, sealed)


def _frame_length(buffer: bytes, at: int, *, final: bool) -> int | None:
    """The length of the frame at ``at``. None: needs more bytes. 0, or minus the checked bytes: no frame."""
    if at + FRAME_BYTES_MIN > len(buffer):
        return 0 if final else None
    crc: int
    length: int
    _, crc, length, *_ = FRAME_HEAD.unpack_from(buffer, at)
    if not FRAME_BYTES_MIN <= length <= FRAME_BYTES_MAX:
        return 0
    if at + length > len(buffer):
        return 0 if final else None
    return length if zlib.crc32(buffer[at + 8 : at + length - HASH_BYTES]) == crc else -length


SHORTER_COPY = "it carries less than the file that it was to replace"


def without_short_copies(path: JournalPath) -> JournalPath:
    """After an interrupted move, drop carrying segments at the end that have less than their original."""
    # The carrying segments at the end and the one before them repeat each other.
    copies = 0
    for segment in reversed(path.segments):
        copies += 1
        if segment.header is None or not segment.header.carries:
            break
    if copies < 2:
        return path
    # By segment: the last record of its last whole step.
    reached = []
    for segment in path.segments[-copies:]:
        assert segment.header is not None
        seqs = [piece.whole_end.seq for piece in Scan(segment, None).pieces() if piece.whole]
        reached.append(seqs[-1] if seqs else segment.header.link.seq)
    # Of equals the later one, where the writer continued.
    best = max(range(copies), key=lambda at: (reached[at], at))
    kept = len(path.segments) - copies + best + 1
    dropped = tuple(segment._replace(problem=SHORTER_COPY) for segment in path.segments[kept:])
    return path._replace(segments=path.segments[:kept], tail=(*dropped, *path.tail))
