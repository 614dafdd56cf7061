"""Following a journal for its durable records: whole steps, in order, each once, and none that a power cut
could take.

Every frame says the highest record that was known durable when it was written, a later segment's link vouches
for what it goes on from, and the daemon itself may say more. What lies above all that is held back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ebbtide.events.catalog import JournalPath, Segment, Source, find_path
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import Batch, Scan
from ebbtide.events.segment import Header, Link

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
            self._journal = self._journal or path.journal_id.hex()[:8]
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
