"""``ebbtide replay``: a journal executed again."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import need_command, output_option
from ebbtide.cli.reading import journals_option

VERIFY_EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay verify last --journal /mnt/old/journal
  ebbtide replay verify -o json | jq .identical
"""


@click.group(invoke_without_command=True)
@click.pass_context
def replay(ctx: click.Context) -> None:
    """Re-execute a journal."""
    need_command(ctx)


@replay.command(epilog=VERIFY_EPILOG, context_settings={"ignore_unknown_options": True})
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
