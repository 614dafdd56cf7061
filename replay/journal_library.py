"""The library's front door: a journal on disk, its shutdowns, and their records.

    >>> from ebbtide import replay
    >>> journal = replay.open("/var/lib/ebbtide/journal")
    >>> last = journal.shutdown("last")
    >>> last.account.outcome
    'complete'

A journal is only read, as far as it is usable; `Journal.verdict` names its damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from ebbtide.events import codec
from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import Source
from ebbtide.events.facts import Tick
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict

if TYPE_CHECKING:
    from ebbtide.events.record.episodes import EpisodeRecord
    from ebbtide.events.record.outage_record import OutageRecord
    from ebbtide.events.record.shutdown_record import ShutdownRecord


LAST = "last"


class NoSuchShutdown(LookupError):
    """None of the journal's ``count`` shutdowns has this name: use ``last``, ``-1``, ``-2``, … or an id."""

    def __init__(self, text: str, count: int) -> None:
        super().__init__(text)
        self.count = count


class HasShutdownId(Protocol):
    @property
    def id(self) -> str: ...


HasShutdownIdT = TypeVar("HasShutdownIdT", bound=HasShutdownId)


#: A shorter begin of an id is probably a slip, as in git.
BEGIN_LENGTH_MIN = 4


def pick(found: Iterable[HasShutdownIdT], name: str, kind: str = "shutdown") -> HasShutdownIdT:
    """By ``last``, ``-1``, ``-2``, … or an id: its unique begin, or the number after the dash, is enough.
    Raises NoSuchShutdown.
    """
    digits = name.removeprefix("-")
    back = 1 if name == LAST else 0
    # Ten digits may overflow a queue's length.
    if digits != name and digits.isascii() and digits.isdecimal() and len(digits) < 10:
        back = int(digits)
    # One pass: an id may match the first of many, ``-3`` only at the end.
    latest: deque[HasShutdownIdT] = deque(maxlen=back or 1)
    count, alike = 0, list[HasShutdownIdT]()
    for each in found:
        if each.id == name:
            return each
        begins = len(name) >= BEGIN_LENGTH_MIN and each.id.startswith(name)
        if len(alike) < 2 and (begins or each.id.endswith(f"-{name}")):
            alike.append(each)
        latest.append(each)
        count += 1
    if 0 < back <= count:
        return latest[0]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise NoSuchShutdown(
            f"{name!r} begins more than one {kind}: {alike[0].id} and {alike[1].id} among them", count
        )
    known = f"it has {count}, the last is {latest[-1].id}" if count else "it has none"
    raise NoSuchShutdown(f"no {kind} {name!r} in this journal: {known}", count)


_BLANK_PAYLOAD = codec.encode_event(Tick())


class NoJournal(LookupError):
    """None, or several: name the folder of the ``.ebj`` files, a packed journal, or more of the id."""


class Unreadable(Event, frozen=True, kw_only=True, gc=False):
    """Replaces a damaged event, or another version's. ``data``: its payload as plain values, or hexadecimal
    digits.
    """

    tag: str
    data: Any


_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc(wall_ns: int) -> datetime:
    """Nanoseconds since 1970 as a time in UTC, cut to microseconds."""
    return _UNIX_EPOCH + timedelta(microseconds=wall_ns // 1000)


AccountT = TypeVar("AccountT", bound="EpisodeRecord")


class JournalEpisode(Generic[AccountT]):
    """A shutdown or an outage of a journal. ``account`` is its record (`events.record`)."""

    def __init__(self, journal: Journal, account: AccountT) -> None:
        self.journal = journal
        self.account = account

    @property
    def id(self) -> str:
        return self.account.id

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.account.trace_id

    @property
    def started(self) -> datetime:
        return utc(self.account.started_wall_ns)

    def at(self, moment_ns: int) -> datetime:
        """``moment_ns``: since its begin."""
        return utc(self.account.started_wall_ns + moment_ns)

    def records(self) -> Iterator[Record]:
        """Its events, in order (see `Journal.records`)."""
        return map(readable, self.raw())

    def raw(self) -> Iterator[codec.RawRecord]:
        """Its records with encoded payloads."""
        for raw in self.journal.history().raw():
            # Months of other shutdowns may follow.
            if raw.seq > self.account.last_seq:
                return
            if raw.episode == self.account.first_seq:
                yield raw

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.account.kind}, {self.account.outcome}>"


