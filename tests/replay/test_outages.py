"""Verify, query and redact work on an outage's journal too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events.reader import History
from tests.conftest import Run
from tests.journals import Memory, write_files
from tests.replay import outages
from tests.replay.shutdown import Book
from tests.replay.test_redact import check

#: Script names that are also words of our sentences.
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
    """After retention the first checkpoint may be inside an outage."""
    check_from_each_leader(outages.script(name, rotate=True), every=5)


def check_from_each_leader(book: Book, every: int = 1) -> None:
    files = list(book.files.items())
    for at in range(0, len(files), every):
        check(History([Memory(dict(files[at:]))]), OWN_WORDS)


def test_the_verbs_that_re_execute(run: Run, tmp_path: Path) -> None:
    """They accept the outages' flag; shutdown verbs report that this is none."""
    place = write_files(tmp_path / "journal", outages.script("outage-recovered").files)
    assert run("replay", "verify", "--journal", place).code == 0
    assert "outage" in run("replay", "state", "--at", "20", "--journal", place).out
    asked = run("replay", "what-if", "--grant", "5s", "--journal", place)
    assert (asked.code, asked.out) == (2, "")
    assert "this is an outage" in asked.err
    packed = tmp_path / "one.zip"
    assert run("journal", "pack", "--redact", "-o", packed, "--journal", place).code == 0
    assert run("replay", "verify", "--journal", packed).code == 0
