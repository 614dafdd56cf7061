"""``ebbtide replay report``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.reading import journals_option
from ebbtide.cli.saving import file_option

EPILOG = """\b
Examples:
  ebbtide replay report -o report.html
  ebbtide replay report -2 -o monday.html --journal /mnt/old/journal
  ebbtide replay report | gzip > report.html.gz
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("report.html")
def report(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Make one self-contained page of a shutdown, for any browser.

    EPISODE is last (the default), -1, -2, …, or an id. The page loads nothing and asks nobody: it can be
    sent, printed, and kept with a ticket. It holds names of pods and what stands in the journal of them.
    """
    from ebbtide.cli.replaying.report_make import make_report

    return make_report(journals, episode, output)
