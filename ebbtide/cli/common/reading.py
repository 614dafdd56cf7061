"""Opens journals for a command. A command reads all usable records, reports the rest, and ends with the
verdict's exit code.

``configmaps:NAMESPACE/NODE`` names a journal of outages in the API server, read once, with kubectl's
credentials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.shared_options import SCHEME, is_stored
from ebbtide.events.catalog import DirectorySource, Source, find_path, find_segments, journal_ids
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import Batch, History, Scan
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import Link
from ebbtide.events.units import span_s
from ebbtide.memory import WatchedSource
from ebbtide.options import JOURNAL_PATH

if TYPE_CHECKING:
    from ebbtide.cli.outage.outage_common import Cluster
    from ebbtide.events.record.episodes import EpisodeRecord
    from ebbtide.events.record.shutdown_record import ShutdownRecord

SEGMENT_FILES = "*.ebj"
#: For a journal in the API server; some MiB take a second.
STORED_SECONDS_MAX = 30.0
#: Between two looks at a followed journal: soon enough for eyes, cheap for an idle machine.
LOOK_SECONDS = 0.2


def sources_of(journals: Sequence[Path]) -> list[Source]:
    """The named directories, packed journals, or journals in the API server; else the configured directories.
    Raises Refused.
    """
    found: list[Source] = []
    context = click.get_current_context(silent=True)
    for path in journals or default_journals():
        # First: a local folder with that name is not meant.
        if is_stored(path):
            found.append(stored_source(path))
            continue
        # Missing defaults stay in the list: `open_journal` then names all of them.
        if path.is_dir() or not journals:
            found.append(DirectorySource(path))
            continue
        if not path.is_file():
            scheme, url, place = str(path).partition(":/")
            if url and scheme.isalnum():
                # A path has lost one of the slashes.
                raise Refused(f"{scheme}://{place} is a URL: only 'ebbtide fleet' reads those, by --journals")
            raise Refused(f"{path} is no directory, and no packed journal: name the journal's directory")
        from ebbtide.events.pack import NotPacked, PackedSource

        try:
            packed = PackedSource(path)
        except NotPacked as error:
            raise Refused(f"{error}; name the journal's directory") from error
        found.append(packed)
        # Records are read up to the command's last line.
        if context is not None:
            context.call_on_close(packed.close)
    return [WatchedSource(source) for source in found]


def stored_source(place: Path) -> Source:
    """Raises Refused."""
    context = click.get_current_context(silent=True)
    # A command reads a journal several times, and must see the same records.
    read: dict[str, Source] = {} if context is None else context.meta.setdefault(__name__, {})
    name = str(place)
    if name in read:
        return read[name]
    from ebbtide.cli.outage.outage_common import ask_cluster, chosen_kubeconfig

    namespace, slash, node = name.removeprefix(SCHEME).partition("/")
    if not (namespace and slash and node) or "/" in node:
        raise Refused(f"{name}: write {SCHEME}NAMESPACE/NODE, with the Node's name or UID")

    async def look(cluster: Cluster) -> Source | str:
        import trio

        from ebbtide.actors.edges.kubernetes.config_maps import read_journal

        with trio.move_on_after(STORED_SECONDS_MAX):
            try:
                return await read_journal(cluster.caller, namespace, node)
            except (LookupError, OSError) as error:
                return str(error.args[0]) if isinstance(error, LookupError) else error.strerror or str(error)
        return f"the API server does not answer within {span_s(STORED_SECONDS_MAX)}"

    found = ask_cluster(chosen_kubeconfig(None), look)
    if isinstance(found, str):
        raise Refused(f"{name}: {found}")
    read[name] = found
    return found


def refuse_following(journals: tuple[Path, ...]) -> None:
    for place in journals:
        if is_stored(place):
            raise Refused(f"{place} is read once, and cannot be followed: leave -f out, and ask again")


def default_journals() -> list[Path]:
    """The daemon's, also with an unreadable configuration."""
    from ebbtide.config import ConfigError, default_paths, load

    try:
        fallbacks = load(default_paths()).config.journal_fallbacks
    except ConfigError:
        fallbacks = ()
    return [JOURNAL_PATH, *map(Path, fallbacks)]


