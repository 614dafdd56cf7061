"""Making the page: one shutdown's account, the lines of its records, and what the journal's end means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ebbtide.cli.episodes import choose_account
from ebbtide.cli.events import rfc3339
from ebbtide.cli.reading import open_journal
from ebbtide.cli.saving import save
from replay.report.page import report
from replay.timeline import timeline


def make_report(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = timeline(open_journal(journals).batches(), account.first_seq)
    page = report(account, lines, rfc3339(account.started_wall_ns))
    save(output, [page.encode()], readable=False, example="report.html")
    return code
