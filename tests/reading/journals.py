"""Small journals for what the golden ones do not hold: edited records, other versions, two shutdowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from events.base import Event
from events.chain import Chain, Start
from events.facts import PrepareForShutdown
from events.frames import decode
from events.history import History
from events.record import Record, Stamp
from events.segment import Identity, Link, file_name
from events.storage import DirectorySource
from tests.replay.shutdown import GRANT_NS, Book, first_life

JOURNAL_ID = bytes(range(16))


def records(journal: Path) -> list[Record]:
    return [decode(raw) for raw in History([DirectorySource(journal)]).raw()]


def write(folder: Path, written: Iterable[Record], flags: tuple[str, ...] = (), boot: str = "boot-1") -> Path:
    """A journal of one segment; its folder."""
    kept = list(written)
    identity = Identity("node-1", "machine-1", boot, "0.1.0", flags)
    chain = Chain(identity, Start(JOURNAL_ID, Link(), 1))
    items = chain.begin_segment(Stamp(kept[0].mono_ns, kept[0].wall_ns))
    items += [chain.append(record, 0) for record in kept]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name(1, JOURNAL_ID)).write_bytes(b"".join(item.data for item in items))
    return folder


def edit(written: list[Record], seq: int, change: Callable[[Event], Event]) -> list[Record]:
    """The same records, with one event changed."""
    return [
        msgspec.structs.replace(record, event=change(record.event)) if record.seq == seq else record
        for record in written
    ]


def cancelled_and_begun_again(folder: Path) -> Path:
    """A shutdown is cancelled, and in the very step that closes it the next one begins."""
    book = Book(())
    signal = PrepareForShutdown(active=True, kind="reboot", grant_ns=GRANT_NS, lock_held=True)

    def facts() -> Iterator[tuple[int, Event]]:
        yield from first_life()
        yield 100, PrepareForShutdown(active=False)
        yield 100, signal

    book.process("boot-1", facts())
    return write(folder, book.records)
