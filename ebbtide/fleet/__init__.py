"""The portable core of a fleet's journals: planned by names, read as Arrow batches. It knows no engine.

A plan is one LIST and no GET: objects whose names say the same journal make a `Ref`, wherever they lie, so
that a copy, or a journal that a failing disk spread over two places, counts once however the work is
partitioned. A name in a folder has only the first eight digits of the id, and two journals may have them in
common: such a `Ref` holds both, and `open_journals` tells them apart by their headers. What cannot be read is
a row of the table ``journals``, and never a failed job.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from os.path import abspath, isdir
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND, episode_id
from ebbtide.events.catalog import PEEK_BYTES, StoredFile
from ebbtide.events.codec import UnknownType
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import EpisodeRecord, headless_episode, records_of
from ebbtide.events.record.outage_record import OPEN, OutageRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.events.segment import LOGICS, DamagedHeader, IncompatibleHeader, header_length, parse_header
from ebbtide.replay.advise import Evidence
from ebbtide.replay.journal_library import Journal
from ebbtide.replay.tables import OUTAGE_TABLES, TABLES, TABLES_OF, Table

# --- stores ------------------------------------------------------------------------------------

_CREDENTIALS = re.compile(r"(?i)(key|token|secret|signature|sig|password|credential)[^=&]*=")


class BadUrl(ValueError):
    """This URL names no store that is known here, or holds credentials: name what the text says instead."""


#: What is wrong with who reads, and not with a journal: nothing can be said of any.
OF_THE_READER = (BadUrl, ImportError, MemoryError)


class StoreFailed(Exception):
    """A store did not answer, or did not give what it had listed: that is said of the store, and not of the
    journal.
    """


def store_url(place: str) -> str:
    """The URL of a store; a plain path is one of files. Raises BadUrl."""
    if not place:
        raise BadUrl("an empty name is no place: name a folder, or a URL such as s3://BUCKET/PREFIX")
    if "://" not in place:
        return f"file://{quote(abspath(place))}"
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        raise BadUrl(
            f"{parts.scheme}:// names no bucket: write s3://BUCKET/PREFIX, and the server's address into"
            " AWS_ENDPOINT_URL (AWS_ALLOW_HTTP=true without TLS)"
        )
    # Engines write URLs into their logs, and a command line is seen by everybody on the machine.
    if "@" in parts.netloc or _CREDENTIALS.search(parts.query):
        raise BadUrl(
            f"the URL of {parts.scheme}://{parts.hostname or ''} holds credentials: leave them out, and give"
            " them by the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role"
        )
    return place


@cache
def store(url: str) -> Any:
    """One client a process and URL. Raises BadUrl."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return from_url(url)
    except (BaseError, ValueError) as error:
        raise BadUrl(
            f"{_place(url)}: {in_a_line(error)}; name a folder, or a URL such as s3://BUCKET/PREFIX,"
            " gs:// or az://"
        ) from None


#: Who we are for a store, and where it is.
_VARIABLES = {"s3": "AWS_*", "s3a": "AWS_*", "gs": "GOOGLE_*", "az": "AZURE_*"}


def _whose(url: str) -> str:
    """The cure of what a store refuses."""
    names = _VARIABLES.get(urlsplit(url).scheme)
    return f" (endpoint, credentials and region come from {names} or the machine's role)" if names else ""


def _place(url: str) -> str:
    """As a person would name it."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else url


#: Of what a client says of a failed request; behind that it is a dump of its own values.
_CLIENT_CHARACTERS_MAX = 300


def in_a_line(error: Exception) -> str:
    """What a store's client says."""
    said = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return said[:_CLIENT_CHARACTERS_MAX]


# --- the plan ----------------------------------------------------------------------------------

#: Digits of a journal's id that its objects' names have.
ID_BEGIN = 8
_NAME = re.compile(r"(\d{10})-([0-9a-f]{8})(?:-([0-9a-f]{64})(\.redacted)?)?\.ebj")
#: As nodes ship it.
_SHIPPED = re.compile(r"(?:^|/)v1/cluster=([^/]*)/node=([^/]*)/journal=([0-9a-f]{32})$")


class File(NamedTuple):
    """An object: ``name`` as the journal's own reader wants it. ``sha256`` of its bytes by its name, which
    says too whether names in it are pseudonyms.
    """

    name: str
    path: str
    size: int
    modified_ns: int
    sha256: str = ""
    redacted: bool = False

    @property
    def id_begin(self) -> str:
        """Of its journal's id, by its name: all that is known where no header and no path tells."""
        return self.name[11:19]