def open_journal(journals: Sequence[Path], *, logics: Collection[str] | None = None) -> History:
    """Raises Refused without a journal, OSError if it is unreadable."""
    sources = sources_of(journals)
    history = History(sources, logics=logics)
    if not history.path.segments and not history.path.tail:
        locations = ", ".join(source.location for source in sources)
        option = "" if journals else " with --journal"
        raise Refused(f"no journal in {locations}: name its directory{option}")
    context = click.get_current_context(silent=True)
    if len(journals) > 1 and history.path.others and context is not None:
        others = ", ".join(history.path.others)
        line = f"ebbtide: this is journal {history.journal_id.hex()} alone, without {others}"
        # A verb may open its journal twice.
        if not context.meta.get(line):
            context.meta[line] = True
            remark(f"{line}: name one at a time, or use 'ebbtide replay advise' or 'ebbtide fleet'")
    return history


def conclude(verdict: Verdict) -> int:
    """Reports the journal's defects; returns the exit code."""
    if verdict.state != "intact":
        remark(f"ebbtide: {verdict.banner}")
    return verdict.exit_code


def follow_journal(sources: Sequence[Source]) -> Iterator[Batch | None]:
    """All records in whole steps, then new ones, without end; None whenever it has caught up. Raises OSError
    where a location cannot be listed.
    """
    end: Link | None = None
    open_step: list[RawRecord] = []
    while True:
        segments = find_path(sources).segments
        for index, segment in enumerate(segments):
            if end is not None and segment.number < end.segment:
                continue
            following = segments[index + 1].header if index + 1 < len(segments) else None
            # A cut last frame may still be written.
            scan = Scan(segment, following.link if following is not None else None)
            if end is not None and segment.number == end.segment:
                # A look costs only the new bytes.
                scan.end = end
            for piece in scan.pieces():
                whole = [*open_step, *piece.records[: piece.whole]] if piece.whole else []
                open_step = piece.records[piece.whole :] if piece.whole else [*open_step, *piece.records]
                if whole:
                    yield Batch(piece.header, whole)
            end = scan.end
        yield None
        time.sleep(LOOK_SECONDS)


def journals_below(place: Path) -> list[Path]:
    """The journals in a folder without a segment of its own; empty if it has one."""
    if not place.is_dir() or any(place.glob(SEGMENT_FILES)):
        return []
    return sorted({file.parent for file in place.rglob(SEGMENT_FILES)})


class JournalLocations(NamedTuple):
    """One journal of a `JournalPool`, small enough to send."""

    journal: str
    locations: tuple[str, ...]
    bytes: int

    def history(self, logics: Collection[str] | None = None) -> History:
        """Also in another process. Raises Refused, OSError."""
        sources = sources_of([Path(location) for location in self.locations])
        return History(sources, journal=self.journal, logics=logics)


def usable_records(history: History, say: Callable[[str], None]) -> Iterator[EpisodeRecord]:
    """Every shutdown and outage of a journal. Reports defects, a line for each."""
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
    """Journals of several nodes, by their ids. A folder without segments means the journals below it.

    After `shutdown_records` was read to the end, ``code`` is the worst verdict's, and ``verdicts`` has all.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises Refused where a place is missing or has no journal, OSError."""
        self.code = 0
        self.verdicts: list[Verdict] = []
        self._sources: dict[str, list[Source]] = {}
        # Place by place, to name the one without a journal.
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

    def __len__(self) -> int:
        return len(self._sources)

    def histories(self) -> Iterator[History]:
        return (History(sources, journal=journal) for journal, sources in self._sources.items())

    def locations(self) -> list[JournalLocations]:
        """Raises OSError."""
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
        """Shutdowns first."""
        from ebbtide.events.record.outage_record import OutageRecord
        from ebbtide.events.record.shutdown_record import ShutdownRecord

        of_outages = {history.of_outages for history in self.histories()}
        return tuple(kind for kind, of in ((ShutdownRecord, False), (OutageRecord, True)) if of in of_outages)

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        """Reports defects on standard error, as `records` does."""
        from ebbtide.events.record.shutdown_record import ShutdownRecord

        return (told for told in self.records() if isinstance(told, ShutdownRecord))

    def records(self) -> Iterator[EpisodeRecord]:
        for history in self.histories():
            yield from usable_records(history, remark)
            self.verdicts.append(history.verdict)
            self.code = worst((self.code, history.verdict.exit_code))
