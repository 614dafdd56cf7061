"""``ebbtide replay report``: one self-contained page of a shutdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ebbtide.cli.common.episodes import choose_account
from ebbtide.cli.common.reading import journals_option, open_journal
from ebbtide.cli.common.records import rfc3339
from ebbtide.cli.common.saving import file_option, save
from ebbtide.replay.report.page import report
from ebbtide.replay.timeline import timeline

EPILOG = """\b
Examples:
  ebbtide replay report -o report.html
  ebbtide replay report -2 -o monday.html --journal /mnt/old/journal
  ebbtide replay report | gzip > report.html.gz
"""


@click.command("report", epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("report.html")
def report_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Make one self-contained page of a shutdown, for any browser.

    EPISODE is last (the default), -1, -2, …, or an id. The page loads nothing and asks nobody: it can be
    sent, printed, and kept with a ticket. It holds names of pods and what stands in the journal of them.
    """
    return make_report(journals, episode, output)


def make_report(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = timeline(open_journal(journals).batches(), account.first_seq)
    page = report(account, lines, rfc3339(account.started_wall_ns))
    save(output, [page.encode()], readable=False, example="report.html")
    return code