class Key(NamedTuple):
    """What a shipped object's path says of it."""

    cluster: str
    node: str
    journal: str


class Ref(NamedTuple):
    """What may be one journal, by its objects' names alone: small, and whole wherever it is sent."""

    url: str
    folder: str
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def id_begin(self) -> str:
        return self.files[0].id_begin

    @property
    def modified_ns(self) -> int:
        return max(each.modified_ns for each in self.files)

    def key(self, file: File) -> Key | None:
        """None for what lies in a folder that says nothing."""
        return _key_of(self.url, _folder_of(file.path))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Whose it may be; empty: anybody's. A node that was renamed has both names."""
        keys = [self.key(file) for file in self.files]
        named = [key.node for key in keys if key is not None]
        return tuple(dict.fromkeys(named)) if len(named) == len(keys) else ()


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


#: A folder is asked about while its own journal is planned or read: more would grow with the fleet.
FOLDERS_KEPT_MAX = 1024


@lru_cache(FOLDERS_KEPT_MAX)
def _key_of(url: str, folder: str) -> Key | None:
    # Somebody may ask for a part of the store: then the URL has the rest.
    match = _SHIPPED.search(f"{unquote(urlsplit(url).path).strip('/')}/{folder}".strip("/"))
    return Key(unquote(match[1]), unquote(match[2]), match[3]) if match else None


def journals(url: str) -> list[Ref]:
    """Every journal below ``url``, in the order of their folders whatever the order of the listing: one LIST.

    Raises BadUrl, StoreFailed.
    """
    import obstore

    url = store_url(url)
    if url.startswith("file://") and not isdir(_place(url)):
        raise BadUrl(
            f"{_place(url) or url} is no folder: name one with journals below it, or a URL of a store"
        )
    try:
        return plan(url, (info for chunk in obstore.list(store(url), chunk_size=1000) for info in chunk))
    except (OSError, obstore.exceptions.BaseError) as error:
        raise StoreFailed(f"{_place(url)} cannot be listed{_whose(url)}: {in_a_line(error)}") from error


def plan(url: str, listed: Iterable[Any]) -> list[Ref]:
    """The journals of a listing, whose entries have ``path``, ``size`` and ``last_modified``."""
    found: dict[str, list[File]] = defaultdict(list)
    for info in listed:
        last = info["path"].rpartition("/")[2]
        match = _NAME.fullmatch(last)
        # A file without a byte is a segment that nobody has begun; one that is named by the hash of its bytes
        # had some.
        if match and (info["size"] or match[3]):
            moment = info["last_modified"]
            modified_ns = int(moment.timestamp()) * NS_PER_SECOND + moment.microsecond * 1000
            name = f"{match[1]}-{match[2]}.ebj"
            file = File(name, info["path"], info["size"], modified_ns, match[3] or "", bool(match[4]))
            found[match[2]].append(file)
    refs = []
    for alike in found.values():
        for files in _by_journal(url, alike):
            files.sort(key=lambda file: file.path)
            refs.append(Ref(url, _folder_of(files[0].path), tuple(files)))
    return sorted(refs, key=lambda ref: ref.files[0].path)


def _by_journal(url: str, alike: list[File]) -> list[list[File]]:
    """Of objects that have eight digits in common, those of each journal, where all paths tell whose."""
    if len({_folder_of(file.path) for file in alike}) == 1:
        return [alike]
    of_journals: dict[str, list[File]] = defaultdict(list)
    for file in alike:
        key = _key_of(url, _folder_of(file.path))
        of_journals[key.journal if key is not None else ""].append(file)
    # One in a folder may be a copy of any of them.
    return [alike] if "" in of_journals else list(of_journals.values())


class HasBytes(Protocol):
    """What has a length, as journals have."""

    @property
    def bytes(self) -> int: ...


HasBytesT = TypeVar("HasBytesT", bound=HasBytes)
EpisodeRecordT = TypeVar("EpisodeRecordT", bound=EpisodeRecord)


