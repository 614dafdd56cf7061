"""Where segments are read from, and which of them make up the journal.

The newest whole segment of all locations is the tip; from there the links lead back to the begin. Other
segments do not count. This module needs no Trio, so a reading command starts three times as fast.
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
    name: str
    size: int
    modified_ns: int


class Source(Protocol):
    """Read access to one location. Raises OSError. A missing location is empty."""

    @property
    def location(self) -> str: ...

    def files(self) -> list[StoredFile]:
        """Sorted by name."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end of the file."""


class DirectorySource:
    """``own``: ignore it if others could have written there."""

    def __init__(self, path: str | os.PathLike[str], *, own: bool = False) -> None:
        self.location = os.fspath(path)
        self._own = own

    def files(self) -> list[StoredFile]:
        # Raise other errors than a missing folder: an unreadable journal is not empty.
        try:
            if self._own and not is_own(self.location):
                return []
            with os.scandir(self.location) as entries:
                # No links: a link's author may have fewer rights than this reader.
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


#: Nearly every header fits, so one read is enough.
PEEK_BYTES = 4096


class Segment(NamedTuple):
    """``header`` None: see ``problem``. ``journal``: 32 digits from its header, or the eight of its name."""

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
        """Without a header it belongs to every journal whose id begins so."""
        return journal.startswith(self.journal)

    def first_record(self) -> RawRecord | None:
        if self.header is None:
            return None
        # Most first records are small, but a checkpoint may be large.
        size = min(self.size - len(self.header_bytes), PEEK_BYTES)
        while True:
            data = self.header_bytes[-32:] + self.source.read(self.name, len(self.header_bytes), size)
            records = parse_frames(data, 32, len(data), self.header.link.seq).records
            if records or size >= min(self.size - len(self.header_bytes), FRAME_BYTES_MAX):
                return records[0] if records else None
            size = min(size * 16, self.size, FRAME_BYTES_MAX)

    def begins_with_checkpoint(self, *, between_episodes: bool = False) -> bool:
        """A reader can start here."""
        first = self.first_record()
        if first is None or first.tag != Checkpoint.__name__:
            return False
        return not (between_episodes and first.episode)


class JournalPath(NamedTuple):
    """``segments`` lead to the tip, in order. ``gap``: why some before them are missing.

    ``older``: the segments before the gap. ``tail``: younger files with an unusable header.
    """

    journal_id: bytes
    segments: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    gap: str
    older: tuple[Segment, ...]
    #: Above the numbers of all journals here, so that the next file's name sorts last.
    next_number: int
    #: Ids of other journals here, as from `journal_ids`.
    others: tuple[str, ...]


def find_segments(sources: Sequence[Source]) -> list[Segment]:
    """By number. Also empty files, whose names are taken.

    Raises OSError, also for a file that this user may not read: that is no damage.
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
    # A file that was copied under another name is not the segment of that number.
    if (header.segment, header.journal_id.hex()[:SHORT_ID_DIGITS]) != (number, journal):
        return blank._replace(problem="the header belongs to another file name")
    return blank._replace(journal=header.journal_id.hex(), header=header, header_bytes=data[:length])


def journal_ids(found: Iterable[Segment]) -> tuple[str, ...]:
    """The newest last; eight digits for a journal without a whole header."""
    # Two of 100 000 journals probably share eight digits, so use a name only if its header is lost.
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
    """The path of the newest journal whose id begins with ``journal``. Raises OSError.

    An empty location has a path without segments.
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
        # Retention may have been killed between two removals: the first checkpoint is then the begin.
        fronts = (at for at, segment in enumerate(segments) if segment.begins_with_checkpoint())
        segments = segments[next(fronts, 0) :]
    # After retention a checkpoint is at the front. All else is a gap.
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
    """The longer of two copies counts; of two different segments with one number, the later one."""
    assert segment.header is not None
    return segment.header.anchor_wall_ns, segment.size


def _walk_back(whole: dict[int, Segment], tip: int) -> tuple[tuple[Segment, ...], int]:
    """The segments that lead to the tip, and the missing number before them (0: none)."""
    # Numbers must decrease, or a forged header would lead in circles.
    path: list[Segment] = []
    number = tip
    while number in whole and (not path or number < path[-1].number):
        path.append(whole[number])
        header = whole[number].header
        assert header is not None
        number = header.link.segment
    return tuple(reversed(path)), number if path else 0
