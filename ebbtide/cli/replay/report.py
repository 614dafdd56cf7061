"""``ebbtide replay report``: one self-contained page of a shutdown."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.common.options import EPISODE_NAMES, episode_argument, journals_option
from ebbtide.cli.common.reading import open_journal
from ebbtide.cli.common.saving import file_option, save
from ebbtide.cli.common.selection import choose_shutdown
from ebbtide.events.record.format import rfc3339
from ebbtide.replay.report.page import report
from ebbtide.replay.timeline import timeline

EPILOG = """\b
Examples:
  ebbtide replay report -o report.html
  ebbtide replay report -2 -o monday.html --journal /mnt/old/journal
  ebbtide replay report | gzip > report.html.gz
"""


@click.command("report", epilog=EPILOG, context_settings=EPISODE_NAMES)
@episode_argument
@journals_option
@file_option("report.html")
def report_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Make one self-contained page of a shutdown, for any browser.

    EPISODE is last (the default), -1, -2, …, or an id. The page loads nothing and asks nobody: it can be
    sent, printed, and kept with a ticket. It holds names of pods and what stands in the journal of them.
    """
    shutdown, code = choose_shutdown(journals, episode)
    lines = timeline(open_journal(journals).batches(), shutdown.first_seq)
    # The journal is read twice, once for the record and once for the lines: neither then holds it in memory.
    page = report(shutdown, lines, rfc3339(shutdown.started_wall_ns))
    save(output, [page.encode()], readable=False, example="report.html")
    return code
