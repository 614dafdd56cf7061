"""The synchronous half of the writer: records become frames, each knows its place, and nothing waits.

The chain runs ahead of the disk. What is not known durable stays in the writer as items; when a file fails
they are laid out again, byte for byte, in the next one, so that a record's chain hash, once given out,
never changes: a shutdown's trace id hangs on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from events.frames import HASH_BYTES, encode, encode_boundary, encode_trailer
from events.record import Record, Stamp
from events.segment import Header, Identity, Link, encode_header


class Item(NamedTuple):
    """A piece of a segment and the place behind it: a record's frame, a trailer, or a header."""

    data: bytes
    end: Link
    record: Record | None = None
    header: bool = False


class Start(NamedTuple):
    """Where a writer goes on: behind ``after`` (all zero: a new journal), with segment ``number``."""

    journal_id: bytes
    after: Link
    number: int


class Chain:
    """Where the journal's end is, as the next record sees it."""

    def __init__(self, identity: Identity, start: Start) -> None:
        self.identity = identity
        self.journal_id = start.journal_id
        self.end = start.after
        self._next_number = start.number
        self._anchor = Stamp(0, 0)
        self._header_hash = b""

    def begin_segment(self, anchor: Stamp) -> list[Item]:
        """The trailer of the current segment, if there is one, and the header of the next."""
        items = [self.seal()] if self._header_hash else []
        self._anchor = anchor
        header = self._header(self.end, carries=False)
        self.end = Link(self._next_number - 1, len(header), self.end.seq, header[-HASH_BYTES:])
        return [*items, Item(header, self.end, header=True)]

    def append(self, record: Record, durable_seq: int) -> Item:
        """One more record. Raises ValueError where its number is not the next, and FrameTooLarge."""
        if record.seq != self.end.seq + 1:
            raise ValueError(f"record {record.seq} cannot follow record {self.end.seq} in the journal")
        return self._extend(encode(record, self.end.hash, durable_seq), record)

    def seal(self) -> Item:
        """The current segment's trailer: nothing more goes into it."""
        return self._extend(encode_trailer(self.end.seq, self._header_hash, self.end.hash), None)

    def carry(self, durable: Link, items: Sequence[Item]) -> tuple[bytes, list[Item]]:
        """A segment that goes on behind ``durable`` with ``items``: its first bytes, and them in place."""
        header = self._header(durable, carries=True)
        parts, moved, end = [header], [], durable._replace(segment=self._next_number - 1, offset=len(header))
        for item in items:
            data = encode_boundary(item.end.seq, item.data) if item.header else item.data
            end = Link(end.segment, end.offset + len(data), item.end.seq, item.end.hash)
            parts.append(data)
            moved.append(item._replace(end=end))
        self.end = end
        return b"".join(parts), moved

    def _extend(self, frame: bytes, record: Record | None) -> Item:
        seq = record.seq if record else self.end.seq
        self.end = Link(self.end.segment, self.end.offset + len(frame), seq, frame[-HASH_BYTES:])
        return Item(frame, self.end, record)

    def _header(self, link: Link, *, carries: bool) -> bytes:
        number, anchor = self._next_number, self._anchor
        self._next_number += 1
        header = encode_header(
            Header(self.journal_id, number, anchor.wall_ns, anchor.mono_ns, carries, link, self.identity)
        )
        self._header_hash = header[-HASH_BYTES:]
        return header
