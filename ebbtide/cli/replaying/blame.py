"""``ebbtide replay blame``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay blame
  ebbtide replay blame -2 --wave 0 -n 10
  ebbtide replay blame -o json | jq '.entries[0]'

\b
TIME   of a hook from its start to its result; of a stop from its signal to the exit that was seen
ALONE  how much of that nothing else was waited for, neither another pod of the wave nor another container
       of the same pod: what the shutdown would have saved had it ended with the next slowest
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option("--wave", type=click.IntRange(min=0), default=None, metavar="N", help="Only this wave's.")
@click.option("-n", "count", type=click.IntRange(min=1), default=None, metavar="N", help="Only so many.")
@output_option("table", "json")
def blame(
    episode: str | None, journals: tuple[Path, ...], wave: int | None, count: int | None, output: str
) -> int:
    """List pods and hooks by the time that they took.

    EPISODE is last (the default), -1, -2, …, or an id. Nothing is executed again: it works on any
    journal that can be read.
    """
    from ebbtide.cli.replaying.blame_show import show_blame

    return show_blame(journals, episode or "last", wave, count, output)
