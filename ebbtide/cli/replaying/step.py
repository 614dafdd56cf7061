"""``ebbtide replay step``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay step
  ebbtide replay step -2 --at 214
  printf 'kill\\nback\\nquit\\n' | ebbtide replay step
  printf 'watch shop/web-0 phase\\ncontinue\\n' | ebbtide replay step -o json | jq .changes

On a terminal a key is a command, and ? lists them; in a pipe, and on a dumb terminal, a line is one.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option("--at", type=click.IntRange(min=1), default=None, metavar="SEQ", help="Begin at this record.")
@output_option("table", "json")
def step(episode: str | None, journals: tuple[Path, ...], at: int | None, output: str) -> int:
    """Walk through a shutdown, event by event.

    Each event is shown with what led to it and with what it changed in the state of the actors. EPISODE is
    last (the default), -1, -2, …, or an id. The journal is executed again.
    """
    from ebbtide.cli.replaying.step_run import walk

    return walk(journals, episode, at, output)
