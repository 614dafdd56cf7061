"""``ebbtide export``: a shutdown in the formats of other tools."""

from __future__ import annotations

import click

from ebbtide.cli.lazy import Entry, Lazy
from ebbtide.cli.options import need_command

#: The formats by what one does with them.
SECTIONS: dict[str, dict[str, Entry]] = {
    "To a tracing back end": {
        "otlp": Entry("exporting.otlp:otlp", "Send the trace to Jaeger, Tempo, a Collector, …"),
    },
    "To a file": {
        "perfetto": Entry("exporting.perfetto:perfetto", "A trace for Perfetto: a track an actor and a pod."),
        "jsonl": Entry("exporting.jsonl:jsonl", "The shutdown's records, one JSON object a line."),
        "otlp-json": Entry(
            "exporting.otlp_json:otlp_json", "The trace as OTLP's JSON, to upload or to keep."
        ),
        "parquet": Entry("exporting.parquet:parquet", "All shutdowns as tables, of one node or of a fleet."),
    },
}

EPILOG = """\b
Examples:
  ebbtide export otlp --endpoint http://localhost:4318
  ebbtide export perfetto -o shutdown.pftrace
  ebbtide export jsonl -2 --journal /mnt/old/journal | jq .type
  ebbtide export parquet --journal fleet/ -o tables

EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. A journal is only ever read.
"""


@click.group(cls=Lazy, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def export(ctx: click.Context) -> None:
    """Hand a shutdown to other tools."""
    need_command(ctx)
