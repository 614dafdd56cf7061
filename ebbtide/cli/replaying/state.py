"""``ebbtide replay state``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay state --at 214
  ebbtide replay state --at +10.5s --pod shop/web-0
  ebbtide replay state -2 --at 2026-03-01T12:00:00Z --actor wave
  ebbtide replay state --at 214 --actor hook -o json
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option(
    "--at",
    required=True,
    metavar="SEQ|+TIME|TIME",
    help="After this record; or at that time since the signal of EPISODE (+3.5s); or at a time.",
)
@click.option("--actor", default="", metavar="NAME", help="Only this actor (hook, wave:0, EpisodeActor).")
@click.option("--pod", default="", metavar="POD", help="Only this pod's actor: any of its names.")
@click.option("--all", "every", is_flag=True, help="Fields at their default too.")
@output_option("table", "json")
def state(
    episode: str | None,
    journals: tuple[Path, ...],
    at: str,
    actor: str,
    pod: str,
    every: bool,
    output: str,
) -> int:
    """Show what every actor knew, after any event or at any instant.

    The journal is executed again from the nearest checkpoint. EPISODE (last, -1, -2, …, or an id) says whose
    signal a time since the signal counts from.
    """
    from ebbtide.cli.replaying.moments import parse_moment
    from ebbtide.cli.replaying.state_show import Asked, show_state
    from ebbtide.cli.replaying.timeline_show import known_actor

    asked = Asked(parse_moment(at, "--at"), known_actor(actor) if actor else "", pod, every)
    return show_state(journals, episode, asked, output)
