"""A journal, or a part of it, in one file for a ticket: a ZIP archive (docs/journal-format.md).

The same journal makes the same bytes (with the same zlib), without a time, user or path of the packing. A
part of a damaged journal has its findings (`events.recovery`).
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

from ebbtide.events.catalog import DirectorySource, JournalPath, Segment, Source, StoredFile, find_path
from ebbtide.events.reader import History
from ebbtide.events.recovery import Finding, findings_from_documents
from ebbtide.events.units import size_text

MANIFEST, SEGMENTS_FOLDER = "manifest.json", "segments/"
#: The first moment of ZIP's calendar.
NO_TIME = (1980, 1, 1, 0, 0, 0)
FILE_MODE = 0o600
#: The place of a member's permissions, and ZIP's number for UNIX.
_MODE_SHIFT, _UNIX = 16, 3


# A deflated byte may unpack to a thousand, so check the sizes before opening a member.

#: Journals unpack to 3 to 5 times their size, because a third of a record is its hash.
UNPACKED_PER_BYTE_MAX = 32
#: Always allowed: no machine runs out of memory.
UNPACKED_BYTES_FREE = 1024 * 1024
#: Room for the findings of a journal with a thousand damages.
MANIFEST_BYTES_MAX = 256 * 1024
#: The list of members stays in memory: room for 10 000 segments, where a journal has 256.
INDEX_BYTES_MAX = 1024 * 1024
#: An open member takes some 100 KB; a reader goes through one after the other.
OPEN_MEMBERS_MAX = 4

#: The end of a ZIP archive: its mark, disks, members here and in all, bytes of the index, its offset, the
#: length of a comment. Larger archives have another mark before it.
_INDEX_END = struct.Struct("<4sHHHHIIH")
_INDEX_END_MAGIC, _LARGE_INDEX_MAGIC, _LARGE_INDEX_BYTES = b"PK\x05\x06", b"PK\x06\x07", 20
#: Of a member's flags: encrypted, a patch, or masked.
_ENCRYPTED_FLAGS = 0x1 | 0x20 | 0x40 | 0x2000

#: From the standard library, for files that are no archive, or forged.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    # NotImplementedError and RecursionError are RuntimeErrors.
    RuntimeError,
    OverflowError,
    ValueError,
    TypeError,
)

CURE_OF_LARGE = "one that you trust can be unpacked, and its folder 'segments' be named"


class NotPacked(Exception):
    """No packed journal: name a directory, or a file that ``ebbtide journal pack`` made."""


def write_pack(file: IO[bytes], manifest: Mapping[str, Any], pieces: Iterable[tuple[str, bytes]]) -> None:
    """``pieces``: segment names and bytes, all of one segment together."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        archive.writestr(_member(MANIFEST), text)
        name, member = "", None
        try:
            for of, data in pieces:
                if of != name and member is not None:
                    member.close()
                # The size is unknown here, and without ZIP64 a large member would fail.
                if of != name:
                    name, member = of, archive.open(_member(SEGMENTS_FOLDER + of), "w", force_zip64=True)
                assert member is not None
                member.write(data)
        finally:
            if member is not None:
                member.close()


