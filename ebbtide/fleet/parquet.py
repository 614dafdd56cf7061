"""Tables as Parquet files, one each, for DuckDB, Spark or pandas."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from ebbtide.fleet.fleet_rows import schema

#: Rows of a row group, so that the same rows are the same bytes.
GROUP_ROWS = 20_000


class TableFile:
    """One table's file; an empty table has its columns too."""

    def __init__(self, table: str, folder: Path) -> None:
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
        """Writes each full group."""
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
    """Writes each table; returns their numbers of rows."""
    with ExitStack() as stack:
        files = {name: stack.enter_context(TableFile(name, folder)) for name in tables}
        for name, batch in found:
            files[name].add(batch)
    return {name: file.count for name, file in files.items()}
