"""What a reader of the report learns of a journal that is torn, corrupt, or another version's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide import replay
from ebbtide.replay.report.markup import verdict
from ebbtide.replay.report.page import report
from tests.journals import write_files
from tests.replay.report import journals
from tests.replay.report.journals import Files

#: Where the story's first segment is hurt: behind the begin of its second wave, before its release.
SHARE = 0.6


def torn() -> Files:
    """Its power went while it was written."""
    files = journals.story()
    first = min(files)
    return {first: files[first][: int(len(files[first]) * SHARE)]}


def corrupt() -> Files:
    """One bit is wrong in the middle of it."""
    files = journals.story()
    first = min(files)
    changed = bytearray(files[first])
    changed[int(len(changed) * SHARE)] ^= 1
    return {**files, first: bytes(changed)}


@pytest.mark.parametrize(("make", "state"), [(torn, "torn"), (corrupt, "corrupt")])
def test_the_page_says_that_the_record_is_damaged(make: Callable[[], Files], state: str) -> None:
    """A banner names the damage, the headline says that the record ends in it, nothing says "under way"."""
    account, lines = journals.told(make())
    assert account.damage is not None
    assert (account.damage.state, account.damage.here, account.outcome) == (state, True, "truncated")
    assert "record-damaged" in [notice.code for notice in account.notices]
    page = report(account, lines, journals.STARTED)
    head = page.partition("<h1>")[2].partition("</h1>")[0]
    assert "the record ends here: damaged" in head
    assert f'<p class="damage" role="note">⚠ {state}: ' in page
    assert account.damage.banner in page.replace("&#x27;", "'")
    assert "under way" not in page
    assert "the machine went down" not in page


def test_what_another_version_wrote_on_is_not_called_damaged() -> None:
    """The record can be read no further, and is whole for all that is known."""
    account, _ = journals.told(torn())
    assert account.damage is not None
    newer = replace(account, damage=replace(account.damage, state="incompatible"))
    assert verdict(newer).endswith("the record ends here: another version wrote on.")


def test_an_intact_journal_has_no_banner() -> None:
    """Nothing is said of damage where there is none."""
    assert 'class="damage"' not in journals.page(journals.story())


def test_the_library_says_it_too(tmp_path: Path) -> None:
    """``report_html`` of a shutdown that lies before the damage has the banner, and its own headline."""
    files = journals.story()
    write_files(tmp_path, files)
    (tmp_path / max(files)).write_bytes(files[max(files)][:-3])
    page = replay.report_html(replay.open(tmp_path).shutdown())
    assert 'class="damage"' in page
    assert "is complete" in page
