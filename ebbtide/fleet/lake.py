"""A fleet's tables as Delta tables (delta-rs), by many writers, each row once.

Rows are merged by journal, shutdown and place, so a second writer or a killed ingest adds no row twice.
``shutdowns`` and ``outages`` are written after the other tables, and list complete subjects. ``journals`` is
last, and lists the journals that need not be read again.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os.path import abspath
from typing import Any, TypeVar

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ebbtide.fleet import fleet_rows
from ebbtide.fleet.fleet_journals import (
    ID_BEGIN,
    Ref,
    StoreFailed,
    answer_of,
    in_a_line,
    listed,
    store,
    store_url,
)
from ebbtide.fleet.fleet_rows import LEDGERS, schema

T = TypeVar("T")

_LAST = (*LEDGERS.values(), fleet_rows.JOURNALS.name)
WRITTEN = (*(name for name in fleet_rows.ALL_TABLES if name not in _LAST), *_LAST)
#: Its place among its shutdown's rows, which may be equal.
ROW = "row"
#: A node can ship another node's journal id, but not below its prefix.
OF_JOURNAL = (fleet_rows.LAKE_COLUMN.name, "node", "journal_id")
#: In one merge, which reads a whole table.
ROWS_MAX = 200_000

#: The later of two writers tries again, for a few seconds in all.
TRIES_MAX = 12
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.05, 1.0
#: If-None-Match: on S3 a later writer would otherwise replace another's commit.
CONDITIONAL_PUT = "aws_conditional_put"
#: The client's default is three minutes for each request.
CLIENT_PATIENCE = {"max_retries": "5", "retry_timeout": "20s"}
#: An ingest needs no right to delete, but delta-rs deletes old logs at a checkpoint.
LOGS_STAY = PostCommitHookProperties(cleanup_expired_logs=False)


#: Absent in a small table.
ASKED_FIRST = f"{fleet_rows.JOURNALS.name}/_delta_log/_last_checkpoint"


class Lake:
    """``place``: a folder, or the URL of a store. Raises BadUrl, StoreFailed."""

    def __init__(self, place: str) -> None:
        self._place = (store_url(place) if "://" in place else abspath(place)).rstrip("/")
        self._options: dict[str, str] = {}
        if "://" in place:
            self._options = dict(CLIENT_PATIENCE)
        if "://" in place and not place.startswith("file:"):
            # delta-rs keeps the whole body of an error. `answer_of`, which is bounded, asks first.
            next(listed(self._place), None)
            answer_of(self._place, ASKED_FIRST, self._look)
        if self._place.startswith(("s3://", "s3a://")):
            self._options[CONDITIONAL_PUT] = os.environ.get(CONDITIONAL_PUT.upper(), "etag")

    async def _look(self) -> None:
        with suppress(FileNotFoundError):
            await obstore.get_range_async(store(self._place), ASKED_FIRST, start=0, end=1)

    def new_of(self, refs: Sequence[Ref]) -> list[Ref]:
        """Journals with other objects than at their last reading, and damaged ones."""
        codes: dict[str, int] = defaultdict(int)
        # One `Ref` may have several journals.
        for fingerprint, code in self._read(
            fleet_rows.JOURNALS.name, (fleet_rows.FINGERPRINT_COLUMN.name, "exit_code")
        ):
            codes[fingerprint] |= code
        return [ref for ref in refs if codes.get(ref.fingerprint) != 0]

    def add(self, bins: Iterable[Sequence[tuple[str, pa.RecordBatch]]]) -> Iterator[Counter[str]]:
        """Each table's number of new rows, for some bins at a time. Raises StoreFailed."""
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
                # Only of these journals: a ledger grows for ever.
                ids = pc.unique(pa.Table.from_batches(kept[name])["journal_id"])
                known[name].update(self._read(name, (*OF_JOURNAL, subject), ids))
        for name in WRITTEN:
            if name not in kept:
                continue
            data = pa.Table.from_batches(kept[name])
            if name == fleet_rows.JOURNALS.name:
                # A place that cannot be read is no journal: its row would stay after its repair.
                data = data.filter(pc.greater(data["segments"], 0))
                self._forget(data["journal_id"].to_pylist())
                keys, changes = [*OF_JOURNAL], True
            else:
                subject = fleet_rows.subject_of(data.schema)
                data = _numbered(data, subject, known[LEDGERS[subject]])
                keys, changes = [*OF_JOURNAL, subject, ROW], False
            if data.num_rows:
                wrote[name] = self._merge(name, data, keys, changes=changes)
        return wrote

    def _forget(self, ids: Sequence[str]) -> None:
        """Removes rows with only eight digits of these ids. Raises StoreFailed.

        Before the new rows: after a kill in between, the next ingest reads these journals again.
        """
        begun = {each[:ID_BEGIN] for each in ids}.difference(ids)
        rows = self._read(fleet_rows.JOURNALS.name, ("journal_id",), pa.array(sorted(begun), pa.string()))
        if gone := ", ".join(f"'{each}'" for (each,) in rows):

            def forgotten() -> None:
                table = self._table(fleet_rows.JOURNALS.name)
                table.delete(f"journal_id in ({gone})", post_commithook_properties=LOGS_STAY)

            self._tried(fleet_rows.JOURNALS.name, forgotten)

    def _merge(self, name: str, data: pa.Table, keys: Sequence[str], *, changes: bool) -> int:
        """Returns the number of new rows. ``changes``: also updates others. Raises StoreFailed."""
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
        """Makes an absent one, with its columns."""
        place = f"{self._place}/{name}"
        if not DeltaTable.is_deltatable(place, self._options):
            shape = schema(name, lake=True)
            if name != fleet_rows.JOURNALS.name:
                shape = shape.append(_row_field(fleet_rows.subject_of(shape)))
            DeltaTable.create(
                place,
                schema=shape,
                mode="ignore",
                storage_options=self._options,
                post_commithook_properties=LOGS_STAY,
            )
        return DeltaTable(place, storage_options=self._options)

    def _tried(self, name: str, work: Callable[[], T]) -> T:
        """Again if another writer was faster. Raises StoreFailed."""
        place = f"{self._place}/{name}"
        again = AGAIN_SECONDS
        for tries in range(1, TRIES_MAX + 1):
            try:
                return work()
            except CommitFailedError as error:
                if tries == TRIES_MAX:
                    said = f"could not be written in {TRIES_MAX} tries: {in_a_line(error)}"
                    raise StoreFailed(f"{place} {said}") from error
                # Random: two writers do not collide again.
                time.sleep(again * random.random())
                again = min(2 * again, AGAIN_SECONDS_MAX)
            except (DeltaError, OSError) as error:
                # No second try: the commit may have succeeded.
                raise StoreFailed(f"{place} could not be written: {in_a_line(error)}") from error
        raise AssertionError("unreachable")

    def _read(
        self, name: str, columns: Sequence[str], ids: pa.Array | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Of these journals, or of all. Raises StoreFailed."""
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
    """Rows that are not in the ledger, with their places."""
    places, counts, wanted = list[int](), Counter[tuple[str, ...]](), list[bool]()
    for key in zip(*(data[each].to_pylist() for each in (*OF_JOURNAL, subject)), strict=True):
        wanted.append(key not in known)
        places.append(counts[key])
        counts[key] += 1
    return data.append_column(_row_field(subject), pa.array(places, pa.int64())).filter(
        pa.array(wanted, pa.bool_())
    )


def _row_field(subject: str) -> pa.Field:
    return pa.field(ROW, pa.int64(), metadata={"doc": f"its place among the rows of its {subject}"})
