"""``ebbtide replay blame``: pods and hooks by their time, like ``systemd-analyze blame``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import (
    NarrowTable,
    cause_lines,
    outage_lines,
    printed_lines,
    show,
    show_json,
    table,
)
from ebbtide.cli.common.selection import choose_record, episode_heading
from ebbtide.cli.common.shared_options import count_option, episode_verb, wave_option
from ebbtide.events.record.format import document
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.units import span
from ebbtide.replay.time_spent import blame, waited

EPILOG = """\b
Examples:
  ebbtide replay blame
  ebbtide replay blame -2 --wave 0 -n 10
  ebbtide replay blame --all                     # every warning and every row
  ebbtide replay blame -o json | jq '.entries[0], .episode.causes'

\b
TIME   of a hook from its start to its result; of a stop from its signal to
       the exit
ALONE  the part of TIME in which the shutdown waited for this one only: the
       time saved if it had ended with the next slowest

For an outage a line is a pod or a volume with one wait; > means that it goes on.
"""


@episode_verb("blame", EPILOG, "table", "json")
@wave_option
@count_option
@click.option("--all", "every", is_flag=True, help="Each warning by itself, and every row.")
def blame_command(
    episode: str, journals: tuple[Path, ...], wave: int | None, count: int | None, every: bool, output: str
) -> int:
    """Show the causes of a bad shutdown, the gravest first, then pods and hooks by their time.

    For an outage: pods and volumes by their waits.

    EPISODE is last (the default), -1, -2, …, or an id. It works on any readable journal, without execution.
    """
    shutdown, code = choose_record(journals, episode)
    if isinstance(shutdown, OutageRecord):
        _blame_outage(shutdown, wave, count, output, every=every)
        return code
    # An empty list would mean that the wave's pods took no time.
    if wave is not None and wave >= len(shutdown.waves):
        waves = f"0 to {len(shutdown.waves) - 1}" if shutdown.waves else "none"
        raise Refused(f"no wave {wave} in {shutdown.id}: it had {waves}")
    costs = blame(shutdown, wave=wave)[:count]
    if output == "json":
        show_json(document("Blame", BLAME_VERSION, episode=episode_heading(shutdown), entries=costs))
        return code
    causes = cause_lines(shutdown, every=every)
    show(causes)
    show("")
    if not costs:
        show("no stop is on record")
        return code
    # The causes stay in sight: the rows get the other lines.
    room = max(0, SCREEN_LINES - len(printed_lines(causes)) - FRAME_LINES)
    shown = costs if every or count is not None else costs[:room]
    rows = (
        (
            # Its end was not seen: it took at least this time.
            f"{'' if each.seen else '>'}{span(each.took_ns)}",
            span(each.alone_ns) if each.alone_ns else "-",
            "-" if each.wave is None else str(each.wave),
            each.pod,
            each.container,
            each.outcome or "unknown",
            each.text,
        )
        for each in shown
    )
    if shown:
        spare = ("CONTAINER", "WAVE")
        show(NarrowTable(HEADINGS, rows, right=("TIME", "ALONE", "WAVE"), spare=spare, wraps="WHAT"))
    if len(shown) < len(costs):
        show(f"and {len(costs) - len(shown)} more that took less: --all")
    return code


BLAME_VERSION = 2

#: A terminal has 24 lines or more. The frame: the blank line, the headings, the count of further rows, the
#: prompt.
SCREEN_LINES, FRAME_LINES = 24, 4

#: Time first, longest first, like ``systemd-analyze blame``.
HEADINGS = ("TIME", "ALONE", "WAVE", "POD", "CONTAINER", "OUTCOME", "WHAT")


OUTAGE_HEADINGS = ("TIME", "WHAT", "NAME", "OUTCOME", "WAITED FOR")


def _blame_outage(
    outage: OutageRecord, wave: int | None, count: int | None, output: str, *, every: bool
) -> None:
    if wave is not None:
        raise Refused(f"no wave {wave} in {outage.id}: an outage has none")
    found = waited(outage)[:count]
    if output == "json":
        show_json(document("Blame", BLAME_VERSION, episode=episode_heading(outage), entries=found))
        return
    lines = outage_lines(outage)
    for line in lines:
        show(line)
    show("")
    shown = found if every or count is not None else found[: SCREEN_LINES - len(lines) - FRAME_LINES]
    if shown:
        rows = (
            (f"{'' if each.seen else '>'}{span(each.took_ns)}", each.what, each.name, each.outcome, each.text)
            for each in shown
        )
        show(table(OUTAGE_HEADINGS, rows, right=("TIME",)))
    if len(shown) < len(found):
        show(f"and {len(found) - len(shown)} more that took less: --all")
    if not found:
        show("no pod or volume hung")
