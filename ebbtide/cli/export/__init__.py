"""``ebbtide export``: a shutdown in the formats of other tools."""

from __future__ import annotations

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.shared_options import need_command

#: The formats by their use.
SECTIONS: dict[str, dict[str, Entry]] = {
    "To a tracing back end": {
        "otlp": Entry("export.export_otlp:otlp", "Send the trace to Jaeger, Tempo, a Collector, …"),
    },
    "To a file": {
        "jsonl": Entry(
            "export.export_files:jsonl_command", "The shutdown's records, one JSON object a line."
        ),
        "otlp-json": Entry("export.export_otlp:otlp_json", "The trace as OTLP's JSON, to upload or to keep."),
        "parquet": Entry(
            "export.export_files:parquet", "All shutdowns as tables, of one node or of a fleet."
        ),
    },
}

EPILOG = """\b
Examples:
  ebbtide export otlp --endpoint http://localhost:4318
  ebbtide export jsonl -2 --journal /mnt/old/journal | jq .type
  ebbtide export parquet --journal fleet/ -o tables

EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. No journal is changed.
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def export(ctx: click.Context) -> None:
    """Export a shutdown to other tools."""
    need_command(ctx)
