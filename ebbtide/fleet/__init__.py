"""The portable core of a fleet's journals: planned by names, read as Arrow batches. It knows no engine.

A plan is one LIST and no GET: objects whose names say the same journal make a `Ref`, wherever they lie, so
that a copy, or a journal that a failing disk spread over two places, counts once however the work is
partitioned. A name in a folder has only the first eight digits of the id, and two journals may have them in
common: such a `Ref` holds both, and `open_journals` tells them apart by their headers. What cannot be read is
a row of the table ``journals``, and never a failed job.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from os.path import abspath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import PEEK_BYTES, StoredFile
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.reader import History
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.events.segment import DamagedHeader, IncompatibleHeader, header_length, parse_header
from ebbtide.replay.journal import Journal
from ebbtide.replay.tables import OUTAGE_TABLES, TABLES, Table

# --- stores ------------------------------------------------------------------------------------

_CREDENTIALS = re.compile(r"(?i)(key|token|secret|signature|sig|password|credential)[^=&]*=")


class BadUrl(ValueError):
    """This URL names no store, or holds credentials: give those by the environment or the machine's role."""


class StoreFailed(Exception):
    """A store did not give what it had listed: that is said of the store, and not of the journal."""


def store_url(place: str) -> str:
    """The URL of a store; a plain path is one of files. Raises BadUrl."""
    if "://" not in place:
        return f"file://{abspath(place)}"
    parts = urlsplit(place)
    # Engines write URLs into their logs, and a command line is seen by everybody on the machine.
    if "@" in parts.netloc or _CREDENTIALS.search(parts.query):
        raise BadUrl(
            f"the URL of {parts.scheme}://{parts.hostname or ''} holds credentials: leave them out, and give"
            " them by the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role"
        )
    return place


@cache
def store(url: str) -> Any:
    """One client a process and URL."""
    from obstore.store import from_url

    return from_url(url)


# --- the plan ----------------------------------------------------------------------------------

_NAME = re.compile(r"(\d{10})-([0-9a-f]{8})(?:-([0-9a-f]{64}))?\.ebj")
#: As nodes ship it.
_SHIPPED = re.compile(r"(?:^|/)v1/cluster=([^/]*)/node=([^/]*)/journal=([0-9a-f]{32})$")


class File(NamedTuple):
    """An object: ``name`` as the journal's own reader wants it. ``sha256`` of its bytes by its name."""

    name: str
    path: str
    size: int
    modified_ns: int
    sha256: str = ""


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


@cache
def _key_of(url: str, folder: str) -> Key | None:
    # Somebody may ask for a part of the store: then the URL has the rest.
    match = _SHIPPED.search(f"{urlsplit(url).path.strip('/')}/{folder}".strip("/"))
    return Key(unquote(match[1]), unquote(match[2]), match[3]) if match else None


def journals(url: str) -> list[Ref]:
    """Every journal below ``url``, in the order of their folders whatever the order of the listing: one LIST.

    Raises BadUrl.
    """
    import obstore

    url = store_url(url)
    listed = (info for chunk in obstore.list(store(url), chunk_size=1000) for info in chunk)
    return plan(url, listed)


def plan(url: str, listed: Iterable[Any]) -> list[Ref]:
    """The journals of a listing, whose entries have ``path``, ``size`` and ``last_modified``."""
    found: dict[str, list[File]] = defaultdict(list)
    for info in listed:
        last = info["path"].rpartition("/")[2]
        match = _NAME.fullmatch(last)
        # A file without a byte holds no journal, whatever its name says.
        if match and info["size"]:
            moment = info["last_modified"]
            modified_ns = int(moment.timestamp()) * NS_PER_SECOND + moment.microsecond * 1000
            name = f"{match[1]}-{match[2]}.ebj"
            found[match[2]].append(File(name, info["path"], info["size"], modified_ns, match[3] or ""))
    refs = []
    for files in found.values():
        files.sort(key=lambda file: file.path)
        refs.append(Ref(url, _folder_of(files[0].path), tuple(files)))
    return sorted(refs, key=lambda ref: ref.files[0].path)


def bins(refs: Sequence[Ref], bytes_max: int = 32 << 20, count_max: int = 500) -> list[list[Ref]]:
    """Small journals together, in order; a journal is never split."""
    made: list[list[Ref]] = []
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
            raise StoreFailed(f"{file.path}: {' '.join(str(error).split())[:200]}") from error
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

    ``lies``: objects that are not what their names say; nothing of them is used.
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
        return Journal(self.sources, boot_id=ELSEWHERE)


