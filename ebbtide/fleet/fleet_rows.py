"""A fleet's journals as Arrow batches of tables, as Parquet files, and the plan of Spark's data source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from ebbtide.events.reader import History
from ebbtide.events.record.episodes import EpisodeRecord, records_of
from ebbtide.events.record.outage_record import OPEN, OutageRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.fleet.fleet_journals import (
    ELSEWHERE,
    OF_THE_READER,
    Opened,
    Ref,
    bins,
    error_text,
    journals,
    open_journals,
)
from ebbtide.memory import WORKER_BYTES_MAX, MemoryWatch
from ebbtide.replay import tables
from ebbtide.replay.tables import Column, Table

ROWS_MAX = 20_000
TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    # Engines and lakes have no nanoseconds.
    "time": pa.timestamp("us", tz="UTC"),
}
_NS_PER_US = 1000


class ReadJournal(msgspec.Struct, kw_only=True):
    node: str
    journal_id: str
    cluster: str
    segments: int
    bytes: int
    location: str
    state: str = "intact"
    exit_code: int = 0
    first_seq: int = 0
    last_seq: int = 0
    findings: str = ""
    left_out: str = ""
    error: str = ""


JOURNALS = Table(
    "journals",
    "one row for each journal: the result of reading it",
    lambda read: (tables.Row(read, read),),
    (
        Column("node", "text", "the node, from its header or a redacted journal's path; empty: not known"),
        Column("journal_id", "text", "all 32 digits; eight where no header and no path has the others"),
        Column("cluster", "text", "from the path of a shipped journal"),
        Column("state", "text", "intact, torn, corrupt, incompatible; unread: the store did not return it"),
        Column("exit_code", "int", "the exit code of `ebbtide journal check`"),
        Column("segments", "int", "number of its objects"),
        Column("bytes", "int", "size of its objects"),
        Column("first_seq", "int", "the number of its first record"),
        Column("last_seq", "int", "the number of its last record that can be used"),
        Column("findings", "text", "its damage, with places"),
        Column("left_out", "text", "shutdowns without their begin on record: they are in no table"),
        Column("error", "text", "why rows are missing that the damage does not explain"),
        Column("location", "text", "its place"),
    ),
)
ALL_TABLES = {table.name: table for table in (*tables.TABLES, *tables.OUTAGE_TABLES, JOURNALS)}
#: The tables with one row for each subject.
LEDGERS = {"shutdown": tables.TABLES[0].name, "outage": tables.OUTAGE_TABLES[0].name}
#: The exit code of an unreadable input.
UNREAD, UNREAD_CODE = "unread", 2
UNFORESEEN_CODE = 1

Row = tuple[Any, ...]


#: Only in a lake: in `JOURNALS` the fingerprint, in other tables the cluster. Another node may ship the same
#: journal id.
LAKE_COLUMN = Column("cluster", "text", "of its journal; empty: not shipped")
FINGERPRINT_COLUMN = Column("fingerprint", "text", "a hash of its objects' names, sizes and times")


def schema(table: str, *, lake: bool = False) -> pa.Schema:
    found = ALL_TABLES[table]
    beside = (FINGERPRINT_COLUMN if found is JOURNALS else LAKE_COLUMN,) if lake else ()
    fields = [
        pa.field(column.name, TYPES[column.type], metadata={"doc": column.text})
        for column in (*found.columns, *beside)
    ]
    return pa.schema(fields, metadata={"doc": found.text})


def subject_of(shape: pa.Schema) -> str:
    """Of `LEDGERS`: the column with its id."""
    return "outage" if "outage" in shape.names else "shutdown"


def table_batches(refs: Iterable[Ref], *, settled: bool = False) -> list[tuple[str, pa.RecordBatch]]:
    """All tables in one pass. ``settled``: for a lake, only shutdowns whose rows never change. If one table's
    rows fail, such a shutdown is in no table.
    """
    return list(batched(_rows_of_all(refs, settled), lake=settled))


def record_batches(refs: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    rows = (found for found in _rows_of_all(refs, settled=False) if found[0] == table)
    return (batch for _, batch in batched(rows))


def _rows_of_all(refs: Iterable[Ref], settled: bool) -> Iterator[tuple[str, list[Row]]]:
    for ref in refs:
        for opened in open_journals(ref):
            for name, rows in _rows(opened, settled):
                beside = ref.fingerprint if name == JOURNALS.name else opened.cluster
                yield name, [(*row, beside) for row in rows] if settled else rows


def batched(
    found: Iterable[tuple[str, Sequence[Row]]], *, lake: bool = False
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Some thousands of a table at a time."""
    kept: dict[str, list[Row]] = {name: [] for name in ALL_TABLES}
    for name, rows in found:
        kept[name] += rows
        while len(kept[name]) >= ROWS_MAX:
            yield name, _batch(kept[name][:ROWS_MAX], schema(name, lake=lake))
            del kept[name][:ROWS_MAX]
    for name, rows in kept.items():
        if rows:
            yield name, _batch(rows, schema(name, lake=lake))


