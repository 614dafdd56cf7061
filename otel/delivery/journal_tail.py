"""Follows a journal: whole steps in order, each once, when they are durable.

Every frame has the highest record that was durable when it was written, a later segment's link vouches for
what it continues, and the daemon may know more. A power cut could take what is above, so that is held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from ebbtide.events.catalog import JournalPath, Segment, Source, find_path
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import Batch, Scan
from ebbtide.events.segment import Header, Link

#: Records that wait for the disk: a shutdown of a hundred pods. Then reading waits too.
HELD_MAX = 20_000


class Tail:
    """``journal``: how its id begins; default: the newest. ``volatile``: locations that end with the boot.
    Their syncs do not count.
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
        #: Whole steps that are not durable yet.
        self._held: deque[Batch] = deque()
        self._held_records = 0
        self._passing: Iterator[None] | None = None
        self.durable_seq = 0
        #: Why no more will ever come: `History` too ends at damage.
        self.damage = ""
        #: The last record that was given.
        self.seq = 0

    @property
    def journal_id(self) -> bytes:
        """16 bytes; empty until a segment was seen."""
        return self._path.journal_id if self._path is not None else b""

    def end_seq(self) -> int:
        """The last record in the newest segment that can be read. Raises OSError."""
        segments = self.look().segments
        if not segments:
            return 0
        scan = Scan(segments[-1], None)
        for _ in scan.pieces():
            pass
        return scan.end.seq

    def learn(self, durable_seq: int) -> None:
        """The disk has confirmed all up to this record."""
        self.durable_seq = max(self.durable_seq, durable_seq)

    def read(self, records_max: int, durable_seq: int = 0) -> list[Batch]:
        """About so many records at most; none: there is no news. ``durable_seq``: the daemon knows that the
        disk has all up to it. Raises OSError.
        """
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
        """All that is there now, one piece at a time."""
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
        """The segments. Headers are read again only when files came or went."""
        sizes = {
            (source.location, file.name): file.size for source in self._sources for file in source.files()
        }
        names, path = tuple(sizes), self._path
        # A file with an unusable header may have been in the making at the last look.
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
            # A new segment continues from its link. What a failed file has behind that place is not part of
            # the journal, and was never durable.
            link, self._open_step = segment.header.link, []
            while self._held and self._held[-1].records[-1].seq > link.seq:
                self._held_records -= len(self._held.pop().records)
            self.learn(0 if volatile else link.seq)
        # Read beyond the place from which the next segment continues: this one has no more.
        if limit is not None and limit.segment == segment.number and scan.end.offset > limit.offset:
            return
        for piece in scan.pieces():
            # What a failed file has already given is carried over to the next file, with its numbers.
            after = self._held[-1].records[-1].seq if self._held else self.seq
            for raw in piece.records:
                self._open_step.append(raw)
                if raw.flags:
                    step = [each for each in self._open_step if each.seq > after]
                    if step:
                        self._held.append(Batch(piece.header, step))
                        self._held_records += len(step)
                    self._open_step = []
            # Noted before the pause: after an error in the next piece the next pass begins here.
            self._at, self._header = scan.end, scan.header
            self.learn(0 if volatile else scan.durable_seq)
            yield
        self._at, self._header = scan.end, scan.header
        self.learn(0 if volatile else scan.durable_seq)
        if limit is not None and scan.damage is not None:
            # Retention may have taken the file meanwhile: that is no damage.
            if any(file.name == segment.name for file in segment.source.files()):
                self.damage = f"{segment.name} is damaged behind record {scan.end.seq}: {scan.damage}"
        elif limit is not None and not volatile:
            self.learn(limit.seq)
