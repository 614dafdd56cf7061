"""``ebbtide replay timeline``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay timeline
  ebbtide replay timeline -2 --pod shop/web-0 --all
  ebbtide replay timeline --wave 1 --since +10s --until +20s
  ebbtide replay timeline -f
  ebbtide replay timeline -2 | cut -c14- | diff - other.txt

\b
The column without a heading: < is a fact, . a decision, > an order, # bookkeeping, ? of another version,
! bad news, whatever it is.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the machine is let go, or the shutdown closed."
)
@click.option("--all", "every", is_flag=True, help="Every record, bookkeeping too.")
@click.option("--actor", default="", metavar="NAME", help="Only what this actor wrote (hook, wave, edge).")
@click.option("--pod", default="", metavar="POD", help="Only what is about this pod: any of its names.")
@click.option("--wave", type=click.IntRange(min=0), default=None, metavar="N", help="Only this wave's.")
@click.option("--since", default="", metavar="SEQ|+TIME|TIME", help="From here: 214, +3.5s, or a time.")
@click.option("--until", default="", metavar="SEQ|+TIME|TIME", help="Up to here.")
@output_option("table", "json")
def timeline(
    episode: str | None,
    journals: tuple[Path, ...],
    follow: bool,
    every: bool,
    actor: str,
    pod: str,
    wave: int | None,
    since: str,
    until: str,
    output: str,
) -> int:
    """Tell a shutdown, a line a transition.

    EPISODE is last (the default), -1, -2, …, or an id. With -f and without an EPISODE the next shutdown is
    waited for where none is running. Nothing is executed again: it works on any journal that can be read.
    """
    from ebbtide.cli.replaying.moments import parse_moment
    from ebbtide.cli.replaying.timeline_show import known_actor, show_timeline
    from replay.timeline_wanted import Wanted

    wanted = Wanted(
        actor=known_actor(actor) if actor else "",
        pod=pod,
        wave=wave,
        since=parse_moment(since, "--since") if since else None,
        until=parse_moment(until, "--until") if until else None,
        all=every,
    )
    return show_timeline(journals, episode, wanted, output, follow=follow)