class Shutdown(JournalEpisode["ShutdownRecord"]):
    """One shutdown of a journal (`events.record.shutdown_record`)."""


class Outage(JournalEpisode["OutageRecord"]):
    """One outage. ``account`` has its record."""

    account: OutageRecord


class Journal:
    """Each reading starts anew, so the journal may grow.

    ``boot_id``: the reader's. With it another boot's shutdown counts as cut short, not as running.
    """

    def __init__(self, sources: Sequence[Source], *, journal: str = "", boot_id: str | None = None) -> None:
        """Raises NoJournal, and OSError for a location."""
        self._sources = tuple(sources)
        self._journal = journal
        self._boot_id = boot_id
        self._verdict: Verdict | None = None
        first = self.history()
        if not first.path.segments and not first.path.tail:
            places = ", ".join(source.location for source in self._sources)
            raise NoJournal(f"no journal in {places}")
        alike = [each for each in first.path.others if journal and each.startswith(journal)]
        if alike:
            ids = ", ".join([first.journal_id.hex(), *alike])
            raise NoJournal(f"the ids of several journals begin with {journal}: {ids}")
        self._id = first.journal_id

    @property
    def id(self) -> str:
        """32 hexadecimal digits; a shutdown's id begins with the first eight."""
        return self._id.hex()

    @property
    def verdict(self) -> Verdict:
        """Its damage, and its usable part. Reads to the end, once."""
        if self._verdict is None:
            self._verdict = self.history().read()
        return self._verdict

    def history(self, *, from_checkpoint: bool = False, logics: Collection[str] | None = None) -> History:
        return History(self._sources, journal=self._journal, from_checkpoint=from_checkpoint, logics=logics)

    def records(self) -> Iterator[Record]:
        """An `Unreadable` replaces an unreadable event."""
        return map(readable, self.history().raw())

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        """Oldest first."""
        # Not above: most uses need no record.
        from ebbtide.events.record.episodes import shutdown_records

        # Only a full read has the verdict.
        history = self.history()
        yield from shutdown_records(history, boot_id=self._boot_id)
        self._verdict = history.verdict

    def shutdowns(self) -> Iterator[Shutdown]:
        """Oldest first, made while the journal is read: only those that you keep take memory."""
        return (Shutdown(self, account) for account in self.shutdown_records())

    def shutdown(self, name: str = LAST) -> Shutdown:
        """``last``, ``-1``, ``-2``, … or an id. Raises NoSuchShutdown."""
        return pick(self.shutdowns(), name)

    def outage_records(self) -> Iterator[OutageRecord]:
        """As `shutdown_records`; only a journal of outages has some."""
        from ebbtide.events.record.episodes import outage_records

        history = self.history()
        yield from outage_records(history)
        self._verdict = history.verdict

    def outages(self) -> Iterator[Outage]:
        """As `shutdowns`."""
        return (Outage(self, account) for account in self.outage_records())

    def outage(self, name: str = LAST) -> Outage:
        """As `shutdown`."""
        return pick(self.outages(), name, "outage")

    def __repr__(self) -> str:
        places = ", ".join(source.location for source in self._sources)
        return f"<Journal {self.id[:8]} in {places}>"


def readable(raw: codec.RawRecord) -> Record:
    """A record with its event, or with an `Unreadable` in its place."""
    try:
        return codec.decode_record(raw)
    except (codec.UnknownType, codec.BadPayload):
        # The rest of the record is whole.
        event = Unreadable(tag=raw.tag, data=codec.plain_payload(raw.payload))
        blank = raw._replace(tag=Tick.__name__, payload=_BLANK_PAYLOAD)
        return replace(codec.decode_record(blank), event=event)


def open_journal(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    journal: str = "",
    *,
    boot_id: str | None = None,
) -> Journal:
    """A journal from its folder or packed file, or from several: a failing disk may have spread it.

    ``journal``: the begin of an id, if the place has several (default: the newest). Raises NoJournal,
    events.pack.NotPacked, OSError.
    """
    from ebbtide.events.pack import source_at

    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return Journal([source_at(path) for path in several], journal=journal, boot_id=boot_id)
