"""A fleet's tables as a lake: Delta tables, by many writers, each row once. No JVM and no catalog (delta-rs).

A shutdown's rows are handed on when it is over for good, and never change again. They are merged by journal,
shutdown and place in the table, so that neither a second writer nor an ingest that was killed leaves a row
twice. ``shutdowns`` and ``outages`` come after the tables that tell of them: they are the ledger of what is
wholly there. The table ``journals`` comes last of all, and says of which journals nothing new needs reading.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os.path import abspath
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ebbtide.fleet import (
    ALL_TABLES,
    ID_BEGIN,
    JOURNALS_TABLE,
    LEDGERS,
    Ref,
    StoreFailed,
    in_a_line,
    schema,
    store_url,
    subject_of,
)

T = TypeVar("T")

#: In this order: a ledger is written when all that tell of the same are.
WRITTEN = (*(name for name in ALL_TABLES if name not in LEDGERS.values()), *LEDGERS.values(), JOURNALS_TABLE)
#: Where a row stands among those of its shutdown: two of them may be alike.
ROW = "row"
#: Held before they are merged: each merge looks through a whole table, and a row takes some hundred bytes.
ROWS_MAX = 200_000

#: Two writers of one table: the later one reads what the other wrote and tries again, a few seconds in all.
TRIES_MAX = 12
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.05, 1.0
#: On S3 a commit is an object that is put only where none of its name is (If-None-Match). Without that the
#: later of two writers would put its commit in the place of the other's, and those rows were in no table.
CONDITIONAL_PUT = "aws_conditional_put"
#: How long a store may be away before it is said: the client's own patience is three minutes a request.
CLIENT_PATIENCE = {"max_retries": "5", "retry_timeout": "20s"}
#: At a checkpoint delta-rs would delete logs of a month ago: for that nobody needs to give us a right.
LOGS_STAY = PostCommitHookProperties(cleanup_expired_logs=False)


class Lake:
    """``place``: a folder, or the URL of a store. Raises BadUrl."""

    def __init__(self, place: str) -> None:
        self._place = (store_url(place) if "://" in place else abspath(place)).rstrip("/")
        self._options: dict[str, str] = {}
        if "://" in place:
            self._options = dict(CLIENT_PATIENCE)
        if self._place.startswith(("s3://", "s3a://")):
            self._options[CONDITIONAL_PUT] = os.environ.get(CONDITIONAL_PUT.upper(), "etag")

    def new_of(self, refs: Sequence[Ref]) -> list[Ref]:
        """Those that have more than when they were read last, by their objects' number and length; and those
        of which not all could be read, for what is mended may be as long as before.
        """
        columns = ("journal_id", "segments", "bytes", "exit_code")
        found = self._read(JOURNALS_TABLE, columns)
        there = set[tuple[str, int, int]]()
        counts, lengths = Counter[str](), Counter[str]()
        for name, count, length, code in found:
            if code == 0:
                begin = name[:ID_BEGIN]
                there.add((begin, count, length))
                counts[begin] += count
                lengths[begin] += length
        # Where two ids begin alike, a `Ref` may have both.
        there |= {(begin, counts[begin], lengths[begin]) for begin in counts}
        return [ref for ref in refs if (ref.id_begin, len(ref.files), ref.bytes) not in there]

    def add(self, bins: Iterable[Sequence[tuple[str, pa.RecordBatch]]]) -> Iterator[Counter[str]]:
        """How many rows of each table were new, some bins at a time. A bin's journals are whole in it.

        Raises StoreFailed.
        """
        for name in WRITTEN:
            self._tried(name, partial(self._table, name))
        kept: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        rows = 0
        for batches in bins:
            for name, batch in batches:
                kept[name].append(batch)
                rows += batch.num_rows
            if rows >= ROWS_MAX:
                yield self._write(kept)
                kept.clear()
                rows = 0
        if rows:
            yield self._write(kept)

    def _write(self, kept: dict[str, list[pa.RecordBatch]]) -> Counter[str]:
        wrote = Counter[str]()
        known: dict[str, set[tuple[str, ...]]] = {name: set() for name in LEDGERS.values()}
        for subject, name in LEDGERS.items():
            if name in kept:
                # Of these journals only: a ledger grows for ever.
                ids = pc.unique(pa.Table.from_batches(kept[name])["journal_id"])
                known[name].update(self._read(name, ("journal_id", subject), ids))
        for name in WRITTEN:
            if name not in kept:
                continue
            data = pa.Table.from_batches(kept[name])
            if name == JOURNALS_TABLE:
                self._forget(data["journal_id"].to_pylist())
                keys, changes = ["journal_id"], True
            else:
                subject = subject_of(data.schema)
                data = _numbered(data, subject, known[LEDGERS[subject]])
                keys, changes = ["journal_id", subject, ROW], False
            if data.num_rows:
                wrote[name] = self._merge(name, data, keys, changes=changes)
        return wrote

    def _forget(self, ids: Sequence[str]) -> None:
        """Rows by the begin of an id, where the journals have their whole ids by now. Raises StoreFailed.

        Before these have their rows: what an ingest that was killed has forgotten is read again.
        """
        begun = {each[:ID_BEGIN] for each in ids}.difference(ids)
        rows = self._read(JOURNALS_TABLE, ("journal_id",), pa.array(sorted(begun), pa.string()))
        if gone := ", ".join(f"'{each}'" for (each,) in rows):

            def forgotten() -> None:
                table = self._table(JOURNALS_TABLE)
                table.delete(f"journal_id in ({gone})", post_commithook_properties=LOGS_STAY)

            self._tried(JOURNALS_TABLE, forgotten)

    def _merge(self, name: str, data: pa.Table, keys: Sequence[str], *, changes: bool) -> int:
        """Rows that were not there; with ``changes`` others become as they are now. Raises StoreFailed."""
        same = " and ".join(f"t.{key} = s.{key}" for key in keys)

        def merged() -> int:
            table = self._table(name)
            merge = table.merge(
                data,
                same,
                source_alias="s",
                target_alias="t",
                merge_schema=True,
                post_commithook_properties=LOGS_STAY,
            )
            if changes:
                there = {field.name for field in table.schema().fields}
                others = (each for each in data.schema.names if each in there)
                merge = merge.when_matched_update_all(
                    " or ".join(f"(t.{each} is distinct from s.{each})" for each in others)
                )
            done = merge.when_not_matched_insert_all().execute()
            return int(done["num_target_rows_inserted"])

        return self._tried(name, merged)

    def _table(self, name: str) -> DeltaTable:
        """As it is now; made where it is not there: who reads a lake finds each table with its columns, also
        those that nothing was ever written into.
        """
        place = f"{self._place}/{name}"
        if not DeltaTable.is_deltatable(place, self._options):
            shape = schema(name)
            if name != JOURNALS_TABLE:
                shape = shape.append(_row_field(subject_of(shape)))
            DeltaTable.create(
                place,
                schema=shape,
                mode="ignore",
                storage_options=self._options,
                post_commithook_properties=LOGS_STAY,
            )
        return DeltaTable(place, storage_options=self._options)

    def _tried(self, name: str, work: Callable[[], T]) -> T:
        """``work`` on a table, again where another writer was faster. Raises StoreFailed."""
        place = f"{self._place}/{name}"
        again = AGAIN_SECONDS
        for tries in range(1, TRIES_MAX + 1):
            try:
                return work()
            except CommitFailedError as error:
                if tries == TRIES_MAX:
                    said = f"could not be written in {TRIES_MAX} tries: {in_a_line(error)}"
                    raise StoreFailed(f"{place} {said}") from error
                # Drawn, so that two who met do not meet again.
                time.sleep(again * random.random())
                again = min(2 * again, AGAIN_SECONDS_MAX)
            except (DeltaError, OSError) as error:
                # Waiting mends none of these, and a commit may stand that only something behind it failed.
                raise StoreFailed(f"{place} could not be written: {in_a_line(error)}") from error
        raise AssertionError("unreachable")

    def _read(
        self, name: str, columns: Sequence[str], ids: pa.Array | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Only of these journals, if ``ids`` are given; of a table that is not there yet nothing.

        Raises StoreFailed.
        """
        place = f"{self._place}/{name}"
        try:
            table = DeltaTable(place, storage_options=self._options)
            for batch in table.to_pyarrow_dataset().to_batches(columns=list(columns)):
                if ids is not None:
                    batch = batch.filter(pc.is_in(batch["journal_id"], value_set=ids))
                yield from zip(*(batch[each].to_pylist() for each in columns), strict=True)
        except TableNotFoundError:
            return
        except (DeltaError, OSError) as error:
            raise StoreFailed(f"{place}: {in_a_line(error)}") from error


def _numbered(data: pa.Table, subject: str, known: set[tuple[str, ...]]) -> pa.Table:
    """Without what the ledger has; each row with its place among those of its shutdown."""
    places, counts, wanted = list[int](), Counter[tuple[str, ...]](), list[bool]()
    for key in zip(data["journal_id"].to_pylist(), data[subject].to_pylist(), strict=True):
        wanted.append(key not in known)
        places.append(counts[key])
        counts[key] += 1
    return data.append_column(_row_field(subject), pa.array(places, pa.int64())).filter(
        pa.array(wanted, pa.bool_())
    )


def _row_field(subject: str) -> pa.Field:
    return pa.field(ROW, pa.int64(), metadata={"doc": f"its place among the rows of its {subject}"})