def open_journals(ref: Ref) -> Iterator[Opened]:
    """The journals of a `Ref`, nearly always one, by their full ids. Raises StoreFailed."""
    reader = _Reader(ref.url)
    ours: dict[str, list[File]] = defaultdict(list)
    lies: dict[str, list[str]] = defaultdict(list)
    nameless: list[File] = []
    nodes: dict[str, str] = {}
    for file in ref.files:
        key = ref.key(file)
        journal_id, node, problem = _look(ref, file, key, reader)
        if key is not None:
            nodes.setdefault(key.journal, node or key.node)
        if problem:
            lies[key.journal if key is not None else journal_id or _begin(file)].append(problem)
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
        owner = next(iter(beside or ours), _begin(file))
        ours[owner].append(file)
    for journal_id in sorted({**ours, **lies}):
        files = tuple(ours[journal_id])
        keys = [key for file in files if (key := ref.key(file)) is not None]
        yield Opened(
            journal_id,
            keys[0].cluster if keys else "",
            nodes.get(journal_id, ""),
            f"{ref.url.rstrip('/')}/{_folder_of(files[0].path) if files else ref.folder}",
            files,
            tuple(_sources(ref, files, reader)),
            tuple(lies[journal_id]),
        )


def open_ref(ref: Ref) -> Journal:
    """The first journal of a `Ref` (`open_journals` has all). Raises NoJournal, StoreFailed."""
    return next(open_journals(ref)).journal()


def _begin(file: File) -> str:
    return file.name[11:19]


def _look(ref: Ref, file: File, key: Key | None, reader: _Reader) -> tuple[str, str, str]:
    """The id and the node of its header, empty where that is lost; and how it lies, if it does."""
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
    if key is not None and (key.journal, key.node) != (journal_id, node):
        return journal_id, node, f"{file.path}: its header is of journal {journal_id} of node {node}"
    # In a folder the reader itself calls a file damaged that has another's name.
    return (journal_id, node, "") if journal_id.startswith(_begin(file)) else ("", "", "")


