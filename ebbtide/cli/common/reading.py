"""Opening journals for a command: one by its locations, or those of many nodes as one body of evidence.

A command reads all it can use, then says in one line on standard error what it could not, and ends with the
exit code of the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.shared_options import is_stored
from ebbtide.cli.common.stored import stored_source
from ebbtide.events.catalog import DirectorySource, Source, find_segments, journal_ids
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import SHORT_ID_DIGITS
from ebbtide.options import JOURNAL_PATH

if TYPE_CHECKING:
    from ebbtide.events.record.episodes import EpisodeRecord
    from ebbtide.events.record.shutdown_record import ShutdownRecord

#: What a segment's file is called.
SEGMENT_FILES = "*.ebj"


def sources_of(journals: Sequence[Path]) -> list[Source]:
    """The named directories, packed journals, or journals in the API server; or the configured directories.

    Raises Refused where a named one is missing, or is something else.
    """
    found: list[Source] = []
    for path in journals or default_journals():
        # First: a folder that happens to have that name is none of the API server's.
        if is_stored(path):
            found.append(stored_source(path))
            continue
        # A default that is not there is looked at all the same: `open_journal` then names all of them.
        if path.is_dir() or not journals:
            found.append(DirectorySource(path))
            continue
        if not path.is_file():
            raise Refused(
                f"{path} is no directory, and no packed journal: name the journal's directory with --journal"
            )
        from ebbtide.events.pack import NotPacked, PackedSource

        try:
            packed = PackedSource(path)
        except NotPacked as error:
            raise Refused(f"{error}; name the journal's directory with --journal") from error
        found.append(packed)
        # Records are read lazily, up to the command's last line: closed any earlier, the file would be gone
        # under its reader.
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(packed.close)
    return found


def default_journals() -> list[Path]:
    """Where the daemon keeps its journal.

    A configuration that cannot be read must not stand between a person and the journal.
    """
    from ebbtide.config import ConfigError, default_paths, load

    try:
        fallbacks = load(default_paths()).config.journal_fallbacks
    except ConfigError:
        fallbacks = ()
    return [JOURNAL_PATH, *map(Path, fallbacks)]


def open_journal(journals: Sequence[Path], *, logics: Collection[str] | None = None) -> History:
    """Raises Refused when there is no journal, OSError when it cannot be read."""
    sources = sources_of(journals)
    history = History(sources, logics=logics)
    if not history.path.segments and not history.path.tail:
        locations = ", ".join(source.location for source in sources)
        raise Refused(f"no journal in {locations}: name its directory with --journal")
    return history


def conclude(verdict: Verdict) -> int:
    """Say what was wrong with the journal, if anything; its exit code."""
    if verdict.state != "intact":
        remark(f"ebbtide: {verdict.banner}")
    return verdict.exit_code


def journals_below(place: Path) -> list[Path]:
    """The journals' directories in a folder that has no segment of its own; none where it has."""
    if not place.is_dir() or any(place.glob(SEGMENT_FILES)):
        return []
    return sorted({file.parent for file in place.rglob(SEGMENT_FILES)})


class JournalLocations(NamedTuple):
    """Where a journal of a `JournalPool` lies, small enough to be sent: its id, its places, their length."""

    journal: str
    locations: tuple[str, ...]
    bytes: int

    def history(self) -> History:
        """To be read, by another process as well. Raises Refused, OSError."""
        return History(sources_of([Path(location) for location in self.locations]), journal=self.journal)


def usable_records(history: History, say: Callable[[str], None]) -> Iterator[EpisodeRecord]:
    """Every shutdown and every outage of a journal. What of it cannot be used is said, a line each."""
    from ebbtide.actors.edges.linux.proc import boot_id
    from ebbtide.events.record.episodes import records_of
    from ebbtide.events.record.shutdown_record import ShutdownRecord

    for told in records_of(history, boot_id=boot_id()):
        if isinstance(told, ShutdownRecord) and told.headless:
            say(f"ebbtide: left out: shutdown {told.id} of {told.node}, whose begin is not on record")
        else:
            yield told
    if history.verdict.state != "intact":
        say(f"ebbtide: {history.verdict.banner}")


class JournalPool:
    """Journals of several nodes, told apart by their ids. Places that hold the same journal count as one.

    A folder without segments of its own stands for the journals below it. ``code`` is the worst of the
    verdicts, once `shutdown_records` has been read to the end; ``verdicts`` has each of them, in the order in
    which they were read.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises Refused where a place is missing or holds no journal, OSError."""
        self.code = 0
        self.verdicts: list[Verdict] = []
        #: Each journal's sources, by its id.
        self._sources: dict[str, list[Source]] = {}
        # Place by place, so that the one that holds no journal can be named; none named: the default ones.
        for named in [[place] for place in folders] or [[]]:
            places: list[Path] = []
            for place in named:
                places += journals_below(place) or [place]
            found = False
            for source in sources_of(places):
                for journal in journal_ids(find_segments([source])):
                    self._sources.setdefault(journal, []).append(source)
                    found = True
            if not found:
                raise Refused(f"no journal in {(*named, JOURNAL_PATH)[0]}: name a node's journal directory")
        self._join_short_ids()

    def _join_short_ids(self) -> None:
        """Where no header is whole only a name is left, with the begin of the id: such a place belongs to the
        journals that begin so, as a fallback does with a segment that a crash tore.
        """
        named = {journal for journal in self._sources if len(journal) == SHORT_ID_DIGITS}
        if not named:
            return
        for journal, sources in self._sources.items():
            begin = journal[:SHORT_ID_DIGITS]
            if journal != begin and begin in named:
                sources += self._sources[begin]
        joined = {journal[:SHORT_ID_DIGITS] for journal in self._sources if journal not in named}
        for begin in named & joined:
            del self._sources[begin]

    def __len__(self) -> int:
        """How many journals there are."""
        return len(self._sources)

    def histories(self) -> Iterator[History]:
        """Each journal, to be read."""
        return (History(sources, journal=journal) for journal, sources in self._sources.items())

    def locations(self) -> list[JournalLocations]:
        """Each journal by where it lies. Raises OSError."""
        return [
            JournalLocations(
                journal,
                tuple(source.location for source in sources),
                sum(file.size for source in sources for file in source.files()),
            )
            for journal, sources in self._sources.items()
        ]

    @property
    def kinds(self) -> tuple[type[EpisodeRecord], ...]:
        """What its journals tell of, shutdowns first."""
        from ebbtide.events.record.outage_record import OutageRecord
        from ebbtide.events.record.shutdown_record import ShutdownRecord

        of_outages = {history.of_outages for history in self.histories()}
        return tuple(kind for kind, of in ((ShutdownRecord, False), (OutageRecord, True)) if of in of_outages)

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        """Every shutdown, journal by journal; says on standard error what was wrong with one."""
        from ebbtide.events.record.shutdown_record import ShutdownRecord

        return (told for told in self.records() if isinstance(told, ShutdownRecord))

    def records(self) -> Iterator[EpisodeRecord]:
        """Every shutdown and every outage, in the same way."""
        for history in self.histories():
            yield from usable_records(history, remark)
            self.verdicts.append(history.verdict)
            self.code = worst((self.code, history.verdict.exit_code))
