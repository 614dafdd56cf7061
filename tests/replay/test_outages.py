"""What can be done with a shutdown's journal can be done with an outage's: verified, asked, redacted."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events.reader import History
from tests.conftest import Run
from tests.journals import Memory, write_files
from tests.replay import outages
from tests.replay.shutdown import Book
from tests.replay.test_redact import check

#: What the scripts call things, and sentences of ours have as well.
OWN_WORDS = ("a", "kept")
#: Worlds with several leaders, and a dry run.
SEEDS = (1, 4639, 11041)


@pytest.mark.parametrize("name", outages.SCRIPTS)
def test_what_a_script_tells_is_redacted(name: str) -> None:
    check_from_each_leader(outages.script(name))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_world_tells_is_redacted(seed: int) -> None:
    check_from_each_leader(outages.world(seed))


@pytest.mark.parametrize("name", ["outage-proof", "outage-hanging", "outage-same-boot", "outage-leaders"])
def test_a_redacted_journal_begins_anywhere(name: str) -> None:
    """Where retention took the older segments, the first checkpoint stands in the middle of an outage."""
    check_from_each_leader(outages.script(name, rotate=True), every=5)


def check_from_each_leader(book: Book, every: int = 1) -> None:
    files = list(book.files.items())
    for at in range(0, len(files), every):
        check(History([Memory(dict(files[at:]))]), OWN_WORDS)


def test_the_verbs_that_re_execute(run: Run, tmp_path: Path) -> None:
    """They know the outages' flag; what asks for a shutdown says that this is none."""
    place = write_files(tmp_path / "journal", outages.script("outage-recovered").files)
    assert run("replay", "verify", "--journal", place).code == 0
    assert "outage" in run("replay", "state", "--at", "20", "--journal", place).out
    asked = run("replay", "what-if", "--grant", "5s", "--journal", place)
    assert (asked.code, asked.out) == (2, "")
    assert "this is an outage" in asked.err
    packed = tmp_path / "one.zip"
    assert run("journal", "pack", "--redact", "-o", packed, "--journal", place).code == 0
    assert run("replay", "verify", "--journal", packed).code == 0
