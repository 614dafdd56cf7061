"""Where segments are read from, and which of them make up the journal.

A location is a list of files and their bytes (`Source`). Reading needs no Trio, so a reading command starts
three times as fast (writing: `events.disk`).

The newest whole segment of all locations is the tip; from there the links lead back to the begin. Segments
off that path do not count.
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
    """A file of a location: its name, its length in bytes, and its last write (wall clock)."""

    name: str
    size: int
    modified_ns: int


class Source(Protocol):
    """Read access to one location. Raises OSError. A missing location is empty."""

    @property
    def location(self) -> str: ...

    def files(self) -> list[StoredFile]:
        """All files, sorted by name."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end of the file."""


class DirectorySource:
    """A real directory, read-only. ``own``: ignore it if others could have written there."""

    def __init__(self, path: str | os.PathLike[str], *, own: bool = False) -> None:
        self.location = os.fspath(path)
        self._own = own

    def files(self) -> list[StoredFile]:
        # Raise every other error: a journal that cannot be listed is not empty.
        try:
            if self._own and not is_own(self.location):
                return []
            with os.scandir(self.location) as entries:
                # No links: the author of a link may have fewer rights than this reader.
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


def is_own(directory: str) -> bool:
    try:
        with own_directory(directory):
            return True
    except PermissionError as error:
        if error.errno == errno.EPERM:
            return False
        raise


# --- which of them make up the journal ------------------------------------------------------------

#: Enough for nearly every header, so that a look at a segment is one read.
PEEK_BYTES = 4096


class Segment(NamedTuple):
    """A segment file. ``header`` None: damaged or incompatible, see ``problem``.

    ``journal``: 32 hexadecimal digits from its header, else the eight of its name.
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
        """Whether it belongs to the journal of this id; by its name alone, to every journal that
        begins so.
        """
        return journal.startswith(self.journal)

    def first_record(self) -> RawRecord | None:
        """The first record; None: the segment has no whole one."""
        if self.header is None:
            return None
        # A checkpoint may be large, most first records are not: read a little, then more if needed.
        size = min(self.size - len(self.header_bytes), PEEK_BYTES)
        while True:
            data = self.header_bytes[-32:] + self.source.read(self.name, len(self.header_bytes), size)
            records = parse_frames(data, 32, len(data), self.header.link.seq).records
            if records or size >= min(self.size - len(self.header_bytes), FRAME_BYTES_MAX):
                return records[0] if records else None
            size = min(size * 16, self.size, FRAME_BYTES_MAX)

    def begins_with_checkpoint(self, *, between_episodes: bool = False) -> bool:
        """Whether a reader can start here."""
        first = self.first_record()
        if first is None or first.tag != Checkpoint.__name__:
            return False
        return not (between_episodes and first.episode)


class JournalPath(NamedTuple):
    """The journal's segments in order: ``segments`` lead to the tip.

    ``gap``: why some before them are missing, and ``older`` are the segments before the gap. ``tail`` are
    younger files with an unusable header.
    """

    journal_id: bytes
    segments: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    gap: str
    older: tuple[Segment, ...]
    #: Above all numbers of all journals here, so that the next file's name is new and sorts last.
    next_number: int
    #: The ids of other journals in these locations; eight digits for a journal without a whole header.
    others: tuple[str, ...]


def find_segments(sources: Sequence[Source]) -> list[Segment]:
    """Every segment file, by number, empty ones too: their names are taken. Raises OSError.

    An unreadable file proves no damage, so it is an error.
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
        raise  # the reader's error: it is no finding about the journal
    except (DamagedHeader, OSError) as error:
        return blank._replace(problem=str(error))
    # A file copied under another name would be a second segment of that number, and its own would be missing:
    # links look for names.
    if (header.segment, header.journal_id.hex()[:SHORT_ID_DIGITS]) != (number, journal):
        return blank._replace(problem="the header belongs to another file name")
    return blank._replace(journal=header.journal_id.hex(), header=header, header_bytes=data[:length])


def journal_ids(found: Iterable[Segment]) -> tuple[str, ...]:
    """The journals of these segments, the newest last; eight digits for a journal without a whole header."""
    # Of 100 000 journals two probably share eight digits. So use the headers, and a name only where its
    # header is lost.
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
    # Numbers continue over all journals of a location, so the last file's journal is the newest.
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
        # Retention may have died between two removals: the first checkpoint is then the begin.
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
    """Of two copies the longer one counts; of two different segments with one number, the later one."""
    assert segment.header is not None
    return segment.header.anchor_wall_ns, segment.size


def _walk_back(whole: dict[int, Segment], tip: int) -> tuple[tuple[Segment, ...], int]:
    """The segments that lead to the tip, and the missing number before them (0: none)."""
    # Numbers must fall on the way back, or a forged header would lead in circles.
    path: list[Segment] = []
    number = tip
    while number in whole and (not path or number < path[-1].number):
        path.append(whole[number])
        header = whole[number].header
        assert header is not None
        number = header.link.segment
    return tuple(reversed(path)), number if path else 0
