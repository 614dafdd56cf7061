"""``ebbtide fleet tables``: all journals of a fleet as tables in Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import worst
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.saving import new_folder, refuse_existing
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    Engine,
    answers,
    engine_options,
    journals_option,
    journals_text,
    not_whole,
    plan,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ebbtide.fleet import Ref

EPILOG = """\b
Examples:
  ebbtide fleet tables --journals ./fleet --to tables
  ebbtide fleet tables --journals s3://journals/v1 --to tables --jobs 8
  ebbtide fleet tables --journals ./fleet --to tables -o json | jq .rows.pods

What the tables hold, and ten questions for them: docs/fleet.md. The table journals has a row for every
journal, also for one that could not be read.
"""


@click.command("tables", epilog=EPILOG)
@journals_option
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A new directory for the tables, one file each.",
)
@engine_options
@output_option("table", "json")
def tables_command(url: str, folder: Path, engine: Engine, output: str) -> int:
    """Write all shutdowns and outages of a fleet as tables in Parquet files, for DuckDB, Spark or pandas.

    The files are the same, byte for byte, for any number of processes. The exit code is that of the worst
    journal.
    """
    refuse_existing(folder, "--to")
    refs = plan(url, "tables", engine)
    from ebbtide.fleet import ALL_TABLES, JOURNALS_TABLE
    from ebbtide.fleet.parquet import write_files

    codes, damaged = Counter[int](), list[str]()

    def seen(found: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name, batch in found:
            if name == JOURNALS_TABLE:
                damaged.extend(not_whole(batch, codes))
            yield name, batch

    names = (*ALL_TABLES, JOURNALS_TABLE)
    with new_folder(folder) as made:
        counts = write_files(seen(_batches(refs, names, engine)), names, made)
    for text in damaged:
        remark(f"ebbtide: {text}")
    if output == "json":
        show_json({"kind": "FleetTables", "version": TABLES_VERSION, "folder": str(folder), "rows": counts})
    else:
        show(NarrowTable(("TABLE", "ROWS"), ((name, str(n)) for name, n in counts.items()), right=("ROWS",)))
        remark(f"wrote {folder}: {len(counts)} tables of {journals_text(counts[JOURNALS_TABLE])}")
    return worst(codes)


TABLES_VERSION = 1


def _batches(
    refs: Sequence[Ref], names: Sequence[str], engine: Engine
) -> Iterator[tuple[str, pa.RecordBatch]]:
    from functools import partial

    from ebbtide.fleet.pool import all_tables

    for found in answers(partial(all_tables, names), refs, engine):
        yield from found
