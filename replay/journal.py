"""The library's front door: a journal on disk, its shutdowns, and their accounts.

    >>> import replay
    >>> journal = replay.open("/var/lib/ebbtide/journal")
    >>> last = journal.shutdown("last")
    >>> last.account.outcome
    'complete'

A journal is only ever read. Whatever can be used of it is, and `Journal.verdict` says what that was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any

import msgspec
from msgspec.structs import replace

from events.base import Event
from events.codec import BadPayload, UnknownType, encode_event
from events.facts import Tick
from events.frames import RawRecord, decode
from events.history import History
from events.record import Record
from events.recovery import Verdict
from events.source import Source
from replay.account.fold import accounts
from replay.account.model import Account
from replay.choice import LAST, NoSuchShutdown, pick

__all__ = ["Journal", "NoJournal", "NoSuchShutdown", "Shutdown", "Unreadable", "open_journal", "pick"]

_NOTHING = encode_event(Tick())


class NoJournal(LookupError):
    """There is no journal in these places: name the directory of the ``.ebj`` files, or a packed one."""


class Unreadable(Event, frozen=True, kw_only=True, gc=False):
    """What stands in the place of an event of another version, or of one that was miswritten.

    ``data`` is its payload as plain values, or hexadecimal digits.
    """

    tag: str
    data: Any


class Shutdown:
    """One shutdown of a journal. ``account`` is all that is told of it (`replay.account.model`)."""

    def __init__(self, journal: Journal, account: Account) -> None:
        self.journal = journal
        self.account = account

    @property
    def id(self) -> str:
        return self.account.id

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.account.trace_id

    def records(self) -> Iterator[Record]:
        """Its events, in order (see `Journal.records`)."""
        return map(readable, self.raw())

    def raw(self) -> Iterator[RawRecord]:
        """Its records with their payloads still encoded."""
        for raw in self.journal.history().raw():
            if raw.seq > self.account.last_seq:
                return
            if raw.episode == self.account.first_seq:
                yield raw

    def __repr__(self) -> str:
        return f"<Shutdown {self.id}: {self.account.kind}, {self.account.outcome}>"


class Journal:
    """A journal by its locations. Each reading starts anew, so a journal that is being written may grow.

    ``boot_id`` is the reader's: with it a shutdown whose boot is over counts as cut short, not as running.
    """

    def __init__(self, sources: Sequence[Source], *, journal: str = "", boot_id: str | None = None) -> None:
        """Raises NoJournal, and OSError where a location cannot be listed."""
        self._sources = tuple(sources)
        self._journal = journal
        self._boot_id = boot_id
        self._verdict: Verdict | None = None
        first = self.history()
        if not first.path.segments and not first.path.tail:
            places = ", ".join(source.location for source in self._sources)
            raise NoJournal(f"no journal in {places}")
        self._id = first.journal_id

    @property
    def id(self) -> str:
        """32 hexadecimal digits, random; a shutdown's id begins with the first eight."""
        return self._id.hex()

    @property
    def verdict(self) -> Verdict:
        """Whether it is intact, and what could be used where it is not; reads it to the end, once."""
        if self._verdict is None:
            self._verdict = self.history().read()
        return self._verdict

    def history(
        self, *, from_checkpoint: bool = False, logic_flags: Collection[str] | None = None
    ) -> History:
        """The records as the journal's own reader hands them out (`events.history`)."""
        return History(
            self._sources, journal=self._journal, from_checkpoint=from_checkpoint, logic_flags=logic_flags
        )

    def records(self) -> Iterator[Record]:
        """Every event in its place, in order. What cannot be read is an `Unreadable`."""
        return map(readable, self.history().raw())

    def accounts(self) -> Iterator[Account]:
        """The shutdowns' accounts, oldest first, made while it is read."""
        history = self.history()
        yield from accounts(history, boot_id=self._boot_id)
        self._verdict = history.verdict

    def shutdowns(self) -> Iterator[Shutdown]:
        """Oldest first, made while the journal is read: only those that you keep take memory."""
        return (Shutdown(self, account) for account in self.accounts())

    def shutdown(self, name: str = LAST) -> Shutdown:
        """``last``, ``-1``, ``-2``, … or an id. Raises NoSuchShutdown."""
        return pick(self.shutdowns(), name)

    def __repr__(self) -> str:
        places = ", ".join(source.location for source in self._sources)
        return f"<Journal {self.id[:8]} in {places}>"


def readable(raw: RawRecord) -> Record:
    """A record with its event; an `Unreadable` in the place of one that this version cannot read."""
    try:
        return decode(raw)
    except (UnknownType, BadPayload):
        event = Unreadable(tag=raw.tag, data=_plain(raw.payload))
        blank = raw._replace(tag=Tick.__name__, payload=_NOTHING)
        return replace(decode(blank), event=event)


def _plain(payload: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return payload.hex()


def open_journal(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    journal: str = "",
    *,
    boot_id: str | None = None,
) -> Journal:
    """A journal from its directory or packed file, or from several that a failing disk spread it over.

    ``journal`` chooses among several journals in one place by the first eight digits of its id (default: the
    newest). Raises NoJournal, events.packed.NotPacked, OSError.
    """
    from events.packed import source_at

    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return Journal([source_at(path) for path in several], journal=journal, boot_id=boot_id)
