"""``ebbtide replay critical-chain``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay critical-chain
  ebbtide replay critical-chain -2 --journal /mnt/old/journal
  ebbtide replay critical-chain -o json | jq '.segments[] | select(.what == "wave")'

\b
After "@" stands when it began, counted from the signal, after "+" how long it took. The last comes first.
The smallest parts follow each other without a gap: they add up to the total.
"""


@click.command("critical-chain", epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@output_option("table", "json")
def critical_chain(episode: str | None, journals: tuple[Path, ...], output: str) -> int:
    """Show what the total time is made of, down to what held each wave.

    EPISODE is last (the default), -1, -2, …, or an id. Nothing is executed again: it works on any
    journal that can be read.
    """
    from ebbtide.cli.replaying.critical_chain_show import show_chain

    return show_chain(journals, episode or "last", output)
