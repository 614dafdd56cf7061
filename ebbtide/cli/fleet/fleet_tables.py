"""``ebbtide fleet tables`` and ``ingest``: a fleet's journals as tables, in Parquet files or in a lake."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import Heading, remark, show, show_json, struct_table
from ebbtide.cli.common.saving import new_folder, refuse_existing
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet import fleet_common
from ebbtide.extras import require

TABLES_EPILOG = """\b
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


@click.command("tables", epilog=TABLES_EPILOG)
@fleet_common.journals_option
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A new directory for the tables, one file each.",
)
@fleet_common.engine_options
@output_option("table", "json")
def tables_command(url: str, folder: Path, engine: fleet_common.Engine, output: str) -> int:
    """Write all shutdowns and outages of a fleet as tables in Parquet files, for DuckDB, Spark or pandas.

    The files are the same, byte for byte, for any number of processes. The exit code is the worst journal's.
    """
    refuse_existing(folder, "--to")
    refs = fleet_common.planned_journals(url, "tables", engine)
    from ebbtide.fleet.fleet_rows import ALL_TABLES, JOURNALS, write_files

    codes = Counter[int]()
    with new_folder(folder) as made:
        batches = (batch for part in fleet_common.table_answers(refs, engine, codes) for batch in part)
        counts = write_files(batches, ALL_TABLES, made)
    if output == "json":
        show_json(FleetTables(folder=str(folder), rows=counts))
    else:
        show(struct_table([RowsLine(*each) for each in counts.items()]))
        remark(f"wrote {folder}: {len(counts)} tables of {fleet_common.journals_text(counts[JOURNALS.name])}")
    return worst(codes)


INGEST_EPILOG = """\b
Examples:
  ebbtide fleet ingest --journals ./fleet --lake ./lake
  ebbtide fleet ingest --journals s3://journals/v1 --lake s3://lake/ebbtide
  ebbtide fleet ingest --journals ./fleet --lake ./lake -o json | jq .new.pods

The tables are Delta tables, for DuckDB, Spark or pandas (docs/fleet.md). No row is added twice, however often
you run it, by several at once, and if one is killed. Credentials come from the environment.
"""


class FleetIngest(Struct, kw_only=True, tag_field="kind", tag="FleetIngest"):
    """``read``: journals that were not in the lake as they are now. ``new``: rows by table."""

    version: int = 1
    lake: str
    journals: int
    read: int
    new: dict[str, int]


@click.command("ingest", epilog=INGEST_EPILOG)
@fleet_common.journals_option
@click.option(
    "--lake",
    "place",
    required=True,
    metavar="URL",
    help="A folder, or s3://BUCKET/PREFIX, gs://…, az://…, for a table each.",
)
@fleet_common.jobs_option
@output_option("table", "json")
def ingest_command(url: str, place: str, jobs: int | None, output: str) -> int:
    """Add finished shutdowns and outages to a lake's tables.

    Journals that are whole and unchanged are not read again. The exit code is the worst read journal's.
    """
    require("lake", "fleet ingest")
    engine = fleet_common.Engine(jobs=jobs)
    refs = fleet_common.planned_journals(url, "ingest", engine)
    from ebbtide.fleet.fleet_journals import BadUrl, StoreFailed
    from ebbtide.fleet.lake import WRITTEN, Lake

    codes, new = Counter[int](), Counter[str]()
    try:
        lake = Lake(place)
        changed = lake.new_of(refs)
        for counts in (
            lake.add(fleet_common.table_answers(changed, engine, codes, settled=True)) if changed else ()
        ):
            new += counts
    except (BadUrl, StoreFailed) as error:
        raise Refused(str(error)) from None
    found = FleetIngest(
        lake=place, journals=len(refs), read=len(changed), new={name: new[name] for name in WRITTEN}
    )
    if output == "json":
        show_json(found)
    else:
        if new:
            show(struct_table([RowsLine(*each) for each in found.new.items() if each[1]]))
        remark(f"read {found.read} of {fleet_common.journals_text(found.journals)}; the others are unchanged")
    return worst(codes)
