"""``ebbtide fleet ingest``: what is new in a fleet's journals, added to the tables of a lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    Engine,
    answers,
    jobs_option,
    journals_option,
    journals_text,
    not_whole,
    plan,
)
from ebbtide.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

EPILOG = """\b
Examples:
  ebbtide fleet ingest --journals ./fleet --lake ./lake
  ebbtide fleet ingest --journals s3://journals/v1 --lake s3://lake/ebbtide
  ebbtide fleet ingest --journals ./fleet --lake ./lake -o json | jq .new.pods

Delta tables, for DuckDB, Spark, pandas or whatever reads them (docs/fleet.md). It may be run as often as one
likes, by several at once, and killed: no row is there twice. Credentials come from the environment.
"""


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
    """Add to a lake's tables what is over for good and not in them yet.

    Journals that are whole and as they were are not read again. The exit code is that of the worst that was.
    """
    require("lake", "fleet ingest")
    engine = Engine(jobs=jobs)
    refs = plan(url, "ingest", engine)
    from functools import partial

    from ebbtide.fleet import JOURNALS_TABLE, BadUrl, StoreFailed
    from ebbtide.fleet.lake import WRITTEN, Lake
    from ebbtide.fleet.pool import all_tables

    codes, new = Counter[int](), Counter[str]()

    def seen() -> Iterator[Sequence[tuple[str, pa.RecordBatch]]]:
        for batches in answers(partial(all_tables, WRITTEN, settled=True), changed, engine):
            for name, batch in batches:
                if name == JOURNALS_TABLE:
                    for text in not_whole(batch, codes):
                        remark(f"ebbtide: {text}")
            yield batches

    try:
        lake = Lake(place)
        changed = lake.new_of(refs)
        for counts in lake.add(seen()) if changed else ():
            new += counts
    except (BadUrl, StoreFailed) as error:
        raise Refused(str(error)) from None
    if output == "json":
        rows = {name: new[name] for name in WRITTEN}
        show_json(
            {
                "kind": "FleetIngest",
                "version": INGEST_VERSION,
                "lake": place,
                "journals": len(refs),
                "read": len(changed),
                "new": rows,
            }
        )
    else:
        rows_of = ((name, str(new[name])) for name in WRITTEN if new[name])
        if new:
            show(NarrowTable(("TABLE", "NEW ROWS"), rows_of, right=("NEW ROWS",)))
        remark(f"read {len(changed)} of {journals_text(len(refs))}; the others are as they were")
    return worst(codes)


INGEST_VERSION = 1
