"""Writing the tables of many journals: one after the other, in memory for some thousands of rows.

pyarrow is needed for this alone, so it is an extra (``ebbtide[tables]``) and loaded here only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ebbtide.cli.guard import Refused
from ebbtide.cli.output import remark
from ebbtide.cli.pooling import Pool
from replay.account.words import plural
from replay.tables import TABLES, Table

#: Rows of one table before they are written: a row group of a Parquet file.
ROWS_MAX = 20_000


def write_tables(journals: Sequence[Path], output: Path) -> int:
    """Exit code: the worst of the journals' verdicts. Raises Refused, OSError."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise Refused(f"{output} is there already: name a new directory with -o")
    arrow = _arrow()
    pool = Pool(journals)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ebbtide-tables.", dir=output.parent) as folder:
        made = Path(folder) / "tables"
        made.mkdir()
        counts = _write(arrow, pool, made)
        if output.exists():
            output.rmdir()
        made.rename(output)
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    remark(f"wrote {output}: {told} of {plural(len(pool), 'journal')}")
    return pool.code


def _arrow() -> ModuleType:
    """Raises Refused."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise Refused("pyarrow is not installed: pip install 'ebbtide[tables]'") from error


def _write(arrow: ModuleType, pool: Pool, folder: Path) -> dict[str, int]:
    """How many rows each table has."""
    with ExitStack() as stack:
        sinks = [stack.enter_context(Sink(arrow, table, folder)) for table in TABLES]
        for account in pool.accounts():
            for sink in sinks:
                sink.add(sink.table.rows(account))
    return {sink.table.name: sink.count for sink in sinks}


class Sink:
    """One table's file; rows are written in groups, the last ones when it is left."""

    def __init__(self, arrow: ModuleType, table: Table, folder: Path) -> None:
        self._arrow, self.table = arrow, table
        self._schema = _schema(arrow, table)
        self._rows: list[tuple[Any, ...]] = []
        self._path = folder / f"{table.name}.parquet"
        self.count = 0

    def __enter__(self) -> Sink:
        self._writer = self._arrow.parquet.ParquetWriter(self._path, self._schema, compression="zstd")
        return self

    def __exit__(self, *failed: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Keep them, and write them out when there are many."""
        self._rows += rows
        if len(self._rows) >= ROWS_MAX:
            self._flush()

    def _flush(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self.table.columns)
        arrays = [
            self._arrow.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self.count += len(self._rows)
        self._rows = []


def _schema(arrow: ModuleType, table: Table) -> Any:
    types = {
        "text": arrow.string(),
        "int": arrow.int64(),
        "bool": arrow.bool_(),
        "time": arrow.timestamp("ns", tz="UTC"),
    }
    fields = [
        arrow.field(column.name, types[column.type], metadata={"doc": column.text})
        for column in table.columns
    ]
    return arrow.schema(fields, metadata={"doc": table.text})
