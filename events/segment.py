"""A segment: one append-only file of the journal, its header, its name, its link to the one before.

`Chain` is the writer without I/O. After a failure the frames that are not durable go byte for byte into the
next file, so a record's chain hash never changes: a shutdown's trace id depends on it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ebbtide.events.base import Record, Stamp
from ebbtide.events.codec import HASH_BYTES, encode_boundary, encode_frame, encode_trailer

SEGMENT_MAGIC = b"EBBTIDE\n"
FORMAT_VERSION = 1

# Magic, format version, spare, header length. Every version has these fields and the hash at the end, or a
# reader could not distinguish another version from damage.
HEADER_PREFIX = struct.Struct("<8sHHI")
JOURNAL_ID_BYTES = 16
#: Of a journal's id, in a file's name and in a shutdown's id. For people: two journals may share them.
SHORT_ID_DIGITS = 8
#: compatible bits, incompatible bits, journal id, segment, wall ns, mono ns, carries, link segment, link
#: offset, link seq, link hash.
HEADER_FIXED = struct.Struct(f"<II{JOURNAL_ID_BYTES}sQqqQQQQ32s")
#: A reader ignores unknown compatible bits and refuses unknown incompatible ones.
INCOMPATIBLE_KNOWN = 0
#: Room for any names; a damaged length cannot ask for more memory.
HEADER_BYTES_MAX = 65_536

_TEXT_LENGTH = struct.Struct("<H")
_FILE_NAME = re.compile(r"([0-9]{10})-([0-9a-f]{8})\.ebj")

#: No writer reaches it. A forged header with a larger number would soon overflow its field.
NUMBERS_MAX = 1 << 62


#: The versions of the logic of the node's daemon and of the cluster's controller. Under one version the same
#: facts lead to the same decisions.
SHUTDOWN_LOGIC, OUTAGE_LOGIC = "shutdown-1", "outage-1"
#: This program can execute these.
LOGICS = (SHUTDOWN_LOGIC, OUTAGE_LOGIC)


def is_outage_logic(logic: str) -> bool:
    """In any version."""
    return logic.startswith("outage-")


class Identity(NamedTuple):
    """The writing process. ``logic``: as in `LOGICS`."""

    node: str
    machine_id: str
    boot_id: str
    code_version: str
    logic: str = ""


class Link(NamedTuple):
    """The place at ``offset`` of ``segment``, behind record ``seq`` and the bytes ``hash``."""

    segment: int = 0
    offset: int = 0
    seq: int = 0
    hash: bytes = bytes(HASH_BYTES)


class Header(NamedTuple):
    """The anchor is one moment on both clocks."""

    journal_id: bytes
    segment: int
    anchor_wall_ns: int
    anchor_mono_ns: int
    #: Its records were carried over from a failed file; their chain continues from the link.
    carries: bool
    link: Link
    identity: Identity
    compatible: int = 0
    incompatible: int = 0

    @property
    def of_outages(self) -> bool:
        return is_outage_logic(self.identity.logic)

    def wall_ns(self, mono_ns: int) -> int:
        """The displayed time of a record of this segment."""
        return self.anchor_wall_ns + mono_ns - self.anchor_mono_ns


class DamagedHeader(Exception):
    """A header that no writer made: cut short, with another hash, or with impossible values."""


class IncompatibleHeader(Exception):
    """The segment has another format: read it with its version or a newer one."""


def encode_header(header: Header) -> bytes:
    """The last 32 bytes are its hash, where the chain starts."""
    names = header.identity
    texts = [names.node, names.machine_id, names.boot_id, names.code_version, names.logic]
    body = b"".join(_TEXT_LENGTH.pack(len(text.encode())) + text.encode() for text in texts)
    fixed = HEADER_FIXED.pack(
        header.compatible,
        header.incompatible,
        header.journal_id,
        header.segment,
        header.anchor_wall_ns,
        header.anchor_mono_ns,
        int(header.carries),
        *header.link,
    )
    length = HEADER_PREFIX.size + len(fixed) + _TEXT_LENGTH.size + len(body) + HASH_BYTES
    # A reader would report it as damaged, so make no segment.
    if length > HEADER_BYTES_MAX:
        raise ValueError(f"a segment header of {length} bytes is above {HEADER_BYTES_MAX}: shorten its names")
    prefix = HEADER_PREFIX.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, length)
    content = prefix + fixed + _TEXT_LENGTH.pack(len(texts)) + body
    return content + hashlib.sha256(content).digest()


def header_length(prefix: bytes) -> int:
    """From the header's first 16 bytes. Raises DamagedHeader."""
    if len(prefix) < HEADER_PREFIX.size:
        raise DamagedHeader("the header is cut short")
    magic, _, _, length = HEADER_PREFIX.unpack_from(prefix)
    if magic != SEGMENT_MAGIC or not HEADER_PREFIX.size + HASH_BYTES <= length <= HEADER_BYTES_MAX:
        raise DamagedHeader("no segment header begins here")
    return int(length)


