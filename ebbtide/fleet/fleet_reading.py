"""Planned journals, opened: their bytes, their full ids, and objects whose content contradicts their name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ebbtide.events.catalog import PEEK_BYTES, StoredFile
from ebbtide.events.record.episodes import EpisodeRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.segment import DamagedHeader, IncompatibleHeader, header_length, parse_header
from ebbtide.fleet.fleet_plan import File, Key, Ref, folder_of, location_of
from ebbtide.fleet.fleet_stores import OF_THE_READER, StoreFailed, in_a_line, store
from ebbtide.replay.journal_library import Journal

EpisodeRecordT = TypeVar("EpisodeRecordT", bound=EpisodeRecord)

#: A daemon begins a new segment at 1 MiB: above this it is read by ranges, and never kept whole.
WHOLE_BYTES_MAX = 16 << 20
#: Cached bytes of one journal. The oldest blocks go first and are read again on need.
KEPT_BYTES_MAX = 64 << 20
RANGE_BYTES = 4 << 20
#: No boot of the reading machine: rows do not depend on it.
ELSEWHERE = "another machine"


class _Reader:
    """The bytes of a `Ref`'s objects. A small object is one GET, a large one is read by ranges."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: dict[tuple[str, int], bytes] = {}

    def read(self, file: File, offset: int, size: int) -> bytes:
        """Raises StoreFailed."""
        end = min(offset + size, file.size)
        if file.size <= WHOLE_BYTES_MAX:
            return self._block(file, 0, file.size)[offset:end]
        found = b""
        while offset < end:
            begin = offset - offset % RANGE_BYTES
            block = self._block(file, begin, min(begin + RANGE_BYTES, file.size))
            found += block[offset - begin : end - begin]
            offset = begin + RANGE_BYTES
        return found

    def _block(self, file: File, begin: int, end: int) -> bytes:
        if (file.path, begin) in self._kept:
            return self._kept[file.path, begin]
        import obstore

        try:
            data = bytes(obstore.get_range(store(self._url), file.path, start=begin, end=end))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreFailed(f"{file.path}: {in_a_line(error)}") from error
        if len(data) != end - begin:
            raise StoreFailed(f"{file.path} has not the bytes that were listed: ask again")
        while self._kept and sum(map(len, self._kept.values())) + len(data) > KEPT_BYTES_MAX:
            self._kept.pop(next(iter(self._kept)))
        self._kept[file.path, begin] = data
        return data


class StoreSource:
    """`events.catalog.Source` over some of a `Ref`'s objects, no two of them of one name."""

    def __init__(self, location: str, files: Iterable[File], reader: _Reader) -> None:
        self.location = location
        self._files, self._reader = {each.name: each for each in files}, reader

    def files(self) -> list[StoredFile]:
        return sorted(StoredFile(each.name, each.size, each.modified_ns) for each in self._files.values())

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._reader.read(self._files[name], offset, size)


class Opened(NamedTuple):
    """One journal. ``id``: 32 digits, or the eight from its names without a header and a path.

    ``files``: all of its objects. ``node``: from its header, or from the path of a redacted one. ``lies``:
    objects whose content contradicts their name; these are not used. ``error``: why nothing could be read.
    """

    id: str
    cluster: str
    node: str
    location: str
    files: tuple[File, ...]
    sources: tuple[StoreSource, ...]
    lies: tuple[str, ...] = ()
    error: str = ""

    def journal(self) -> Journal:
        """Raises NoJournal where no object can be used."""
        if self.redacted:
            return _RedactedJournal(self)
        return Journal(self.sources, boot_id=ELSEWHERE)

    @property
    def redacted(self) -> bool:
        """A segment that was shipped redacted is a journal of its own."""
        return any(file.redacted for file in self.files)

    def named(self, record: EpisodeRecordT) -> EpisodeRecordT:
        """With the node's name: every redacted segment has the same pseudonym for its node."""
        return replace(record, node=self.node) if self.redacted else record


