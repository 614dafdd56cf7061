"""Where segments are read from, and which of them make up the journal.

A location is a list of files and their bytes (`Source`); reading touches nothing and needs no Trio, so that
a command that looks into a journal starts in a third of the time (writing: `events.disk`).

All locations are searched; the newest whole segment is the tip, and from there the links lead back to the
begin. What is not on that path was left behind by a process that went on elsewhere, and counts for nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ebbtide.events.base import Checkpoint
from ebbtide.events.codec import FRAME_BYTES_MAX, RawRecord, parse_frames
from ebbtide.events.files import own_directory
from ebbtide.events.segment import (
    HEADER_BYTES_MAX,
    SHORT_ID_DIGITS,
    DamagedHeader,
    Header,
    IncompatibleHeader,
    header_length,
    parse_header,
    parse_segment_file_name,
)


class StoredFile(NamedTuple):
    """A file of a location: its name, its length in bytes, and when it was last written (wall clock)."""

    name: str
    size: int
    modified_ns: int


class Source(Protocol):
    """Read access to one location. Raises OSError. A location that does not exist is empty."""

    @property
    def location(self) -> str: ...

    def files(self) -> list[StoredFile]:
        """All files, sorted by name."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end of the file."""


class DirectorySource:
    """A real directory, only ever read. ``own``: what others may have put there is as if it was not there."""

    def __init__(self, path: str | os.PathLike[str], *, own: bool = False) -> None:
        self.location = os.fspath(path)
        self._own = own

    def files(self) -> list[StoredFile]:
        # One that does not exist is empty: a fallback location is made when it is first needed. Every other
        # error is raised, because a journal that cannot be listed is not one without segments.
        try:
            if self._own and not _is_own(self.location):
                return []
            with os.scandir(self.location) as entries:
                # No links: whoever has put one there may read less than we do.
                found = [
                    (entry.name, entry.stat(follow_symlinks=False))
                    for entry in entries
                    if entry.is_file(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return sorted(StoredFile(name, stat.st_size, stat.st_mtime_ns) for name, stat in found)

    def read(self, name: str, offset: int, size: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.location, name), flags)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)


def _is_own(directory: str) -> bool:
    try:
        with own_directory(directory):
            return True
    except PermissionError as error:
        if error.errno == errno.EPERM:
            return False
        raise


# --- which of them make up the journal ------------------------------------------------------------

#: Enough for nearly every header, so that looking at a segment is one read.
PEEK_BYTES = 4096


class Segment(NamedTuple):
    """A segment file. ``header`` is None when it is damaged or incompatible; ``problem`` says how.

    ``journal``: 32 hexadecimal digits of its header; without one the eight of its name.
    """

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

    def is_of(self, journal: str) -> bool:
        """Whether it belongs to the journal of this id; where only its name is left, to all that begin so."""
        return journal.startswith(self.journal)

    def first_record(self) -> RawRecord | None:
        """The first record, None when the segment holds none that is whole."""
        if self.header is None:
            return None
        # A checkpoint may be large, most first records are not: a little is read first, and more where that
        # was not enough, so that looking at a hundred segments does not read a hundred of them whole.
        size = min(self.size - len(self.header_bytes), PEEK_BYTES)
        while True:
            data = self.header_bytes[-32:] + self.source.read(self.name, len(self.header_bytes), size)
            records = parse_frames(data, 32, len(data), self.header.link.seq).records
            if records or size >= min(self.size - len(self.header_bytes), FRAME_BYTES_MAX):
                return records[0] if records else None
            size = min(size * 16, self.size, FRAME_BYTES_MAX)

    def begins_with_checkpoint(self, *, between_episodes: bool = False) -> bool:
        """Whether nothing older is needed to read on from here."""
        first = self.first_record()
        if first is None or first.tag != Checkpoint.__name__:
            return False
        return not (between_episodes and first.episode)


class JournalPath(NamedTuple):
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
    #: The ids of other journals in these locations; of one without a whole header its first eight digits.
    others: tuple[str, ...]