def bins(refs: Sequence[HasBytesT], bytes_max: int = 32 << 20, count_max: int = 500) -> list[list[HasBytesT]]:
    """Small journals together, in order; a journal is never split."""
    made: list[list[HasBytesT]] = []
    room = 0
    for ref in refs:
        if not made or room < ref.bytes or len(made[-1]) >= count_max:
            made.append([])
            room = bytes_max
        made[-1].append(ref)
        room -= ref.bytes
    return made


# --- reading -----------------------------------------------------------------------------------

#: A daemon begins a new segment at 1 MiB: above this it is read by ranges, and never kept whole.
WHOLE_BYTES_MAX = 16 << 20
#: Of one journal: with more, what was read first is read again when it is needed.
KEPT_BYTES_MAX = 64 << 20
RANGE_BYTES = 4 << 20
#: Rows do not depend on the machine that reads: it is none of those that wrote.
ELSEWHERE = "another machine"


class _Reader:
    """The bytes of a `Ref`'s objects: a small one is one GET, a large one is read by ranges."""

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
    """One journal. ``id``: 32 digits, or the eight of its names where no header and no path tells.

    ``files``: all of its objects. ``node``: by its header; of a redacted one by its path, and what it tells
    of is that node's. ``lies``: of those that are not what their names say, and nothing is used.
    """

    id: str
    cluster: str
    node: str
    location: str
    files: tuple[File, ...]
    sources: tuple[StoreSource, ...]
    lies: tuple[str, ...]

    def journal(self) -> Journal:
        """Raises NoJournal where nothing of it can be used."""
        if self.redacted:
            return _RedactedJournal(self)
        return Journal(self.sources, boot_id=ELSEWHERE)

    @property
    def redacted(self) -> bool:
        """A segment that was shipped so: it is a journal of its own."""
        return any(file.redacted for file in self.files)

    def named(self, record: EpisodeRecordT) -> EpisodeRecordT:
        """With the node's name, whose pseudonym is the same in every redacted segment of every node."""
        return replace(record, node=self.node) if self.redacted else record


