"""``ebbtide fleet``: the journals of many nodes, wherever they lie, asked by one machine or by a cluster."""

from __future__ import annotations

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.shared_options import need_command

#: The verbs by what one wants to know.
SECTIONS: dict[str, dict[str, Entry]] = {
    "Is it true": {
        "verify": Entry(
            "fleet.fleet_verify:verify_command", "Execute every journal again, compare every decision."
        ),
    },
    "What would have been": {
        "what-if": Entry(
            "fleet.fleet_what_if:what_if_command", "Decide all shutdowns again under other settings."
        ),
        "advise": Entry(
            "fleet.fleet_advise:advise_command", "Advise the smallest periods that save every pod."
        ),
    },
    "For others": {
        "tables": Entry("fleet.fleet_tables:tables_command", "All journals as tables in Parquet files."),
        "ingest": Entry("fleet.fleet_ingest:ingest_command", "What is new, added to the tables of a lake."),
    },
}

EPILOG = """\b
Examples:
  ebbtide fleet verify --journals ./fleet
  ebbtide fleet what-if --journals s3://journals/v1 --config new.yaml
  ebbtide fleet tables --journals gs://journals --to tables

A URL is a folder, or one of a store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX. Who we
are for it is told by the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role, never in the URL.
Journals lie at any depth below it. They are only ever read.
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def fleet(ctx: click.Context) -> None:
    """Ask the journals of many nodes, on all processors of this machine or on Spark."""
    need_command(ctx)
