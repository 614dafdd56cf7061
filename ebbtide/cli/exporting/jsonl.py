"""``ebbtide export jsonl``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.reading import journals_option
from ebbtide.cli.saving import file_option

EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("shutdown.jsonl")
def jsonl(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown's records as 'ebbtide journal show -o json' has them, one JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    from ebbtide.cli.exporting.writing import write_jsonl

    return write_jsonl(journals, episode, output)
