"""The journal of a virtual run: the bytes that the writer would write, without a disk and without waiting.

The writer (`events.writer`) is about disks that hang, fail and lose what they took. Here there is none: every
record is durable as soon as it stands in the book. Segments, chain and frames are the real ones
(`events.chain`), so every reading verb works on the result; the files come out as names and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from actors.logic.snapshot import take
from actors.logic.system import System
from events.chain import Chain, Item, Start
from events.frames import HASH_BYTES, TRAILER, RawRecord, parse
from events.record import Record, Stamp
from events.segment import Identity, Link, file_name, parse_header
from events.source import StoredFile

#: Emits the records of the journal itself (`events.writer`, which waits, and is not loaded for this).
JOURNAL_ACTOR = "journal"


class Book:
    """One journal, over all the processes that write it. ``files`` has each segment's bytes so far."""

    def __init__(self, journal_id: bytes) -> None:
        self.journal_id = journal_id
        self.records: list[Record] = []
        self._parts: dict[str, list[bytes]] = {}
        self._open: list[bytes] = []
        self._end, self._number = Link(), 1
        self._chain: Chain | None = None

    def begin(self, identity: Identity, system: System, stamp: Stamp) -> Record:
        """A process begins to write: its segment, and the checkpoint of the state that it found."""
        self._chain = Chain(
            identity._replace(logic_flags=system.flags), Start(self.journal_id, self._end, self._number)
        )
        self._open = self._parts[file_name(self._number, self.journal_id)] = []
        self._number += 1
        self._take(self._chain.begin_segment(stamp))
        mark = take(system)
        record = Record(
            seq=system.next_seq,
            mono_ns=stamp.mono_ns,
            wall_ns=stamp.wall_ns,
            episode=mark.episode,
            cause=0,
            actor=JOURNAL_ACTOR,
            last=True,
            event=mark,
        )
        system.next_seq += 1
        self.append((record,))
        return record

    def append(self, records: Sequence[Record]) -> None:
        """Whole steps. Raises ValueError for a gap in the numbers, and events.frames.FrameTooLarge."""
        assert self._chain is not None, "a process begins with its segment"
        self.records += records
        durable_seq = self._end.seq
        self._take([self._chain.append(record, durable_seq) for record in records])

    def seal(self) -> None:
        """The process ended in good order: its segment gets a trailer."""
        if self._chain is not None:
            self._take([self._chain.seal()])

    def _take(self, items: Iterable[Item]) -> None:
        assert self._chain is not None
        self._open += [item.data for item in items]
        self._end = self._chain.end

    @property
    def head(self) -> bytes:
        """The chain hash of the last record, or of the trailer behind it: it vouches for all before it."""
        return self._end.hash

    def files(self) -> dict[str, bytes]:
        """Every segment as name and bytes, in the order of writing."""
        return {name: b"".join(parts) for name, parts in self._parts.items()}

    def source(self) -> Shelf:
        """The same as a place that a history can be read from, without any file."""
        return Shelf(self.files())


class Shelf:
    """Segments in memory (`events.source.Source`)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.location = "memory"
        self._files = files

    def files(self) -> list[StoredFile]:
        return [StoredFile(name, len(data), 0) for name, data in self._files.items()]

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._files[name][offset : offset + size]


class Unsound(Exception):
    """Bytes that were just written cannot be read back: a bug of the journal's format; report it."""


def read_back(files: dict[str, bytes]) -> Iterator[RawRecord]:
    """Every record of a book's segments, from their bytes, each header and frame verified. Raises Unsound.

    `events.history.History` reads any journal; this reads only what is whole, and loads nothing that waits.
    """
    end = Link()
    for name, data in files.items():
        header, length = parse_header(data)
        if header.link != end:
            raise Unsound(f"{name} does not go on where the segment before it ends")
        parsed = parse(data, length, len(data), end.seq)
        sealed = parsed.stop == TRAILER
        if parsed.whole != len(parsed.records) or not (sealed or parsed.pos == len(data)):
            raise Unsound(f"{name}: {parsed.stop or 'the last step is not whole'} at byte {parsed.pos}")
        yield from parsed.records
        end = Link(header.segment, len(data), parsed.seq, data[-HASH_BYTES:])