def find_segments(sources: Sequence[Source]) -> list[Segment]:
    """Every segment file, by number, empty ones too: their names are taken. Raises OSError.

    A file that this user may not read says nothing of the journal: that is an error and no damage.
    """
    found = []
    for source in sources:
        for file in source.files():
            parts = parse_segment_file_name(file.name)
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
    # A file that was copied under another's name would be a second segment of that number, and its own would
    # be missing: the name is where the links look.
    if (header.segment, header.journal_id.hex()[:SHORT_ID_DIGITS]) != (number, journal):
        return blank._replace(problem="the header belongs to another file name")
    return blank._replace(journal=header.journal_id.hex(), header=header, header_bytes=data[:length])


def journal_ids(found: Iterable[Segment]) -> tuple[str, ...]:
    """The journals of these segments, the newest last; of one without a whole header eight digits.

    Files without a byte are nobody's.
    """
    # The eight digits of a name are not enough: of 100 000 journals two have them in common more often than
    # not. So the headers tell, and a name only where its header is lost.
    written = [segment for segment in found if segment.size]
    whole = {segment.journal for segment in written if segment.header is not None}
    ids: dict[str, None] = {}
    for segment in written:
        journal = segment.journal
        if segment.header is None and any(map(segment.is_of, whole)):
            journal = next((each for each in reversed(ids) if segment.is_of(each)), "")
        if journal:
            ids.pop(journal, None)
            ids[journal] = None
    return tuple(ids)


def find_path(sources: Sequence[Source], journal: str = "") -> JournalPath:
    """The path of one journal: the newest whose id begins with ``journal``, by default the newest of all.

    Raises OSError. An empty location gives a path without segments.
    """
    found = find_segments(sources)
    # Numbers go on over all journals of a location, so the last file's journal is the newest.
    known = journal_ids(found)
    chosen = next((each for each in reversed(known) if each.startswith(journal)), journal)
    next_number = max((segment.number for segment in found), default=0) + 1
    others = tuple(each for each in known if not chosen.startswith(each))
    ours = [segment for segment in found if segment.is_of(chosen) and segment.size]
    whole: dict[int, Segment] = {}
    for segment in ours:
        if segment.header is not None:
            whole[segment.number] = max(whole.get(segment.number, segment), segment, key=_copy_rank)
    tip = max(whole, default=0)
    segments, missing = _walk_back(whole, tip)
    if missing and not any(segment.number <= missing for segment in ours):
        # Retention removes one file after the other: where it died in between, the first checkpoint is the
        # begin.
        fronts = (at for at, segment in enumerate(segments) if segment.begins_with_checkpoint())
        segments = segments[next(fronts, 0) :]
    # Retention takes the oldest segments and leaves a checkpoint at the front; all else is a gap.
    gap, first = "", segments[0] if segments else None
    if missing and first is not None and any(segment.number <= missing for segment in ours):
        gap = f"segment {missing} before {first.name} is damaged or missing, and older ones are there"
    elif missing and first is not None and not first.begins_with_checkpoint():
        gap = f"{first.name} needs segment {missing}, which is missing"
    before_gap = max((number for number in whole if gap and number < missing), default=0)
    older, _ = _walk_back(whole, before_gap)
    tail = tuple(segment for segment in ours if segment.header is None and segment.number > tip)
    header = segments[-1].header if segments else None
    return JournalPath(header.journal_id if header else b"", segments, tail, gap, older, next_number, others)


def _copy_rank(segment: Segment) -> tuple[int, int]:
    """Of two copies the longer one counts; of two different segments with one number, the one begun later."""
    assert segment.header is not None
    return segment.header.anchor_wall_ns, segment.size


def _walk_back(whole: dict[int, Segment], tip: int) -> tuple[tuple[Segment, ...], int]:
    """The segments that lead to the tip, and the number of the one missing before them (0: none)."""
    # Numbers only ever fall on the way back, or a header that was made up would lead in circles.
    path: list[Segment] = []
    number = tip
    while number in whole and (not path or number < path[-1].number):
        path.append(whole[number])
        header = whole[number].header
        assert header is not None
        number = header.link.segment
    return tuple(reversed(path)), number if path else 0
