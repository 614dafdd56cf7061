"""``ebbtide fleet``: the journals of many nodes, in any store, on one machine or on Spark."""

from __future__ import annotations

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.shared_options import need_command

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
        "ingest": Entry("fleet.fleet_tables:ingest_command", "Add new rows to the tables of a lake."),
    },
}

EPILOG = """\b
Examples:
  ebbtide fleet verify --journals ./fleet
  ebbtide fleet what-if --journals s3://journals/v1 --config new.yaml
  ebbtide fleet tables --journals gs://journals --to tables

A URL is a folder, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, with journals at any
depth. Credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role, never from the
URL. Journals are only read.
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def fleet(ctx: click.Context) -> None:
    """Ask the journals of many nodes, on all processors of this machine or on Spark."""
    need_command(ctx)