def _batch(rows: Sequence[Row], shape: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for values, field in zip(zip(*rows, strict=True), shape, strict=True):
        if field.type == TYPES["time"]:
            values = tuple(None if each is None else each // _NS_PER_US for each in values)
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


#: With an end on record.
ENDED = ("complete", "cancelled", "never-begun")


def _settled(records: Iterable[EpisodeRecord], history: History) -> Iterator[EpisodeRecord]:
    """Records with an end, or before later ones: the journal's next object may complete the last one."""
    last: ShutdownRecord | None = None
    for record in records:
        if last is not None:
            yield last
        last = record if isinstance(record, ShutdownRecord) else None
        if isinstance(record, OutageRecord) and record.outcome != OPEN:
            yield record
    if last is not None and (last.outcome in ENDED or last.last_seq < history.verdict.end.seq):
        yield last


def _rows(opened: Opened, settled: bool) -> Iterator[tuple[str, list[Row]]]:
    read = ReadJournal(
        node=opened.node,
        journal_id=opened.id,
        cluster=opened.cluster,
        segments=len(opened.files),
        bytes=sum(file.size for file in opened.files),
        location=opened.location,
    )
    findings, left_out, errors = list(opened.lies), list[str](), dict[str, str]()
    memory = MemoryWatch(WORKER_BYTES_MAX)
    if opened.error:
        read.state, read.exit_code, errors[""] = UNREAD, UNREAD_CODE, opened.error
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
                wanted = tables.TABLES_OF[type(record)]
                for table in wanted:
                    try:
                        made[table.name] = list(memory.watched(table.rows(record)))
                    except Exception as problem:
                        errors.setdefault(table.name, f"{table.name}: {error_text(problem)}")
                # A lake takes a shutdown once: missing rows would never follow.
                if len(made) == len(wanted) or not settled:
                    yield from made.items()
        except OF_THE_READER:
            raise
        except Exception as problem:
            errors[""] = error_text(problem)
        try:
            verdict = History(opened.sources).read() if "" in errors else history.verdict
            read.state = verdict.state
            read.exit_code = verdict.exit_code or (UNFORESEEN_CODE if errors else 0)
            read.first_seq, read.last_seq = verdict.first_seq, verdict.end.seq
            findings += map(str, verdict.findings)
        except OF_THE_READER:
            raise
        except Exception as problem:
            read.state, read.exit_code = UNREAD, UNREAD_CODE
            errors.setdefault("", error_text(problem))
    if opened.lies and read.state in ("intact", "torn"):
        read.state, read.exit_code = "corrupt", EXIT_CODES["corrupt"]
    read.findings, read.left_out = "; ".join(findings), ", ".join(left_out)
    read.error = "; ".join(errors.values())
    yield JOURNALS.name, list(JOURNALS.rows(read))


def not_whole_text(row: Mapping[str, Any]) -> str:
    """Why the tables lack a part of a journal, or empty."""
    said = [f"{row['state']}: {row['error'] or row['findings']}"] if row["exit_code"] else []
    said += [f"left out, without their begin on record: {row['left_out']}"] if row["left_out"] else []
    return f"{row['node'] or row['journal_id']} ({row['location']}): {'; '.join(said)}" if said else ""


# --- Parquet files

#: Fixed: the same rows are the same bytes.
GROUP_ROWS = 20_000


class TableFile:
    """An empty table has its columns too."""

    def __init__(self, table: str, folder: Path) -> None:
        from pyarrow.parquet import ParquetWriter

        self.count = 0
        self._shape = schema(table)
        self._writer = ParquetWriter(folder / f"{table}.parquet", self._shape, compression="zstd")
        self._kept: list[pa.RecordBatch] = []
        self._rows = 0

    def __enter__(self) -> TableFile:
        return self

    def __exit__(self, *failed: object) -> None:
        if self._rows or not self.count:
            self._write(self._rows)
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._kept.append(batch)
        self._rows += batch.num_rows
        while self._rows >= GROUP_ROWS:
            self._write(GROUP_ROWS)

    def _write(self, rows: int) -> None:
        whole = pa.Table.from_batches(self._kept, self._shape)
        self._writer.write_table(whole.slice(0, rows).combine_chunks(), row_group_size=GROUP_ROWS)
        self._kept, self._rows = whole.slice(rows).to_batches(), self._rows - rows
        self.count += rows


def write_files(
    found: Iterable[tuple[str, pa.RecordBatch]], tables: Iterable[str], folder: Path
) -> dict[str, int]:
    with ExitStack() as stack:
        files = {name: stack.enter_context(TableFile(name, folder)) for name in tables}
        for name, batch in found:
            files[name].add(batch)
    return {name: file.count for name, file in files.items()}


# --- Spark's data source (`pyspark_ebbtide`), without Spark


MIB = 1 << 20
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """``path``: of ``load``. ``partition_…``: a task's limits."""

    path: str = ""
    table: str = LEDGERS["shutdown"]
    #: A second or two of work: Spark repeats a lost task.
    partition_journals: AtLeastOne = 200
    partition_mib: AtLeastOne = msgspec.field(default=64, name="partitionMiB")
    pushdown: bool = False


def options_of(given: Mapping[str, str]) -> Options:
    """Spark writes names in lower case. Raises ValueError."""
    named = {_known("option", name, Options.__struct_encode_fields__): text for name, text in given.items()}
    if "table" in named:
        named["table"] = _known("table", named["table"], ALL_TABLES)
    return msgspec.convert(named, Options, strict=False)


def _known(kind: str, name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    if name.lower() not in by_lower:
        (near,) = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)
        raise ValueError(f"the data source ebbtide has no {kind} {name!r}: did you mean {by_lower[near]}?")
    return by_lower[name.lower()]


def parts(options: Options, nodes: Collection[str] | None = None, since_ns: int = 0) -> list[list[Ref]]:
    """Each task's journals, by names alone: of ``nodes``, and written since ``since_ns``."""

    def may_hold_rows(ref: Ref) -> bool:
        # A plain folder may be any node's, copied at any time.
        if ref.error or ref.key is None:
            return True
        since = max(file.modified_ns for file in ref.files) >= since_ns
        return since and (nodes is None or ref.key.node in nodes)

    refs = [ref for ref in journals(options.path) if may_hold_rows(ref)]
    return bins(refs, options.partition_mib * MIB, options.partition_journals)