def parse_header(data: bytes) -> tuple[Header, int]:
    """The header and its length. Raises DamagedHeader and IncompatibleHeader."""
    length = header_length(data)
    if len(data) < length:
        raise DamagedHeader("the header is cut short")
    content, digest = data[: length - HASH_BYTES], data[length - HASH_BYTES : length]
    if hashlib.sha256(content).digest() != digest:
        raise DamagedHeader("the header does not match its hash")
    # Check the hash first: a flipped bit must not look like an unknown version or feature.
    version = HEADER_PREFIX.unpack_from(content)[1]
    if version != FORMAT_VERSION:
        raise IncompatibleHeader(f"format version {version}; this program reads version {FORMAT_VERSION}")
    # A forged header also has the right hash.
    try:
        compatible, incompatible, journal_id, segment, wall_ns, mono_ns, carries, *link = (
            HEADER_FIXED.unpack_from(content, HEADER_PREFIX.size)
        )
        if incompatible & ~INCOMPATIBLE_KNOWN:
            raise IncompatibleHeader(f"unknown incompatible features {incompatible & ~INCOMPATIBLE_KNOWN:#x}")
        pos = HEADER_PREFIX.size + HEADER_FIXED.size
        (count,) = _TEXT_LENGTH.unpack_from(content, pos)
        texts = []
        for _ in range(count):
            pos += _TEXT_LENGTH.size
            (text_length,) = _TEXT_LENGTH.unpack_from(content, pos)
            texts.append(content[pos + _TEXT_LENGTH.size : pos + _TEXT_LENGTH.size + text_length].decode())
            pos += text_length
        node, machine_id, boot_id, code_version, logic = texts
    except (struct.error, ValueError) as error:
        raise DamagedHeader("the header's fields do not fit into it") from error
    if pos + _TEXT_LENGTH.size > len(content):
        raise DamagedHeader("the header's fields do not fit into it")
    if max(segment, abs(wall_ns), abs(mono_ns), *link[:3]) >= NUMBERS_MAX:
        raise DamagedHeader("the header's numbers are beyond any that are written")
    header = Header(
        journal_id,
        segment,
        wall_ns,
        mono_ns,
        bool(carries),
        Link(*link),
        Identity(node, machine_id, boot_id, code_version, logic),
        compatible,
        incompatible,
    )
    return header, length


def segment_file_name(segment: int, journal_id: bytes) -> str:
    """Names sort in the order of writing."""
    return f"{segment:010d}-{journal_id.hex()[:SHORT_ID_DIGITS]}.ebj"


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """The segment's number and the first digits of its journal's id; None for any other file."""
    match = _FILE_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


class SegmentItem(NamedTuple):
    """A record's frame, a trailer, or a header, and the place behind it."""

    data: bytes
    end: Link
    record: Record | None = None
    header: bool = False


class WriterStart(NamedTuple):
    """A writer continues behind ``after`` (all zero: a new journal), with segment ``number``."""

    journal_id: bytes
    after: Link
    number: int


class Chain:
    """The journal's end, for the next record."""

    def __init__(self, identity: Identity, start: WriterStart) -> None:
        self.identity = identity
        self.journal_id = start.journal_id
        self.end = start.after
        self._next_number = start.number
        self._anchor = Stamp(0, 0)
        self._header_hash = b""

    def begin_segment(self, anchor: Stamp) -> list[SegmentItem]:
        """The trailer of this process's current segment, if any, and the header of the next."""
        # Do not seal an earlier process's segment: its durability is unknown.
        items = [self.seal()] if self._header_hash else []
        self._anchor = anchor
        header = self._header(self.end, carries=False)
        self.end = Link(self._next_number - 1, len(header), self.end.seq, header[-HASH_BYTES:])
        return [*items, SegmentItem(header, self.end, header=True)]

    def append(self, record: Record, durable_seq: int) -> SegmentItem:
        """Raises ValueError for a wrong number, and FrameTooLarge."""
        # For readers a gap is damage: refuse it where the mistake is.
        if record.seq != self.end.seq + 1:
            raise ValueError(f"record {record.seq} cannot follow record {self.end.seq} in the journal")
        return self._extend(encode_frame(record, self.end.hash, durable_seq), record)

    def seal(self) -> SegmentItem:
        """The current segment's trailer."""
        return self._extend(encode_trailer(self.end.seq, self._header_hash, self.end.hash), None)

    def carry(self, durable: Link, items: Sequence[SegmentItem]) -> tuple[bytes, list[SegmentItem]]:
        """The first bytes of a segment that continues behind ``durable``; the items at their new places."""
        # Headers among the items become frames of this file.
        header = self._header(durable, carries=True)
        parts, moved, end = [header], [], durable._replace(segment=self._next_number - 1, offset=len(header))
        for item in items:
            data = encode_boundary(item.end.seq, item.data) if item.header else item.data
            end = Link(end.segment, end.offset + len(data), item.end.seq, item.end.hash)
            parts.append(data)
            moved.append(item._replace(end=end))
        self.end = end
        return b"".join(parts), moved

    def _extend(self, frame: bytes, record: Record | None) -> SegmentItem:
        seq = record.seq if record else self.end.seq
        self.end = Link(self.end.segment, self.end.offset + len(frame), seq, frame[-HASH_BYTES:])
        return SegmentItem(frame, self.end, record)

    def _header(self, link: Link, *, carries: bool) -> bytes:
        # Use a number once: a file with its name may exist, even if making it failed.
        number, anchor = self._next_number, self._anchor
        self._next_number += 1
        header = encode_header(
            Header(self.journal_id, number, anchor.wall_ns, anchor.mono_ns, carries, link, self.identity)
        )
        self._header_hash = header[-HASH_BYTES:]
        return header