def _member(name: str) -> zipfile.ZipInfo:
    # Without time, user or umask, checksums can compare two copies.
    info = zipfile.ZipInfo(name, NO_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = FILE_MODE << _MODE_SHIFT
    return info


class PackedSource:
    """`events.catalog.Source` over a packed journal."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises NotPacked, OSError."""
        self.location = os.fspath(path)
        self._open: dict[str, IO[bytes]] = {}
        try:
            with open(path, "rb") as file:
                packed_bytes = _check_index(file)
            self._archive = zipfile.ZipFile(path)
        except _ZIP_ERRORS as error:
            raise NotPacked(f"{self.location} is no packed journal: {error}") from error
        try:
            _check_members(self._archive, packed_bytes)
            self.manifest = document_of(self._archive.read(MANIFEST))
            #: Damage of the original journal (`events.recovery`).
            self.stated = findings_from_documents(self.manifest.get("findings", ()))
        except _ZIP_ERRORS as error:
            self._archive.close()
            raise NotPacked(f"{self.location} is no packed journal: {error}") from error

    def close(self) -> None:
        for member in self._open.values():
            member.close()
        self._archive.close()

    def files(self) -> list[StoredFile]:
        return sorted(
            StoredFile(info.filename.removeprefix(SEGMENTS_FOLDER), info.file_size, 0)
            for info in self._archive.infolist()
            if info.filename.startswith(SEGMENTS_FOLDER)
        )

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Readers go forward, so the member stays open where the last read stopped."""
        try:
            member = self._open.pop(name, None) or self._archive.open(SEGMENTS_FOLDER + name)
            self._open[name] = member
            while len(self._open) > OPEN_MEMBERS_MAX:
                self._open.pop(next(iter(self._open))).close()
            # A seek backwards unpacks from the beginning.
            if member.tell() != offset:
                member.seek(offset)
            return member.read(size)
        except _ZIP_ERRORS as error:
            self._open.pop(name, None)
            raise OSError(f"{self.location}: {error}") from error


def _check_index(file: IO[bytes]) -> int:
    """The file's size in bytes. Raises ValueError if the list of members is too long."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _INDEX_END.size - 0xFFFF - _LARGE_INDEX_BYTES))
    end = file.read()
    # If it is missing, the library reports that.
    at = end.rfind(_INDEX_END_MAGIC, 0, len(end) - _INDEX_END.size + len(_INDEX_END_MAGIC))
    if at < 0:
        return size
    index_bytes = _INDEX_END.unpack_from(end, at)[5]
    is_large = end[max(0, at - _LARGE_INDEX_BYTES) : at].startswith(_LARGE_INDEX_MAGIC)
    if is_large or index_bytes > INDEX_BYTES_MAX:
        raise ValueError(f"the list of its members is above {size_text(INDEX_BYTES_MAX)} ({CURE_OF_LARGE})")
    return size


def _check_members(archive: zipfile.ZipFile, packed_bytes: int) -> None:
    """Raises ValueError for members that no packed journal has."""
    members = archive.infolist()
    if len({info.filename for info in members}) < len(members):
        raise ValueError("two of its members have one name")
    # Other methods unpack in pieces of any size.
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    for info in members:
        if info.compress_type not in methods or info.flag_bits & _ENCRYPTED_FLAGS:
            raise ValueError("its members are encrypted, or neither stored nor deflated")
    # Readers never unpack more of a member than its own size field.
    unpacked = sum(info.file_size for info in members)
    if unpacked > UNPACKED_BYTES_FREE + UNPACKED_PER_BYTE_MAX * packed_bytes:
        raise ValueError(f"it would unpack to {size_text(unpacked)} ({CURE_OF_LARGE})")
    if archive.getinfo(MANIFEST).file_size > MANIFEST_BYTES_MAX:
        raise ValueError(f"its {MANIFEST} is above {size_text(MANIFEST_BYTES_MAX)}")


def document_of(text: bytes) -> dict[str, Any]:
    """The manifest's content. Raises ValueError."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"its {MANIFEST} is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError(f"its {MANIFEST} is no object")
    return found


def source_at(path: str | os.PathLike[str]) -> Source:
    """For a journal's directory or a packed journal. Raises NotPacked, OSError."""
    return PackedSource(path) if os.path.isfile(path) else DirectorySource(path)


class ExcerptPiece(NamedTuple):
    segment: Segment
    size_bytes: int


class Excerpt:
    """`events.catalog.Source` over the begins of segments."""

    def __init__(self, location: str, pieces: list[ExcerptPiece], stated: tuple[Finding, ...] = ()) -> None:
        self.location = location
        self.stated = stated
        self.pieces = {piece.segment.name: piece for piece in pieces}

    def files(self) -> list[StoredFile]:
        found = [
            StoredFile(name, piece.size_bytes, piece.segment.modified_ns)
            for name, piece in self.pieces.items()
        ]
        return sorted(found)

    def read(self, name: str, offset: int, size: int) -> bytes:
        piece = self.pieces[name]
        left = max(0, min(size, piece.size_bytes - offset))
        return piece.segment.source.read(name, offset, left) if left else b""


def whole_journal(history: History) -> Excerpt:
    """With damaged ends and the part before a gap."""
    path = history.path
    pieces = [ExcerptPiece(segment, segment.size) for segment in (*path.older, *path.segments, *path.tail)]
    made = Excerpt(_location_of(path), pieces, history.stated)
    # If the copy lacks the segment before the gap, it looks like the result of retention.
    if path.gap and not find_path([made]).gap:
        findings = history.read().findings
        made.stated += tuple(finding for finding in findings if finding.case.damage == "missing")
    return made


def around_records(history: History, first_seq: int, last_seq: int) -> Excerpt:
    """The segments of these records, from the last checkpoint before them. Raises events.reader.Unread."""
    segments, verdict = history.segments, history.verdict
    starts = [segment.header.link.seq + 1 for segment in segments if segment.header is not None]
    fronts = [
        at
        for at, segment in enumerate(segments)
        if starts[at] <= first_seq and (segment.begins_with_checkpoint() or at == 0)
    ]
    front = fronts[-1] if fronts else 0
    back = max([at for at, start in enumerate(starts) if start <= last_seq], default=0)
    pieces = [ExcerptPiece(segment, segment.size) for segment in segments[front : back + 1]]
    following = segments[back + 1].header if back + 1 < len(segments) else None
    # Cut where the journal ends, or where the next segment continues. The rest would be damage in the part.
    if pieces and segments[back].number == verdict.end.segment:
        pieces[-1] = ExcerptPiece(segments[back], verdict.end.offset)
    elif following is not None and pieces:
        pieces[-1] = ExcerptPiece(segments[back], following.link.offset)
    return Excerpt(_location_of(history.path), pieces, verdict.findings)


def _location_of(path: JournalPath) -> str:
    return path.segments[0].source.location if path.segments else ""
