"""``ebbtide export jsonl``, ``perfetto`` and ``parquet``: shutdowns as files for other tools.

The tables of ``parquet`` are of many journals, in memory for some thousands of rows. pyarrow is needed for
them alone, so it is an extra (``tables``) and loaded only when tables are written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.common.options import EpisodeCommand, episode_argument, journals_option, pooled_option
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import JournalPool, open_journal
from ebbtide.cli.common.records import record_json_line
from ebbtide.cli.common.saving import file_option, refuse_existing, save
from ebbtide.cli.common.selection import choose_record
from ebbtide.events.record.format import plural
from ebbtide.extras import require

if TYPE_CHECKING:
    from ebbtide.replay.tables import Table

# --- one shutdown, record by record ------------------------------------------------------------

JSONL_EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@click.command("jsonl", epilog=JSONL_EPILOG, cls=EpisodeCommand)
@episode_argument
@journals_option
@file_option("shutdown.jsonl")
def jsonl_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write the records of a shutdown or an outage as 'ebbtide journal show -o json' has them.

    One JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    shutdown, code = choose_record(journals, episode)
    # A step at a time: a journal of a year is written in as little memory as one of a day. The first record
    # may still belong to the shutdown that it closed (`events.record.episodes`).
    lines = (
        record_json_line(header, raw)
        for header, records in open_journal(journals).batches()
        for raw in records
        if shutdown.first_seq in (raw.episode, raw.seq)
    )
    save(output, lines, readable=True, example="shutdown.jsonl")
    return code


PERFETTO_EPILOG = """\b
Examples:
  ebbtide export perfetto -o shutdown.pftrace
  ebbtide export perfetto -2 --journal /mnt/old/journal -o monday.pftrace
"""


@click.command("perfetto", epilog=PERFETTO_EPILOG, cls=EpisodeCommand)
@episode_argument
@journals_option
@file_option("shutdown.pftrace")
def perfetto_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown as a trace for Perfetto's viewer (its native, binary format).

    EPISODE is last (the default), -1, -2, …, or an id. Each actor and each pod has a track; arrows lead from
    each record to those that it caused.
    """
    from ebbtide.replay.perfetto import perfetto
    from ebbtide.replay.timeline import timeline

    shutdown, code = choose_record(journals, episode)
    lines = timeline(open_journal(journals).batches(), shutdown.first_seq)
    save(output, perfetto(shutdown, lines), readable=False, example="shutdown.pftrace")
    return code


# --- tables of many shutdowns ------------------------------------------------------------------

PARQUET_EPILOG = """\b
Examples:
  ebbtide export parquet -o tables
  ebbtide export parquet --journal fleet/ -o tables
  ebbtide export parquet --journal node-a/journal --journal node-b/journal -o tables
  duckdb -c "select node, outcome, took_ms from 'tables/shutdowns.parquet'"

What the tables hold, and ten questions for them: docs/fleet.md.
"""


@click.command(epilog=PARQUET_EPILOG)
@pooled_option("--journal", "journals")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A new directory for the tables, one file each.",
)
def parquet(journals: tuple[Path, ...], output: Path) -> int:
    """Write the shutdowns of one node or of many as tables in Parquet files, for DuckDB, Spark or pandas.

    shutdowns, waves, pods, hooks, containers and notices; of journals of outages outages, outage_pods,
    outage_volumes and outage_statements.
    """
    return write_tables(journals, output)


#: Rows of one table before they are written: a row group of a Parquet file.
ROWS_MAX = 20_000


def write_tables(journals: Sequence[Path], output: Path) -> int:
    """Exit code: the worst of the journals' verdicts. Raises Refused, OSError."""
    from ebbtide.replay.tables import TABLES_OF

    refuse_existing(output, "-o")
    # Before a journal is read: that may take a minute, and would be in vain.
    require("tables", "export parquet")
    import_module("pyarrow.parquet")
    arrow = import_module("pyarrow")
    pool = JournalPool(journals)
    output.parent.mkdir(parents=True, exist_ok=True)
    # All of them under their name at once, or none: half of a fleet's tables would look like all of it.
    with tempfile.TemporaryDirectory(prefix=".ebbtide-tables.", dir=output.parent) as folder:
        made = Path(folder) / "tables"
        made.mkdir()
        with ExitStack() as stack:
            # Those of what is there, also where it tells of none yet: whoever asks finds an empty table.
            sinks = {
                kind: [stack.enter_context(TableFile(arrow, table, made)) for table in TABLES_OF[kind]]
                for kind in pool.kinds
            }
            # Each journal is read once, for all the tables.
            for told in pool.records():
                for sink in sinks[type(told)]:
                    sink.add(sink.table.rows(told))
        counts = {sink.table.name: sink.count for each in sinks.values() for sink in each}
        if output.exists():
            output.rmdir()
        made.rename(output)
    rows = ", ".join(f"{count} {name}" for name, count in counts.items())
    remark(f"wrote {output}: {rows} of {plural(len(pool), 'journal')}")
    return pool.code


class TableFile:
    """One table's file; rows are written in groups, the last ones when it is left."""

    def __init__(self, arrow: ModuleType, table: Table, folder: Path) -> None:
        self._arrow, self.table = arrow, table
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
        self._schema = arrow.schema(fields, metadata={"doc": table.text})
        self._rows: list[tuple[Any, ...]] = []
        self._path = folder / f"{table.name}.parquet"
        self.count = 0

    def __enter__(self) -> TableFile:
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
        # Also without a row: whoever reads the tables finds each of them, with its columns.
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self.table.columns)
        arrays = [
            self._arrow.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self.count += len(self._rows)
        self._rows = []
