"""``ebbtide export otlp-json``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.reading import journals_option
from ebbtide.cli.saving import file_option

EPILOG = """\b
Examples:
  ebbtide export otlp-json -o shutdown.json
  ebbtide export otlp-json -2 | jq '.resourceSpans[].scopeSpans[].spans[].name'

Jaeger's upload takes the file as it is, and so does the Collector's otlpjsonfile receiver.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("shutdown.json")
def otlp_json(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write the trace of a shutdown as OTLP's JSON, in one line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    from ebbtide.cli.exporting.otlp_send import write

    return write(journals, episode, output)