class _RedactedJournal(Journal):
    """Its shutdowns are named as `Opened.named` has them."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.sources, boot_id=ELSEWHERE)
        self._opened = opened

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        return map(self._opened.named, super().shutdown_records())


def open_journals(ref: Ref) -> Iterator[Opened]:
    """The journals of a `Ref`, nearly always one, by their full ids. Raises StoreFailed."""
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
    # A header that is lost says nothing: such a file belongs to who wrote beside it, else to the only one.
    for file in nameless:
        beside = [
            each for each in ours if any(_folder_of(of.path) == _folder_of(file.path) for of in ours[each])
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
            _location(ref, _folder_of(files[0].path) if files else None),
            files,
            tuple(_sources(ref, ours[journal_id], reader)),
            tuple(lies[journal_id]),
        )


def _look(ref: Ref, file: File, key: Key | None, reader: _Reader) -> tuple[str, str, str]:
    """The id and the node of its header, empty where that is lost; and how it lies, if it does.

    The node of a redacted one is that of its path: rights to write hang on that name, so that nobody else has
    put it there, and whoever lists the store sees it.
    """
    if file.sha256:
        digest = sha256()
        for offset in range(0, file.size, RANGE_BYTES):
            digest.update(reader.read(file, offset, RANGE_BYTES))
        if digest.hexdigest() != file.sha256:
            return "", "", f"{file.path}: its bytes are not those that its name tells"
    data = reader.read(file, 0, PEEK_BYTES)
    try:
        if len(data) < (length := header_length(data)):
            data = reader.read(file, 0, length)
        header, _ = parse_header(data)
    except (DamagedHeader, IncompatibleHeader):
        return "", "", ""
    journal_id, node = header.journal_id.hex(), header.identity.node
    # Every pseudonym has a ~, and no node's name has one.
    if file.redacted and node and "~" not in node:
        return journal_id, node, f"{file.path}: it is not redacted, its header is of node {node}"
    if file.redacted and key is not None:
        node = key.node
    if key is not None and (key.journal, key.node) != (journal_id, node):
        return journal_id, node, f"{file.path}: its header is of journal {journal_id} of node {node}"
    # In a folder the reader itself calls a file damaged that has another's name.
    return (journal_id, node, "") if journal_id.startswith(file.id_begin) else ("", "", "")


def _sources(ref: Ref, files: Sequence[File], reader: _Reader) -> Iterator[StoreSource]:
    """One a folder, and one more where it has two objects of one name."""
    groups: dict[tuple[str, int], list[File]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for file in files:
        folder = _folder_of(file.path)
        groups[folder, seen[folder, file.name]].append(file)
        seen[folder, file.name] += 1
    for (folder, _), members in groups.items():
        yield StoreSource(_location(ref, folder), members, reader)


# --- tables ------------------------------------------------------------------------------------

ROWS_MAX = 20_000
TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    # Engines and lakes know no nanoseconds.
    "time": pa.timestamp("us", tz="UTC"),
}
_NS_PER_US = 1000
_TEXT, _INT, _BOOL = TYPES["text"], TYPES["int"], TYPES["bool"]
ALL_TABLES: dict[str, Table] = {table.name: table for table in (*TABLES, *OUTAGE_TABLES)}
#: What a row can be about; and the table that has one row for each of them.
LEDGERS = {"shutdown": TABLES[0].name, "outage": OUTAGE_TABLES[0].name}

#: What became of reading each journal: name, type, meaning. There is a row for all that lies there, and so it
#: says what no other table can.
JOURNAL_COLUMNS = (
    ("node", "text", "whose it is, by its header, of a redacted one by its path; empty: neither tells"),
    ("journal_id", "text", "all 32 digits; the eight of its names where no header and no path tells"),
    ("cluster", "text", "by its path, where nodes have shipped it"),
    ("state", "text", "intact, torn, corrupt, incompatible; unread: the store did not give it"),
    ("exit_code", "int", "that of `ebbtide journal check`"),
    ("segments", "int", "its objects"),
    ("bytes", "int", "their length"),
    ("first_seq", "int", "the number of its first record"),
    ("last_seq", "int", "the number of its last record that can be used"),
    ("findings", "text", "where it is damaged, and how"),
    ("left_out", "text", "shutdowns whose begin is not on record: they are in no table"),
    ("error", "text", "why rows are missing that no damage accounts for"),
    ("location", "text", "where it lies"),
)
JOURNALS = pa.schema(
    [pa.field(name, TYPES[kind], metadata={"doc": text}) for name, kind, text in JOURNAL_COLUMNS],
    metadata={"doc": "one row a journal: what became of reading it"},
)
JOURNALS_TABLE = "journals"
#: The store did not give it: as any input that cannot be read.
UNREAD, UNREAD_CODE = "unread", 2
#: Something that nobody foresaw kept rows back: as everywhere, it does not hold.
UNFORESEEN_CODE = 1

Row = tuple[Any, ...]


class NotWhole(UserWarning):
    """A journal that is not wholly in the tables that were asked for. Ask for the table ``journals`` in the
    same pass, and it is a row there.
    """


def schema(table: str) -> pa.Schema:
    """Raises KeyError, naming the tables that there are."""
    if table == JOURNALS_TABLE:
        return JOURNALS
    if table not in ALL_TABLES:
        raise KeyError(f"no table {table!r}: there are {', '.join(ALL_TABLES)}, {JOURNALS_TABLE}")
    found = ALL_TABLES[table]
    fields = [
        pa.field(column.name, TYPES[column.type], metadata={"doc": column.text}) for column in found.columns
    ]
    return pa.schema(fields, metadata={"doc": found.text})


def subject_of(shape: pa.Schema) -> str:
    """What the rows of a table are about, of `LEDGERS`: the column with its id."""
    return "outage" if "outage" in shape.names else "shutdown"


def record_batches(refs: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    """One table's rows, as `table_batches` has them. Warns with NotWhole."""
    return (batch for _, batch in table_batches(refs, (table,)))


