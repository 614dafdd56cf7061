"""Journals as arguments: only read, packed, and in the API server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ebbtide.cli.app import cli
from tests.cli.test_app import leaves
from tests.commands import Run
from tests.journals import SHUTDOWN

#: A verb's further arguments; ``OUT`` is a separate file.
OUT = "OUT"
NEEDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("journal", "pack"): ("-o", OUT),
    ("replay", "state"): ("--at", "30"),
    ("replay", "diff"): ("last", "last"),
    ("replay", "what-if"): ("--grant", "40s"),
    ("replay", "report"): ("-o", OUT),
    ("export", "jsonl"): ("-o", OUT),
    ("export", "otlp-json"): ("-o", OUT),
    ("export", "parquet"): ("-o", OUT),
    # No server listens there.
    ("export", "otlp"): ("--endpoint", "http://127.0.0.1:9", "--give-up", "0s"),
}

#: Verbs that fail here: no server receives the export.
REFUSED = {("export", "otlp"): 1}


def readers() -> Iterator[tuple[str, ...]]:
    """Every verb of a reading group that accepts a journal."""
    for group in ("journal", "replay", "export"):
        with click.Context(cli) as ctx:
            command = cli.get_command(ctx, group)
        assert isinstance(command, click.Group)
        for path in leaves(command, (group,)):
            with click.Context(command) as ctx:
                verb = command.get_command(ctx, path[1])
            assert verb is not None
            if any(param.name == "journals" for param in verb.params):
                yield path


READERS = list(readers())


def standing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that could change: names, times, permissions, bytes."""
    found = {path.name: path for path in folder.iterdir()} | {".": folder}
    return {
        name: (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for name, path in found.items()
    }


def test_all_reading_verbs_are_meant() -> None:
    """The table of arguments has only existing verbs."""
    assert set(NEEDS) <= set(READERS)


@pytest.mark.parametrize("words", [("journal", "ls"), ("replay", "blame"), ("export", "jsonl")], ids=" ".join)
def test_two_journals_where_a_verb_reads_one(run: Run, journal: Path, words: tuple[str, ...]) -> None:
    """One line names the other journal."""
    ran = run(*words, "--journal", journal, "--journal", SHUTDOWN.with_name("cancelled-v1"))
    assert (ran.code, ran.err.count("alone, without"), ran.err.count("\n")) == (0, 1, 1)
    assert run(*words, "--journal", journal, "--journal", journal).err == ""


@pytest.mark.parametrize("path", READERS, ids=" ".join)
def test_a_journal_is_only_read(run: Run, journal: Path, tmp_path: Path, path: tuple[str, ...]) -> None:
    """In a read-only directory a verb works and changes no file; a packed journal may replace a directory."""
    packed = tmp_path / "packed.zip"
    assert run("journal", "pack", "--journal", journal, "-o", packed).code == 0
    for file in journal.iterdir():
        file.chmod(0o400)
    journal.chmod(0o500)
    before = standing(journal)
    words = [str(tmp_path / "out") if word == OUT else word for word in NEEDS.get(path, ())]
    ran = run(*path, *words, "--journal", journal)
    assert ran.code == REFUSED.get(path, 0), ran.err
    assert standing(journal) == before
    os.chmod(journal, 0o700)
    if path not in REFUSED:
        words = [word.replace("/out", "/again") for word in words]
        assert run(*path, *words, "--journal", packed).code == 0


# --- in the API server, before any request


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a kubeconfig, outside a pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("words", [("journal", "show", "-f"), ("replay", "timeline", "-f")])
def test_what_is_read_once_is_not_followed(run: Run, home: Path, words: tuple[str, ...]) -> None:
    """It would wait forever."""
    asked = run(*words, "--journal", "configmaps:ebbtide/node-1")
    assert asked.code == 2
    assert "cannot be followed" in asked.err


@pytest.mark.parametrize("words", [("simulate",), ("run", "--mode", "process")])
def test_what_is_written_is_written_here(run: Run, home: Path, words: tuple[str, ...]) -> None:
    """A folder of that name would hide the journal."""
    asked = run(*words, "--journal", "configmaps:ns/n")
    assert (asked.code, asked.out, asked.err.count("\n")) == (2, "", 1)
    assert "name a directory of this machine" in asked.err
    assert not Path("configmaps:ns").exists()
