"""``ebbtide fleet tables``: all journals of a fleet as tables in Parquet files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from ebbtide.cli.common.guard import worst
from ebbtide.cli.common.output import Heading, remark, show, show_json, struct_table
from ebbtide.cli.common.saving import new_folder, refuse_existing
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    Engine,
    engine_options,
    journals_option,
    journals_text,
    planned_journals,
    table_answers,
)

EPILOG = """\b
Examples:
  ebbtide fleet tables --journals ./fleet --to tables
  ebbtide fleet tables --journals s3://journals/v1 --to tables --jobs 8
  ebbtide fleet tables --journals ./fleet --to tables -o json | jq .rows.pods

What the tables hold, and ten questions for them: docs/fleet.md. The table journals has a row for every
journal, also for one that could not be read.
"""


class FleetTables(Struct, kw_only=True, tag_field="kind", tag="FleetTables"):
    """``rows`` by table."""

    version: int = 1
    folder: str
    rows: dict[str, int]


class RowsLine(Struct):
    table: Annotated[str, Heading("TABLE")]
    rows: Annotated[int, Heading("ROWS", right=True)]


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

    The files are the same, byte for byte, for any number of processes. The exit code is the worst journal's.
    """
    refuse_existing(folder, "--to")
    refs = planned_journals(url, "tables", engine)
    from ebbtide.fleet.fleet_rows import ALL_TABLES, JOURNALS, write_files

    codes = Counter[int]()
    with new_folder(folder) as made:
        batches = (batch for part in table_answers(refs, engine, codes) for batch in part)
        counts = write_files(batches, ALL_TABLES, made)
    if output == "json":
        show_json(FleetTables(folder=str(folder), rows=counts))
    else:
        show(struct_table([RowsLine(*each) for each in counts.items()]))
        remark(f"wrote {folder}: {len(counts)} tables of {journals_text(counts[JOURNALS.name])}")
    return worst(codes)