def table_batches(
    refs: Iterable[Ref], tables: Collection[str], *, settled: bool = False
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """These tables' rows in one pass over the journals, each table in their order, some thousands at a time.

    What cannot be read has no rows, and the table ``journals`` says so: ask for it in the same pass. Whoever
    does not is warned with NotWhole, a line a journal. With ``settled`` only of what is over for good: those
    rows never change, and where one table's cannot be made there are none in the others.
    """
    return batched((found for ref in refs for found in _rows(ref, tables, settled)), tables)


def batched(
    found: Iterable[tuple[str, Sequence[Row]]], tables: Collection[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by their table's name, put together."""
    shapes = {name: schema(name) for name in tables}
    kept: dict[str, list[Row]] = {name: [] for name in tables}
    for name, rows in found:
        kept[name] += rows
        if len(kept[name]) >= ROWS_MAX:
            yield name, _batch(kept[name], shapes[name])
            kept[name] = []
    for name, rows in kept.items():
        if rows:
            yield name, _batch(rows, shapes[name])


def _batch(rows: Sequence[Row], shape: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), shape, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


_TIMES = {
    name: [at for at, column in enumerate(table.columns) if column.type == "time"]
    for name, table in ALL_TABLES.items()
}


def rows_of(table: Table, record: EpisodeRecord) -> list[Row]:
    """A shutdown's, or outage's, rows with times as `TYPES` has them."""
    found = []
    for row in table.rows(record):
        cells = list(row)
        for at in _TIMES[table.name]:
            cells[at] = None if cells[at] is None else cells[at] // _NS_PER_US
        found.append(tuple(cells))
    return found


def _rows(ref: Ref, tables: Collection[str], settled: bool) -> Iterator[tuple[str, list[Row]]]:
    try:
        opened = list(open_journals(ref))
    except OF_THE_READER:
        raise
    except Exception as problem:
        key = ref.key(ref.files[0])
        named = (key.node, key.journal, key.cluster) if key is not None else ("", ref.id_begin, "")
        counted = (UNREAD, UNREAD_CODE, len(ref.files), ref.bytes, 0, 0, "", "")
        yield from _journal_row((*named, *counted, _error(problem), _location(ref)), tables)
        return
    for each in opened:
        yield from _rows_of_one(each, tables, settled)


#: Outcomes of a shutdown that are an end on record. The others say that there is none, or none yet.
ENDED = ("complete", "cancelled", "never-begun")


def _settled(records: Iterable[EpisodeRecord], history: History) -> Iterator[EpisodeRecord]:
    """Those of which no more comes: with an end on record, or with something behind them. One without an end
    with which the journal ends may only wait for its next object.
    """
    last: ShutdownRecord | None = None
    for record in records:
        if last is not None:
            yield last
        last = record if isinstance(record, ShutdownRecord) else None
        if isinstance(record, OutageRecord) and record.outcome != OPEN:
            yield record
    if last is not None and (last.outcome in ENDED or last.last_seq < history.verdict.end.seq):
        yield last


def _rows_of_one(opened: Opened, tables: Collection[str], settled: bool) -> Iterator[tuple[str, list[Row]]]:
    state, code, first_seq, last_seq, findings = "intact", 0, 0, 0, list(opened.lies)
    left_out: list[str] = []
    errors: dict[str, str] = {}
    if opened.sources:
        try:
            history = History(opened.sources)
            records = records_of(history, boot_id=ELSEWHERE)
            for record in _settled(records, history) if settled else records:
                record = opened.named(record)
                if isinstance(record, ShutdownRecord) and record.headless:
                    left_out.append(record.id)
                    continue
                made: dict[str, list[Row]] = {}
                whole = True
                for table in TABLES_OF[type(record)]:
                    # Also those that nobody asked for, where the verdict is of all that there is to read.
                    if table.name in tables or JOURNALS_TABLE in tables:
                        try:
                            made[table.name] = rows_of(table, record)
                        except Exception as problem:
                            whole = False
                            errors.setdefault(table.name, f"{table.name}: {_error(problem)}")
                # What is settled is handed on once: the rows that are missing would never come behind others.
                if whole or not settled:
                    yield from ((name, rows) for name, rows in made.items() if name in tables)
        except OF_THE_READER:
            raise
        except Exception as problem:
            errors[""] = _error(problem)
        try:
            verdict = History(opened.sources).read() if "" in errors else history.verdict
            state, code = verdict.state, verdict.exit_code or (UNFORESEEN_CODE if errors else 0)
            first_seq, last_seq = verdict.first_seq, verdict.end.seq
            findings += map(str, verdict.findings)
        except OF_THE_READER:
            raise
        except Exception as problem:
            state, code = UNREAD, UNREAD_CODE
            errors.setdefault("", _error(problem))
    if opened.lies and state in ("intact", "torn"):
        state, code = "corrupt", EXIT_CODES["corrupt"]
    sizes = [file.size for file in opened.files]
    row = (
        *(opened.node, opened.id, opened.cluster, state, code, len(sizes), sum(sizes)),
        *(first_seq, last_seq, "; ".join(findings), ", ".join(left_out)),
        *("; ".join(errors.values()), opened.location),
    )
    yield from _journal_row(row, tables)


def _journal_row(row: Row, tables: Collection[str]) -> Iterator[tuple[str, list[Row]]]:
    """A row of the table ``journals``. Nobody takes a part of a fleet for all of it without being told."""
    if JOURNALS_TABLE in tables:
        yield JOURNALS_TABLE, [row]
    elif text := not_whole_text(dict(zip(JOURNALS.names, row, strict=True))):
        warnings.warn(text, NotWhole, stacklevel=2)


def not_whole_text(row: Mapping[str, Any]) -> str:
    """What became of a journal that is not wholly in the tables, by its row; empty where it is."""
    said = [f"{row['state']}: {row['error'] or row['findings']}"] if row["exit_code"] else []
    said += [f"left out, since its begin is not on record: {row['left_out']}"] if row["left_out"] else []
    return f"{row['node'] or row['journal_id']} ({row['location']}): {'; '.join(said)}" if said else ""


def _location(ref: Ref, folder: str | None = None) -> str:
    """As a person, or ``--journal`` where it is of files, would name it."""
    return f"{_place(ref.url).rstrip('/')}/{ref.folder if folder is None else folder}".rstrip("/")


def _error(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


# --- verbs -------------------------------------------------------------------------------------


class Verb(NamedTuple):
    """``rows`` of one journal, of which the last tells of the journal itself; ``shape`` is theirs."""

    shape: pa.Schema
    rows: Callable[..., Iterator[dict[str, Any]]]


def map_journals(refs: Iterable[Ref], verb: Verb, **asked: Any) -> Iterator[pa.RecordBatch]:
    """``verb`` of every journal, in their order; one that cannot be read is a row with ``error``."""
    kept: list[dict[str, Any]] = []
    for ref in refs:
        try:
            opened = list(open_journals(ref))
        except OF_THE_READER:
            raise
        except Exception as problem:
            key = ref.key(ref.files[0])
            named = {"node": key and key.node, "journal_id": key.journal if key else ref.id_begin}
            kept.append(named | {"location": _location(ref), "state": UNREAD, "error": _error(problem)})
            continue
        for each in opened:
            kept += _answers(each, verb, asked)
        if len(kept) >= ROWS_MAX:
            yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)
            kept = []
    if kept:
        yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)


def _answers(opened: Opened, verb: Verb, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    head = {"cluster": opened.cluster, "node": opened.node, "journal_id": opened.id}
    head["location"] = opened.location
    rows: list[dict[str, Any]] = []
    if opened.sources:
        try:
            # One by one: what was answered before something failed stays.
            for row in verb.rows(opened.journal(), **asked):
                rows.append(head | row)
        except OF_THE_READER:
            raise
        except Exception as problem:
            rows.append(head | {"state": UNREAD, "error": _error(problem)})
    if opened.lies:
        of_journal = rows.pop() if rows else head
        said = filter(None, (of_journal.get("error"), *opened.lies))
        state = of_journal.get("state", "intact")
        state = "corrupt" if state in ("intact", "torn") else state
        rows.append(of_journal | {"state": state, "error": "; ".join(said), "identical": False})
    return rows


#: Of a shutdown that could not be decided anew.
DIVERGED, NOT_ASKED = "diverged", "not-asked"


def _verify(journal: Journal) -> Iterator[dict[str, Any]]:
    # Not by `replay.library`, which loads reports and simulator too: each process of a pool would load them.
    from ebbtide.replay.verify import verify

    found = verify(journal.history(logics=LOGICS))
    state = found.verdict.state
    if isinstance(found.failure, UnknownType):
        state = "incompatible"
    elif found.failure is not None:
        state = "corrupt"
    silent = found.failure is not None or state != "intact"
    # Older segments may be gone: then it is intact, and yet not all of a shutdown is here.
    begin = None
    if found.verdict.first_seq > 1:
        begin = headless_episode(journal.history(logics=LOGICS))
    yield {
        "identical": found.identical,
        "events": found.events,
        "state": state,
        "divergence": str(found.divergence) if found.divergence else None,
        "error": str(found.failure or found.verdict.banner) if silent else None,
        "headless": None if begin is None else episode_id(found.verdict.journal_id, begin),
    }


def _what_if(journal: Journal, *, settings: bytes) -> Iterator[dict[str, Any]]:
    """``settings``: `events.values.Settings` as MessagePack."""
    import msgspec

    from ebbtide.events.values import Settings
    from ebbtide.replay.advise import workload
    from ebbtide.replay.whatif.record import Changes, Diverged, WrongChange
    from ebbtide.replay.whatif.whatif_run import compare, what_if

    changes = Changes(settings=msgspec.msgpack.decode(settings, type=Settings))
    shutdowns = 0
    for shutdown in journal.shutdowns():
        shutdowns += 1
        node = shutdown.account.node
        started_us = shutdown.account.started_wall_ns // _NS_PER_US
        row = {"node": node, "shutdown": shutdown.id, "started": started_us}
        if shutdown.account.headless:
            yield row | {"state": NOT_ASKED, "error": "its begin is not on record"}
            continue
        try:
            history = journal.history(logics=LOGICS)
            found = compare(what_if(history, shutdown.account.first_seq, changes))
        except (*OF_THE_READER, StoreFailed):
            raise
        except Diverged as problem:
            yield row | {"state": DIVERGED, "error": f"this version decides otherwise: {problem}"}
            continue
        except WrongChange as problem:
            yield row | {"state": NOT_ASKED, "error": str(problem)}
            continue
        except Exception as problem:
            yield row | {"state": UNREAD, "error": _error(problem)}
            continue
        changed = [
            {
                "workload": workload(side.line.pod.namespace, side.line.pod.name, node),
                "pod": f"{side.line.pod.namespace}/{side.line.pod.name}",
                "priority": side.line.pod.priority,
                "change": side.change,
            }
            for side in found.pods
            if side.change != "same"
        ]
        counts = {name: 0 for name, _ in _COUNTS} | {"pods": len(found.pods)}
        for each in changed:
            counts[str(each["change"]).replace("-", "_")] += 1
        yield row | counts | {"same": found.is_same, "changed": changed}
    verdict = journal.verdict
    said = None if verdict.state == "intact" else verdict.banner
    yield {"state": verdict.state, "shutdowns": shutdowns, "error": said}


_HEAD = [(name, _TEXT) for name in ("cluster", "node", "journal_id", "location", "state", "error")]
_COUNTS = [(name, _INT) for name in ("pods", "saved", "lost", "perhaps_saved", "perhaps_lost")]
_CHANGE = pa.struct([("workload", _TEXT), ("pod", _TEXT), ("priority", _INT), ("change", _TEXT)])
VERBS = {
    "verify": Verb(
        pa.schema(
            [*_HEAD, ("identical", _BOOL), ("events", _INT), ("divergence", _TEXT), ("headless", _TEXT)]
        ),
        _verify,
    ),
    # A row with a shutdown tells of that; one without, of the journal.
    "what-if": Verb(
        pa.schema(
            [
                *_HEAD,
                *(("shutdown", _TEXT), ("started", TYPES["time"]), ("same", _BOOL)),
                *(*_COUNTS, ("changed", pa.list_(_CHANGE)), ("shutdowns", _INT)),
            ]
        ),
        _what_if,
    ),
}


# --- advice: what adds up -----------------------------------------------------------------------


def evidence_of(
    refs: Iterable[Ref], *, by_node: bool = False
) -> tuple[dict[str, Evidence], list[dict[str, Any]]]:
    """What an advice is made of (`replay.advise.conclude`), small enough to be sent; and a row a journal.

    That of each node, or of all as "". ``left_out`` of a row: shutdowns whose begin is not on record.
    """
    evidence: dict[str, Evidence] = {}
    asked = {"evidence": evidence, "by_node": by_node}
    rows = [row for batch in map_journals(refs, _ADD_UP, **asked) for row in batch.to_pylist()]
    return evidence, rows


def _add_up(journal: Journal, *, evidence: dict[str, Evidence], by_node: bool) -> Iterator[dict[str, Any]]:
    left_out = []
    for shutdown in journal.shutdown_records():
        evidence.setdefault(shutdown.node if by_node else "", Evidence()).add(shutdown)
        if shutdown.headless:
            left_out.append(shutdown.id)
    verdict = journal.verdict
    said = None if verdict.state == "intact" else verdict.banner
    yield {"state": verdict.state, "error": said, "left_out": left_out}


_ADD_UP = Verb(pa.schema([*_HEAD, ("left_out", pa.list_(_TEXT))]), _add_up)
