"""The portable core of a fleet's journals: planned by names, read as Arrow batches. It knows no engine.

Stands in for the whole core until that is there: what `ebbtide.fleet.spark` needs, under the same names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from ebbtide.events.catalog import StoredFile
from ebbtide.replay.journal import Journal
from ebbtide.replay.tables import OUTAGE_TABLES, TABLES, Table

SEGMENT = re.compile(r"(\d{10})-([0-9a-f]{8})(?:-[0-9a-f]+)?\.ebj")
ROWS_MAX = 20_000
TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    # Engines know no nanoseconds.
    "time": pa.timestamp("us", tz="UTC"),
}
ALL_TABLES: dict[str, Table] = {table.name: table for table in (*TABLES, *OUTAGE_TABLES)}
NS_PER_US = 1000


@cache
def store(url: str) -> Any:
    """One client a process and URL. Credentials come from the environment or the machine's role."""
    from obstore.store import from_url

    return from_url(url)


class File(NamedTuple):
    """An object: ``name`` as the journal's own reader wants it."""

    name: str
    path: str
    size: int
    modified_ns: int


class Ref(NamedTuple):
    """A journal by its objects' names alone."""

    url: str
    folder: str
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def modified_ns(self) -> int:
        return max(each.modified_ns for each in self.files)


def journals(url: str) -> list[Ref]:
    """Every journal below ``url``: one LIST, no GET. A folder and an id make a journal."""
    import obstore

    found: dict[tuple[str, str], list[File]] = defaultdict(list)
    for chunk in obstore.list(store(url), chunk_size=1000):
        for info in chunk:
            folder, _, last = info["path"].rpartition("/")
            match = SEGMENT.fullmatch(last)
            if match and info["size"]:
                at = int(info["last_modified"].timestamp() * 1_000_000) * NS_PER_US
                name = f"{match[1]}-{match[2]}.ebj"
                found[folder, match[2]].append(File(name, info["path"], info["size"], at))
    return [Ref(url, folder, tuple(sorted(files))) for (folder, _), files in sorted(found.items())]


def bins(refs: Sequence[Ref], bytes_max: int, count_max: int) -> list[list[Ref]]:
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


class StoreSource:
    """A journal's segments in a store, each one GET."""

    def __init__(self, ref: Ref) -> None:
        self.location = f"{ref.url}/{ref.folder}"
        self._url, self._files = ref.url, {each.name: each for each in ref.files}
        self._bytes: dict[str, bytes] = {}

    def files(self) -> list[StoredFile]:
        return [StoredFile(each.name, each.size, each.modified_ns) for each in self._files.values()]

    def read(self, name: str, offset: int, size: int) -> bytes:
        import obstore

        if name not in self._bytes:
            got = obstore.get(store(self._url), self._files[name].path)
            self._bytes[name] = bytes(got.bytes())
        return self._bytes[name][offset : offset + size]


def open_ref(ref: Ref) -> Journal:
    """A constant boot id: what a row says must not depend on the machine that reads."""
    return Journal([StoreSource(ref)], boot_id="another machine")


def schema(table: str) -> pa.Schema:
    """``journal_id`` first, because two nodes' shutdowns may have one id."""
    return pa.schema([("journal_id", TYPES["text"]), *((c.name, TYPES[c.type]) for c in _columns(table))])


def _columns(table: str) -> list[Any]:
    if table not in ALL_TABLES:
        raise KeyError(f"no table {table!r}: there are {', '.join(ALL_TABLES)}")
    return [column for column in ALL_TABLES[table].columns if column.name != "journal_id"]


def _rows(ref: Ref, table: str) -> Iterator[tuple[Any, ...]]:
    journal = open_ref(ref)
    outages = any(table == each.name for each in OUTAGE_TABLES)
    columns = _columns(table)
    for record in journal.outage_records() if outages else journal.shutdown_records():
        for subject in ALL_TABLES[table].subjects(record):
            values = (column.value(record, subject) for column in columns)
            yield (
                journal.id,
                *(
                    value // NS_PER_US if column.type == "time" and value is not None else value
                    for column, value in zip(columns, values, strict=True)
                ),
            )


def record_batches(refs: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    """Rows in the order of the journals, some thousands at a time."""
    shape = schema(table)
    kept: list[tuple[Any, ...]] = []
    for ref in refs:
        kept += _rows(ref, table)
        if len(kept) >= ROWS_MAX:
            yield _batch(kept, shape)
            kept = []
    if kept:
        yield _batch(kept, shape)


def _batch(rows: Sequence[tuple[Any, ...]], shape: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), shape, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


class Verb(NamedTuple):
    """``rows`` of one journal; ``shape`` is theirs. What it raises is a row with ``error``."""

    shape: pa.Schema
    rows: Callable[..., Iterator[dict[str, Any]]]


def map_journals(refs: Iterable[Ref], verb: Verb, **asked: Any) -> Iterator[pa.RecordBatch]:
    kept: list[dict[str, Any]] = []
    for ref in refs:
        try:
            kept += ({"folder": ref.folder, **row} for row in verb.rows(open_ref(ref), **asked))
        except Exception as problem:
            kept.append({"folder": ref.folder, "error": f"{type(problem).__name__}: {problem}"})
        if len(kept) >= ROWS_MAX:
            yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)
            kept = []
    if kept:
        yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)


# --- verbs ---------------------------------------------------------------------------------------

_TEXT, _INT, _BOOL = TYPES["text"], TYPES["int"], TYPES["bool"]


def _verify(journal: Journal) -> Iterator[dict[str, Any]]:
    from ebbtide.replay.library import verify

    found = verify(journal)
    yield {
        "journal_id": journal.id,
        "identical": found.identical,
        "events": found.events,
        "state": found.verdict.state,
        "divergence": str(found.divergence) if found.divergence else None,
    }


def _what_if(journal: Journal, *, settings: bytes) -> Iterator[dict[str, Any]]:
    import json

    import msgspec

    from ebbtide.cli.replay.what_if import what_if_document
    from ebbtide.events.model import Settings
    from ebbtide.replay.library import what_if

    new = msgspec.msgpack.decode(settings, type=Settings)
    for shutdown in journal.shutdowns():
        row = {"journal_id": journal.id, "node": shutdown.account.node, "shutdown": shutdown.id}
        try:
            said = what_if_document(shutdown.account, ["the configuration"], what_if(shutdown, settings=new))
        except Exception as problem:
            yield row | {"error": f"{type(problem).__name__}: {problem}"}
            continue
        yield row | {
            "same": said["same"],
            "saved": len(said["saved"]),
            "lost": len(said["lost"]),
            "perhaps_saved": len(said["perhapsSaved"]),
            "perhaps_lost": len(said["perhapsLost"]),
            "document": json.dumps(said, sort_keys=True),
        }


VERBS = {
    "verify": Verb(
        pa.schema(
            [
                ("folder", _TEXT),
                ("journal_id", _TEXT),
                ("identical", _BOOL),
                ("events", _INT),
                ("state", _TEXT),
                ("divergence", _TEXT),
                ("error", _TEXT),
            ]
        ),
        _verify,
    ),
    "what-if": Verb(
        pa.schema(
            [
                ("folder", _TEXT),
                ("journal_id", _TEXT),
                ("node", _TEXT),
                ("shutdown", _TEXT),
                ("same", _BOOL),
                ("saved", _INT),
                ("lost", _INT),
                ("perhaps_saved", _INT),
                ("perhaps_lost", _INT),
                ("document", _TEXT),
                ("error", _TEXT),
            ]
        ),
        _what_if,
    ),
}
