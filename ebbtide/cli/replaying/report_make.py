"""Making the page: one shutdown's account, the lines of its records, and what the journal's end means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actors.edges.system import boot_id
from ebbtide.cli.episodes import choose
from ebbtide.cli.events import rfc3339
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.cli.saving import save
from replay.account.fold import accounts
from replay.account.model import Account
from replay.report.page import report
from replay.timeline import timeline


def account_of(journals: Sequence[Path], name: str) -> Account:
    """The shutdown that is called so. Raises Refused, naming those that there are."""
    first_seq = choose(journals, name).first_seq
    told = accounts(open_journal(journals), boot_id=boot_id())
    return next(account for account in told if account.first_seq == first_seq)


def make_report(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, history = account_of(journals, name), open_journal(journals)
    page = report(
        account, timeline(history.batches(), account.first_seq), rfc3339(account.started_wall_ns)
    ).encode()
    save(output, [page], readable=False, example="report.html")
    return conclude(history.verdict)