class _RedactedJournal(Journal):
    """Its shutdowns have the names from `Opened.named`."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.sources, boot_id=ELSEWHERE)
        self._opened = opened

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        return map(self._opened.named, super().shutdown_records())


def open_journals(ref: Ref) -> list[Opened]:
    """The journals of a `Ref`, nearly always one; one with an ``error`` if the store fails."""
    try:
        return list(_open(ref))
    except OF_THE_READER:
        raise
    except Exception as problem:
        key = ref.key(ref.files[0]) or Key("", "", ref.id_begin)
        error = f"{type(problem).__name__}: {problem}"
        return [Opened(key.journal, key.cluster, key.node, location_of(ref), ref.files, (), error=error)]


def _open(ref: Ref) -> Iterator[Opened]:
    """By their full ids. Raises StoreFailed."""
    reader = _Reader(ref.url)
    ours: dict[str, list[File]] = defaultdict(list)
    lies: dict[str, list[str]] = defaultdict(list)
    liars: dict[str, list[File]] = defaultdict(list)
    nameless: list[File] = []
    nodes: dict[str, str] = {}
    for file in ref.files:
        key = ref.key(file)
        journal_id, node, problem = _look(ref, file, key, reader)
        if key is not None:
            nodes.setdefault(key.journal, node or key.node)
        if problem:
            owner = key.journal if key is not None else journal_id or file.id_begin
            lies[owner].append(problem)
            liars[owner].append(file)
        elif journal_id or key is not None:
            ours[journal_id or (key.journal if key is not None else "")].append(file)
            nodes[journal_id] = node or nodes.get(journal_id, "")
        else:
            nameless.append(file)
    # A file with a lost header belongs to the journal in its folder, else to the first journal.
    for file in nameless:
        beside = [
            each for each in ours if any(folder_of(of.path) == folder_of(file.path) for of in ours[each])
        ]
        owner = next(iter(beside or ours), file.id_begin)
        ours[owner].append(file)
    for journal_id in sorted({**ours, **lies}):
        files = (*ours[journal_id], *liars[journal_id])
        keys = [key for file in files if (key := ref.key(file)) is not None]
        yield Opened(
            journal_id,
            keys[0].cluster if keys else "",
            nodes.get(journal_id, ""),
            location_of(ref, folder_of(files[0].path) if files else None),
            files,
            tuple(_sources(ref, ours[journal_id], reader)),
            tuple(lies[journal_id]),
        )


def _look(ref: Ref, file: File, key: Key | None, reader: _Reader) -> tuple[str, str, str]:
    """The id and the node from its header, empty where the header is lost; and a contradiction, or empty.

    A redacted object's node comes from its path: the store grants the right to write there by that name.
    """
    if file.sha256:
        digest = sha256()
        for offset in range(0, file.size, RANGE_BYTES):
            digest.update(reader.read(file, offset, RANGE_BYTES))
        if digest.hexdigest() != file.sha256:
            return "", "", f"{file.path}: its bytes do not match the hash in its name"
    data = reader.read(file, 0, PEEK_BYTES)
    try:
        if len(data) < (length := header_length(data)):
            data = reader.read(file, 0, length)
        header, _ = parse_header(data)
    except (DamagedHeader, IncompatibleHeader):
        return "", "", ""
    journal_id, node = header.journal_id.hex(), header.identity.node
    # Pseudonyms have a ~, names of nodes do not.
    if file.redacted and node and "~" not in node:
        return journal_id, node, f"{file.path}: it is not redacted, its header is of node {node}"
    if file.redacted and key is not None:
        node = key.node
    if key is not None and (key.journal, key.node) != (journal_id, node):
        return journal_id, node, f"{file.path}: its header is of journal {journal_id} of node {node}"
    # In a folder the reader itself reports a file under another journal's name.
    return (journal_id, node, "") if journal_id.startswith(file.id_begin) else ("", "", "")


def _sources(ref: Ref, files: Sequence[File], reader: _Reader) -> Iterator[StoreSource]:
    """One for each folder, and one more where a folder has two objects of one name."""
    groups: dict[tuple[str, int], list[File]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for file in files:
        folder = folder_of(file.path)
        groups[folder, seen[folder, file.name]].append(file)
        seen[folder, file.name] += 1
    for (folder, _), members in groups.items():
        yield StoreSource(location_of(ref, folder), members, reader)