def _sources(ref: Ref, files: Sequence[File], reader: _Reader) -> Iterator[StoreSource]:
    """One a folder, and one more where it has two objects of one name."""
    groups: dict[tuple[str, int], list[File]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for file in files:
        folder = _folder_of(file.path)
        groups[folder, seen[folder, file.name]].append(file)
        seen[folder, file.name] += 1
    for (folder, _), members in groups.items():
        yield StoreSource(f"{ref.url.rstrip('/')}/{folder}", members, reader)


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

#: One row a journal: what became of reading it.
JOURNALS = pa.schema(
    [
        ("node", _TEXT),
        ("journal_id", _TEXT),
        ("cluster", _TEXT),
        ("state", _TEXT),
        ("exit_code", _INT),
        ("segments", _INT),
        ("bytes", _INT),
        ("first_seq", _INT),
        ("last_seq", _INT),
        ("findings", _TEXT),
        ("error", _TEXT),
        ("location", _TEXT),
    ]
)
#: The store did not give it: as any input that cannot be read.
UNREAD, UNREAD_CODE = "unread", 2


def schema(table: str) -> pa.Schema:
    """Raises KeyError, naming the tables that there are."""
    if table == "journals":
        return JOURNALS
    if table not in ALL_TABLES:
        raise KeyError(f"no table {table!r}: there are {', '.join(ALL_TABLES)}, journals")
    return pa.schema([(column.name, TYPES[column.type]) for column in ALL_TABLES[table].columns])


def record_batches(refs: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    """A table's rows, in the order of the journals, some thousands at a time."""
    shape = schema(table)
    kept: list[tuple[Any, ...]] = []
    for ref in refs:
        kept += _verdict_rows(ref) if table == "journals" else _rows(ref, ALL_TABLES[table])
        if len(kept) >= ROWS_MAX:
            yield _batch(kept, shape)
            kept = []
    if kept:
        yield _batch(kept, shape)


def _rows(ref: Ref, table: Table) -> list[tuple[Any, ...]]:
    """Of what can be read; what cannot is said in the table ``journals``."""
    found: list[tuple[Any, ...]] = []
    times = [at for at, column in enumerate(table.columns) if column.type == "time"]
    try:
        for opened in open_journals(ref):
            if not opened.sources:
                continue
            before = len(found)
            journal = opened.journal()
            records = journal.outage_records() if table in OUTAGE_TABLES else journal.shutdown_records()
            try:
                for record in records:
                    for row in table.rows(record):
                        cells = list(row)
                        for at in times:
                            cells[at] = None if cells[at] is None else cells[at] // _NS_PER_US
                        found.append(tuple(cells))
            except (BadPayload, UnknownType):
                pass  # what stands before it is good
            except Exception:
                del found[before:]
    except Exception:
        return found
    return found


def _verdict_rows(ref: Ref) -> list[tuple[Any, ...]]:
    try:
        opened = list(open_journals(ref))
    except Exception as problem:
        key = ref.key(ref.files[0])
        row = (key.node, key.journal, key.cluster) if key is not None else ("", _begin(ref.files[0]), "")
        location = f"{ref.url.rstrip('/')}/{ref.folder}"
        return [(*row, UNREAD, UNREAD_CODE, len(ref.files), ref.bytes, 0, 0, "", _error(problem), location)]
    return [_verdict_row(each) for each in opened]


def _verdict_row(opened: Opened) -> tuple[Any, ...]:
    state, code, first_seq, last_seq, findings, error = "intact", 0, 0, 0, list(opened.lies), ""
    if opened.sources:
        try:
            verdict = History(opened.sources).read()
            state, code = verdict.state, verdict.exit_code
            first_seq, last_seq = verdict.first_seq, verdict.end.seq
            findings += map(str, verdict.findings)
        except Exception as problem:
            state, code, error = UNREAD, UNREAD_CODE, _error(problem)
    if opened.lies and state in ("intact", "torn"):
        state, code = "corrupt", EXIT_CODES["corrupt"]
    sizes = [file.size for file in opened.files]
    return (
        *(opened.node, opened.id, opened.cluster, state, code, len(sizes), sum(sizes)),
        *(first_seq, last_seq, "; ".join(findings), error, opened.location),
    )


def _error(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _batch(rows: Sequence[tuple[Any, ...]], shape: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), shape, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


# --- verbs -------------------------------------------------------------------------------------


class Verb(NamedTuple):
    """``rows`` of one journal; ``shape`` is theirs. What it raises is a row with ``error``."""

    shape: pa.Schema
    rows: Callable[..., Iterator[dict[str, Any]]]


def map_journals(refs: Iterable[Ref], verb: Verb, **asked: Any) -> Iterator[pa.RecordBatch]:
    """``verb`` of every journal, in their order; a journal that cannot be read is a row with ``error``."""
    kept: list[dict[str, Any]] = []
    for ref in refs:
        try:
            for opened in open_journals(ref):
                head = {"folder": opened.location, "journal_id": opened.id}
                if opened.lies:
                    kept.append(head | {"error": "; ".join(opened.lies)})
                if not opened.sources:
                    continue
                try:
                    kept += [head | row for row in verb.rows(opened.journal(), **asked)]
                except Exception as problem:
                    kept.append(head | {"error": _error(problem)})
        except Exception as problem:
            kept.append({"folder": ref.folder, "journal_id": _begin(ref.files[0]), "error": _error(problem)})
        if len(kept) >= ROWS_MAX:
            yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)
            kept = []
    if kept:
        yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)


def _verify(journal: Journal) -> Iterator[dict[str, Any]]:
    from ebbtide.replay.library import verify

    found = verify(journal)
    yield {
        "identical": found.identical,
        "events": found.events,
        "state": found.verdict.state,
        "divergence": str(found.divergence) if found.divergence else None,
        "error": str(found.failure) if found.failure else None,
    }


def _what_if(journal: Journal, *, settings: bytes) -> Iterator[dict[str, Any]]:
    """``settings``: `events.model.Settings` as MessagePack."""
    import msgspec

    from ebbtide.events.model import Settings
    from ebbtide.replay.library import what_if

    new = msgspec.msgpack.decode(settings, type=Settings)
    for shutdown in journal.shutdowns():
        row = {"node": shutdown.account.node, "shutdown": shutdown.id}
        try:
            found = what_if(shutdown, settings=new)
        except Exception as problem:  # some cannot be asked (WrongChange), or do not replay
            yield row | {"error": _error(problem)}
            continue
        yield row | {
            "same": found.is_same,
            "pods": len(found.pods),
            "saved": len(found.changed("saved")),
            "lost": len(found.changed("lost")),
            "perhaps_saved": len(found.changed("perhaps-saved")),
            "perhaps_lost": len(found.changed("perhaps-lost")),
        }


_HEAD = [("folder", _TEXT), ("journal_id", _TEXT)]
_COUNTS = [(name, _INT) for name in ("pods", "saved", "lost", "perhaps_saved", "perhaps_lost")]
VERBS = {
    "verify": Verb(
        pa.schema(
            [
                *_HEAD,
                *(("identical", _BOOL), ("events", _INT), ("state", _TEXT), ("divergence", _TEXT)),
                ("error", _TEXT),
            ]
        ),
        _verify,
    ),
    "what-if": Verb(
        pa.schema(
            [*_HEAD, ("node", _TEXT), ("shutdown", _TEXT), ("same", _BOOL), *_COUNTS, ("error", _TEXT)]
        ),
        _what_if,
    ),
}
