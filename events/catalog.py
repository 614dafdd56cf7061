"""Which files make up the journal: all locations are searched, the links give the order.

The newest whole segment is the tip; from there the links lead back to the begin. What is not on that path
was left behind by a process that went on elsewhere, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from events.frames import FRAME_BYTES_MAX, RawRecord, parse
from events.marks import Checkpoint
from events.segment import (
    HEADER_BYTES_MAX,
    DamagedHeader,
    Header,
    IncompatibleHeader,
    header_length,
    parse_file_name,
    parse_header,
)
from events.source import Source

#: Enough for nearly every header, so that looking at a segment is one read.
PEEK_BYTES = 4096


class Segment(NamedTuple):
    """A segment file. ``header`` is None when it is damaged or incompatible; ``problem`` says how."""

    source: Source
    name: str
    number: int
    journal: str
    size: int
    modified_ns: int
    header: Header | None
    header_bytes: bytes = b""
    problem: str = ""
    incompatible: bool = False

    def first_record(self) -> RawRecord | None:
        """The first record, None when the segment holds none that is whole."""
        if self.header is None:
            return None
        size = min(self.size - len(self.header_bytes), PEEK_BYTES)
        while True:
            data = self.header_bytes[-32:] + self.source.read(self.name, len(self.header_bytes), size)
            records = parse(data, 32, len(data), self.header.link.seq).records
            if records or size >= min(self.size - len(self.header_bytes), FRAME_BYTES_MAX):
                return records[0] if records else None
            size = min(size * 16, self.size, FRAME_BYTES_MAX)

    def begins_with_checkpoint(self) -> bool:
        """Whether nothing older is needed to read on from here."""
        first = self.first_record()
        return first is not None and first.tag == Checkpoint.__name__


class Path(NamedTuple):
    """The journal's segments in order: ``segments`` lead to the tip.

    Where something is missing before them ``gap`` says what, and ``older`` are the segments before it.
    ``tail`` are younger files whose header cannot be used.
    """

    journal_id: bytes
    segments: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    gap: str
    older: tuple[Segment, ...]
    #: Of any journal found here, so that the next file's name is new and sorts last.
    next_number: int
    #: The first 8 digits of other journals' ids in these locations.
    others: tuple[str, ...]


def find(sources: Sequence[Source]) -> list[Segment]:
    """Every segment file, by number, empty ones too: their names are taken. Raises OSError.

    A file that this user may not read says nothing of the journal: that is an error and no damage.
    """
    found = []
    for source in sources:
        for file in source.files():
            parts = parse_file_name(file.name)
            if parts:
                found.append(_look(source, file.name, file.size, file.modified_ns, *parts))
    return sorted(found, key=lambda segment: segment.number)


def _look(source: Source, name: str, size: int, modified_ns: int, number: int, journal: str) -> Segment:
    blank = Segment(source, name, number, journal, size, modified_ns, None)
    try:
        data = source.read(name, 0, PEEK_BYTES)
        if PEEK_BYTES < header_length(data) <= HEADER_BYTES_MAX:
            data = source.read(name, 0, header_length(data))
        header, length = parse_header(data)
    except IncompatibleHeader as error:
        return blank._replace(problem=str(error), incompatible=True)
    except PermissionError:
        raise  # of the reader, not of the file: nothing is known of the journal
    except (DamagedHeader, OSError) as error:
        return blank._replace(problem=str(error))
    if (header.segment, header.journal_id.hex()[:8]) != (number, journal):
        return blank._replace(problem="the header belongs to another file name")
    return blank._replace(header=header, header_bytes=data[:length])


def find_path(sources: Sequence[Source], journal: str = "") -> Path:
    """The path of one journal: that whose id begins with ``journal``, by default the newest one.

    Raises OSError. An empty location gives a path without segments.
    """
    found = find(sources)
    chosen = journal[:8] or _newest(found)
    next_number = max((segment.number for segment in found), default=0) + 1
    others = tuple(dict.fromkeys(segment.journal for segment in found if segment.journal != chosen))
    ours = [segment for segment in found if segment.journal == chosen and segment.size]
    whole = _by_number(segment for segment in ours if segment.header is not None)
    tip = max(whole, default=0)
    segments, missing = _walk_back(whole, tip)
    if missing and not any(segment.number <= missing for segment in ours):
        segments = _left_by_retention(segments)
    gap = _gap(segments[0], missing, ours) if missing else ""
    before_gap = max((number for number in whole if gap and number < missing), default=0)
    older, _ = _walk_back(whole, before_gap)
    tail = tuple(segment for segment in ours if segment.header is None and segment.number > tip)
    header = segments[-1].header if segments else None
    return Path(header.journal_id if header else b"", segments, tail, gap, older, next_number, others)


def _newest(found: Sequence[Segment]) -> str:
    """Numbers go on over all journals of a location, so the last file's journal is the newest."""
    return next((segment.journal for segment in reversed(found) if segment.size), "")


def _by_number(segments: Iterable[Segment]) -> dict[int, Segment]:
    """Of two copies the longer one; of two different segments with one number, the one begun later."""
    chosen: dict[int, Segment] = {}
    for segment in segments:
        other = chosen.get(segment.number)
        if other is None or _rank(segment) > _rank(other):
            chosen[segment.number] = segment
    return chosen


def _rank(segment: Segment) -> tuple[int, int]:
    assert segment.header is not None
    return segment.header.anchor_wall_ns, segment.size


def _walk_back(whole: dict[int, Segment], tip: int) -> tuple[tuple[Segment, ...], int]:
    """The segments that lead to the tip, and the number of the one missing before them (0: none)."""
    path: list[Segment] = []
    number = tip
    while number in whole and (not path or number < path[-1].number):
        path.append(whole[number])
        header = whole[number].header
        assert header is not None
        number = header.link.segment
    return tuple(reversed(path)), number if path else 0


def _left_by_retention(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """It removes one file after the other; where it died in between, the first checkpoint is the begin."""
    fronts = (at for at, segment in enumerate(segments) if segment.begins_with_checkpoint())
    return segments[next(fronts, 0) :]


def _gap(first: Segment, missing: int, ours: Sequence[Segment]) -> str:
    """Retention takes the oldest segments and leaves a checkpoint at the front; all else is a gap."""
    if any(segment.number <= missing for segment in ours):
        return f"segment {missing} before {first.name} is damaged or missing, and older ones are there"
    if not first.begins_with_checkpoint():
        return f"{first.name} needs segment {missing}, which is missing"
    return ""
