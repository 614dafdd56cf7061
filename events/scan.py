"""Reading one segment: verified frames in chunks, and where and why reading stopped."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from events.catalog import Segment
from events.frames import (
    BOUNDARY,
    FLAG_TRAILER,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    FRAME_HEAD,
    FRAME_MAGIC_BYTES,
    HASH_BYTES,
    TRAILER,
    Parsed,
    RawRecord,
    parse,
)
from events.segment import DamagedHeader, Header, IncompatibleHeader, Link, parse_header

#: Read at a time: large against a frame, small against the memory of a node agent.
CHUNK_BYTES = 256 * 1024


class Piece(NamedTuple):
    """Some records of a segment; ``whole`` of them end with a step, and behind those is ``whole_end``."""

    header: Header
    records: list[RawRecord]
    whole: int
    whole_end: Link


class Scan:
    """One pass over one segment, up to ``limit`` if a later segment links into it."""

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
        #: Why reading stopped before the end; None when it did not.
        self.damage: str | None = None

    def pieces(self) -> Iterator[Piece]:
        """Raises nothing for damage: `damage` tells, and `end` where. PermissionError is no damage."""
        buffer, behind = self.end.hash, self.end.offset
        while self.damage is None and (chunk := self._read(behind)):
            buffer, behind = buffer + chunk, behind + len(chunk)
            pos = HASH_BYTES
            while True:
                parsed = parse(buffer, pos, len(buffer), self.end.seq)
                if parsed.records:
                    yield self._piece(parsed, behind - len(buffer))
                pos = self._special(buffer, parsed)
                if pos == parsed.pos:
                    break
            buffer = buffer[pos - HASH_BYTES :]
        if self.damage is None:
            self.damage = self._at_end(len(buffer) - HASH_BYTES)

    def _read(self, offset: int) -> bytes:
        try:
            size = min(CHUNK_BYTES, self._size - offset)
            return self._segment.source.read(self._segment.name, offset, size) if size > 0 else b""
        except PermissionError:
            raise
        except OSError as error:
            self.damage = f"cannot be read: {error}"
            return b""

    def _piece(self, parsed: Parsed, base: int) -> Piece:
        last = parsed.records[-1]
        self.end = Link(self._segment.number, base + parsed.pos, last.seq, last.hash)
        self.durable_seq = max(self.durable_seq, parsed.durable_seq)
        self.sealed = False
        if not parsed.whole:
            return Piece(self.header, parsed.records, 0, self.end)
        whole = parsed.records[parsed.whole - 1]
        end = Link(self._segment.number, base + parsed.whole_pos, whole.seq, whole.hash)
        return Piece(self.header, parsed.records, parsed.whole, end)

    def _special(self, buffer: bytes, parsed: Parsed) -> int:
        """Step over a trailer or a carried header; the new position, or the old one to stop there."""
        if parsed.stop is None:
            return parsed.pos
        if parsed.stop not in (TRAILER, BOUNDARY):
            self.damage = parsed.stop
            return parsed.pos
        length: int = FRAME_HEAD.unpack_from(buffer, parsed.pos)[2]
        frame = buffer[parsed.pos : parsed.pos + length]
        before = buffer[parsed.pos - HASH_BYTES : parsed.pos]
        good = self._trailer(frame, before) if parsed.stop == TRAILER else self._boundary(frame, before)
        if not good:
            self.damage = f"a {parsed.stop} does not fit"
            return parsed.pos
        self.end = self.end._replace(offset=self.end.offset + length, hash=frame[-HASH_BYTES:])
        return parsed.pos + length

    def _trailer(self, frame: bytes, before: bytes) -> bool:
        """A trailer that was carried over names another header, and seals nothing here."""
        chained = hashlib.sha256(before + frame[:-HASH_BYTES]).digest() == frame[-HASH_BYTES:]
        self.sealed = frame[FRAME_HEAD.size : -HASH_BYTES] == self._segment.header_bytes[-HASH_BYTES:]
        seq, durable_seq = FRAME_HEAD.unpack_from(frame)[3:5]
        good = chained and bool(seq == self.end.seq)
        if good and self.sealed:
            self.durable_seq = max(self.durable_seq, durable_seq)
        return good

    def _boundary(self, frame: bytes, before: bytes) -> bool:
        try:
            header, length = parse_header(frame[FRAME_HEAD.size :])
        except (DamagedHeader, IncompatibleHeader):
            return False
        self.header, self.sealed = header, False
        fits = length == len(frame) - FRAME_HEAD.size
        return fits and (header.link.seq, header.link.hash) == (self.end.seq, before)

    def _at_end(self, left_bytes: int) -> str | None:
        if left_bytes:
            return "a frame is cut short"
        if self._limit and (self.end.seq, self.end.hash) != (self._limit.seq, self._limit.hash):
            return "the next segment continues from something else"
        return None


class Evidence(NamedTuple):
    """What whole frames behind damage tell: the highest number known durable, and whether it was sealed."""

    durable_seq: int
    sealed: bool


def evidence(segment: Segment, offset: int) -> Evidence:
    """Look for frames from ``offset`` on by their magic and checksum. The chain is not needed for that."""
    durable_seq, sealed, behind, buffer = 0, False, offset, b""
    while chunk := _read_past_errors(segment, behind):
        behind += len(chunk)
        buffer += chunk
        at = buffer.find(FRAME_MAGIC_BYTES)
        while at >= 0:
            length = _frame_length(buffer, at, final=behind >= segment.size)
            if length is None:
                break
            if length:
                head = FRAME_HEAD.unpack_from(buffer, at)
                durable_seq = max(durable_seq, head[4])
                sealed = sealed or head[9] == FLAG_TRAILER
            at = buffer.find(FRAME_MAGIC_BYTES, at + max(length, 1))
        buffer = buffer[at:] if at >= 0 else buffer[1 - len(FRAME_MAGIC_BYTES) :]
    return Evidence(durable_seq, sealed)


def _read_past_errors(segment: Segment, offset: int) -> bytes:
    """A chunk that cannot be read is as good as zeros."""
    size = min(CHUNK_BYTES, segment.size - offset)
    try:
        return segment.source.read(segment.name, offset, size) if size > 0 else b""
    except OSError:
        return bytes(size)


def _frame_length(buffer: bytes, at: int, *, final: bool) -> int | None:
    """The length of the whole frame at ``at``; 0 when there is none, None when more bytes are needed."""
    if at + FRAME_BYTES_MIN > len(buffer):
        return 0 if final else None
    _, crc, length, *_ = FRAME_HEAD.unpack_from(buffer, at)
    if not FRAME_BYTES_MIN <= length <= FRAME_BYTES_MAX:
        return 0
    if at + length > len(buffer):
        return 0 if final else None
    return length if zlib.crc32(buffer[at + 8 : at + length - HASH_BYTES]) == crc else 0
