"""``ebbtide replay verify``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay verify last --journal /mnt/old/journal
  ebbtide replay verify -o json | jq .identical
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@output_option("table", "json")
def verify(episode: str | None, journals: tuple[Path, ...], output: str) -> int:
    """Feed the facts again and compare every decision, byte by byte.

    EPISODE (last, -1, -2, …, or an id) limits what is reported; all of the journal before it is executed in
    any case. Without it everything is. Exit code 3: it diverged; the first difference is explained.
    """
    from ebbtide.cli.verifying import verify_journal

    return verify_journal(journals, episode, output)
