"""No writer replaces what it reads: a slip of the hand must not cost the evidence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebbtide.cli.common.saving import SIDE_FILES
from ebbtide.events.disk import LOCK_NAME, RESERVE_NAME
from ebbtide.otel import meters as kept
from ebbtide.otel.delivery import cursor
from ebbtide.shipping import shipping_cursor as shipped
from tests.cli.bed import whole_shutdown
from tests.commands import Run

#: Every command that writes a file, up to ``-o FILE``.
WRITERS = (
    ("export", "jsonl"),
    ("export", "otlp-json"),
    ("replay", "report"),
    ("journal", "pack"),
    ("journal", "pack", "--redact"),
)
WORDS = pytest.mark.parametrize("words", WRITERS, ids="-".join)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    whole_shutdown(folder)
    for name in SIDE_FILES:
        (folder / name).write_text("its own")
    return folder


def content(*places: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for place in places
        for file in (sorted(place.iterdir()) if place.is_dir() else [place])
    }


def refused(run: Run, words: tuple[str, ...], journal: Path, output: Path, *kept: Path) -> None:
    before = content(*kept)
    ran = run(*words, "--journal", journal, "-o", output)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert "choose another name" in ran.err
    assert content(*kept) == before


@WORDS
def test_what_is_spared(run: Run, journal: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Segments, the lock, the reserve, cursors, sums, and what is being written of them; links to them; what
    looks like a segment of another journal.
    """
    (segment,) = journal.glob("*.ebj")
    for name in (segment.name, *SIDE_FILES, "metrics.part"):
        refused(run, words, journal, journal / name, journal)
    assert not (journal / "metrics.part").exists()
    (tmp_path / "soft").symlink_to(segment)
    os.link(journal / "lock", tmp_path / "hard")
    refused(run, words, journal, tmp_path / "soft", journal)
    refused(run, words, journal, tmp_path / "hard", journal)
    other = tmp_path / "copy.bin"
    other.write_bytes(segment.read_bytes())
    refused(run, words, journal, other, other)


def test_the_names_are_those_that_are_used() -> None:
    """Whoever puts another file beside the segments names it here."""
    used = (
        LOCK_NAME,
        RESERVE_NAME,
        kept.METERS_FILE_NAME,
        cursor.FILE_NAME,
        cursor.LOGS_NAME,
        cursor.LOCK_NAME,
        shipped.FILE_NAME,
        shipped.LOCK_NAME,
    )
    assert used == SIDE_FILES
