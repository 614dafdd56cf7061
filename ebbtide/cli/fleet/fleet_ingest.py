"""``ebbtide fleet ingest``: the new rows of a fleet's journals, added to the tables of a lake."""

from __future__ import annotations

from collections import Counter

import click
from msgspec import Struct

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import remark, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    Engine,
    jobs_option,
    journals_option,
    journals_text,
    planned_journals,
    table_answers,
)
from ebbtide.cli.fleet.fleet_tables import RowsLine
from ebbtide.extras import require

EPILOG = """\b
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


@click.command("ingest", epilog=EPILOG)
@journals_option
@click.option(
    "--lake",
    "place",
    required=True,
    metavar="URL",
    help="A folder, or s3://BUCKET/PREFIX, gs://…, az://…, for a table each.",
)
@jobs_option
@output_option("table", "json")
def ingest_command(url: str, place: str, jobs: int | None, output: str) -> int:
    """Add finished shutdowns and outages to a lake's tables.

    Journals that are whole and unchanged are not read again. The exit code is the worst read journal's.
    """
    require("lake", "fleet ingest")
    engine = Engine(jobs=jobs)
    refs = planned_journals(url, "ingest", engine)
    from ebbtide.fleet.fleet_journals import BadUrl, StoreFailed
    from ebbtide.fleet.lake import WRITTEN, Lake

    codes, new = Counter[int](), Counter[str]()
    try:
        lake = Lake(place)
        changed = lake.new_of(refs)
        for counts in lake.add(table_answers(changed, engine, codes, settled=True)) if changed else ():
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
        remark(f"read {found.read} of {journals_text(found.journals)}; the others are unchanged")
    return worst(codes)
