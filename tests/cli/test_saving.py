"""No writer replaces its input: a slip must not cost the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def content(*places: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for place in places
        for file in (sorted(place.iterdir()) if place.is_dir() else [place])
    }


def refused(run: Run, words: tuple[str, ...], journal: Path, output: Path, *kept: Path) -> None:
    before = content(*kept)
    ran = run(*words, "--journal", journal, "-o", output)
    assert (ran.code, ran.out) == (2, "")
    # An export first names the spans that it leaves out.
    assert "choose another path" in ran.err.splitlines()[-1]
    assert content(*kept) == before


@WORDS
def test_what_is_spared(run: Run, journal: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A file in the journal's folder, by any path; a segment elsewhere."""
    (segment,) = journal.glob("*.ebj")
    (journal / "lock").write_text("its own")
    (tmp_path / "soft").symlink_to(journal)
    for name in (segment.name, "lock", "metrics.part"):
        refused(run, words, journal, journal / name, journal)
        refused(run, words, journal, tmp_path / "soft" / name, journal)
    assert not (journal / "metrics.part").exists()
    other = tmp_path / "copy.bin"
    other.write_bytes(segment.read_bytes())
    refused(run, words, journal, other, other)


@WORDS
def test_a_folder_that_is_not_there(run: Run, journal: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """One message of all writers, with the path that the user named."""
    output = tmp_path / "nonexistent" / "file"
    ran = run(*words, "--journal", journal, "-o", output)
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == f"ebbtide: {output.parent}: no such folder: make it first"
