"""Reading a journal: all locations merged, verified, in whole steps, as a stream that writes nothing.

A reader that has read all can say what the end means (`History.verdict`). An incomplete last step is
never handed out: none of its orders was released.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from events.catalog import Path, Segment, find_path
from events.frames import RawRecord, decode
from events.reach import furthest
from events.record import Record
from events.recovery import SEVERITY, Case, Finding, Verdict, row_for
from events.scan import Evidence, Scan, evidence
from events.segment import Header, Link
from events.source import Source
from events.stated import stated_by


class Batch(NamedTuple):
    """Whole steps, and the header of the segment that they (at least the last of them) stand in."""

    header: Header
    records: list[RawRecord]


class Unread(RuntimeError):
    """The verdict was asked for before the history was read to its end: read it first."""


class History:
    """One journal, from its begin or from its last checkpoint; each reading starts anew.

    ``journal`` chooses among several by the first 8 digits of the id (default: the newest). With
    ``logic_flags``, a re-executing reader refuses segments whose flags it does not know.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        journal: str = "",
        from_checkpoint: bool = False,
        logic_flags: Collection[str] | None = None,
    ) -> None:
        """Raises OSError where a location cannot be listed."""
        self.path: Path = furthest(find_path(sources, journal))
        self._sources = tuple(sources)
        self._segments, self._gap = _choose(self.path, from_checkpoint)
        self._flags = None if logic_flags is None else frozenset(logic_flags)
        self._findings: list[Finding] = []
        self._open_step: list[RawRecord] = []
        self._header: Header | None = None
        self._end, self._durable_seq, self._first_seq = Link(), 0, 0
        self._begin()

    @property
    def journal_id(self) -> bytes:
        """16 bytes; empty for an empty journal."""
        return self.path.journal_id

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Those that are read, in order: where there is a gap, what stands before it."""
        return self._segments

    @property
    def stated(self) -> tuple[Finding, ...]:
        """What the sources of these segments say of the journal that they were copied from."""
        mine = (*self.path.older, *self.path.segments, *self.path.tail)
        used = (each for each in self._sources if any(segment.source is each for segment in mine))
        return tuple(finding for source in used for finding in stated_by(source))

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
        )

    def read(self) -> Verdict:
        """Read to the end for the verdict's sake."""
        for _ in self.batches():
            pass
        return self.verdict

    def records(self) -> Iterator[Record]:
        """Decoded. Raises events.codec.UnknownType and BadPayload."""
        return map(decode, self.raw())

    def raw(self) -> Iterator[RawRecord]:
        """All records of whole steps, in order."""
        for batch in self.batches():
            yield from batch.records

    def earlier(self, bytes_max: int) -> Iterator[RawRecord]:
        """What stands before this history's begin, from whole segments of at most so many bytes.

        For what is only shown: damage there ends the reading, and changes no verdict.
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
        """The same in lists, for whoever is in a hurry."""
        self._begin()
        for segment, limit in self._limits():
            if self._refused(segment):
                break
            scan = Scan(segment, limit)
            yield from self._steps(scan)
            self._durable_seq = max(self._durable_seq, scan.durable_seq)
            if not self._judge(segment, scan, limit):
                break
        self._judge_tail()
        self._findings += self.stated
        self._read = True

    def _begin(self) -> None:
        self._read = False
        self._findings, self._open_step, self._header = [], [], None
        self._end, self._durable_seq, self._first_seq = Link(), 0, 0
        first = self._segments[0].header if self._segments else None
        if first is not None:
            self._end, self._first_seq = first.link, first.link.seq + 1

    def _limits(self) -> Iterator[tuple[Segment, Link | None]]:
        """Each segment with the link that ends it."""
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            assert following.header is not None
            yield segment, following.header.link
        if self._segments:
            yield self._segments[-1], None

    def _steps(self, scan: Scan) -> Iterator[Batch]:
        self._header = scan.header
        for piece in scan.pieces():
            if not piece.whole:
                self._open_step += piece.records
                continue
            records = [*self._open_step, *piece.records[: piece.whole]]
            self._open_step = piece.records[piece.whole :]
            self._end, self._header = piece.whole_end, piece.header
            yield Batch(piece.header, records)
        if not self._open_step:
            self._end = scan.end

    def _refused(self, segment: Segment) -> bool:
        assert segment.header is not None
        unknown = sorted(set(segment.header.identity.logic_flags) - (self._flags or set()))
        if self._flags is None or not unknown:
            return False
        reason = f"unknown logic flags {', '.join(unknown)}"
        self._find(Case(format="unknown"), segment, 0, self._end.seq + 1, reason)
        return True

    def _judge(self, segment: Segment, scan: Scan, limit: Link | None) -> bool:
        """Whether reading may go on in the next segment."""
        seq = scan.end.seq + 1
        if limit is not None:
            if scan.damage is not None:
                self._find(Case(damage="record", place="linked"), segment, scan.end.offset, seq, scan.damage)
            return scan.damage is None
        if scan.damage is None and not self._open_step:
            return True
        found = evidence(segment, scan.end.offset) if scan.damage else Evidence(0, False)
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

    def _judge_tail(self) -> None:
        """What lies behind the last segment that was read: a gap, damaged headers, headers not for us."""
        if self._gap:
            case = Case(damage="missing", place="linked")
            self._find(case, self.path.segments[0], 0, self._end.seq + 1, self._gap)
        for segment in self.path.tail:
            found = evidence(segment, 0)
            seq = self._end.seq + 1
            case = Case(
                format="unknown" if segment.incompatible else "known",
                damage="header",
                durable="below" if seq <= found.durable_seq else "above",
                sealed="sealed" if found.sealed else "open",
            )
            self._find(case, segment, 0, seq, segment.problem)

    def _find(self, case: Case, segment: Segment, offset: int, seq: int, reason: str) -> None:
        if row_for(case).state != "intact":
            self._findings.append(Finding(case, segment.name, offset, seq, reason))


def _choose(path: Path, from_checkpoint: bool) -> tuple[tuple[Segment, ...], str]:
    """What to read, and the gap that counts: none before a checkpoint, else what stands before the gap."""
    if from_checkpoint:
        for index in range(len(path.segments) - 1, -1, -1):
            if path.segments[index].begins_with_checkpoint():
                return path.segments[index:], ""
    return (path.older or path.segments), path.gap
