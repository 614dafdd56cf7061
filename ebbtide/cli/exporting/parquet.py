"""``ebbtide export parquet``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.pooling import pooled_option

EPILOG = """\b
Examples:
  ebbtide export parquet -o tables
  ebbtide export parquet --journal fleet/ -o tables
  ebbtide export parquet --journal node-a/journal --journal node-b/journal -o tables
  duckdb -c "select node, outcome, took_ms from 'tables/shutdowns.parquet'"

What the tables hold, and ten questions for them: docs/fleet.md.
"""


@click.command(epilog=EPILOG)
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
    """Write the shutdowns of one node or of many as tables in Parquet files.

    shutdowns, waves, pods, hooks, containers and notices, for DuckDB, Spark or pandas.
    """
    from ebbtide.cli.exporting.tables import write_tables

    return write_tables(journals, output)
