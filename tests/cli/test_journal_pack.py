"""``ebbtide journal pack``: one file that every reading verb takes, with names or without."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path

import pytest

from tests.cli.bed import Node, write
from tests.cli.replay.test_verify import node_after_shutdown, tamper
from tests.cli.test_journal import damage
from tests.commands import Run

NAMES = ("db-0", "shop", "node-1", "machine-1", "00000000-0000-4000-8000-000000000291")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path / "journal", node_after_shutdown().records)
    return tmp_path / "journal"


@pytest.fixture
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spoiled")


def test_one_file_for_every_reading_verb(run: Run, journal: Path, tmp_path: Path) -> None:
    """It is named like a directory, and answers the same."""
    file = tmp_path / "one.zip"
    packed = run("journal", "pack", "--journal", journal, "-o", file)
    assert (packed.code, packed.err) == (0, "")
    assert packed.out.startswith(f"{file}: 1 shutdown, records 1 to ")
    assert "names as they are" in packed.out
    for verb in (("journal", "ls"), ("journal", "show"), ("journal", "check"), ("replay", "timeline")):
        assert run(*verb, "--journal", file) == run(*verb, "--journal", journal)
    assert run("replay", "verify", "--journal", file).code == 0


def test_without_names(run: Run, journal: Path, tmp_path: Path) -> None:
    """It verifies as itself, says which journal it was made from, and nobody's name is in it."""
    file = tmp_path / "one.zip"
    packed = run("journal", "pack", "--redact", "--journal", journal, "-o", file)
    assert (packed.code, packed.err) == (0, "")
    assert "pseudonyms only" in packed.out
    document = json.loads(run("replay", "verify", "--journal", file, "-o", "json").out)
    assert document["identical"]
    shown = run("journal", "show", "--journal", file, "-o", "json").out
    assert not [name for name in NAMES if name in shown]
    with zipfile.ZipFile(file) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
        manifest = json.loads(archive.read("manifest.json"))
    assert not [name for name in NAMES if name.encode() in content]
    original = json.loads(run("journal", "ls", "--journal", journal, "-o", "json").out)
    first = json.loads(shown.splitlines()[0])["data"]["redacted"]
    assert first["journal_id"] == original["journalId"] == manifest["original"]["journalId"]
    assert list(first["trace_ids"].values()) == [original["episodes"][0]["traceId"]]


def test_one_shutdown_or_all(run: Run, tmp_path: Path) -> None:
    """A shutdown is packed with the segments that it stands in; ``--all`` takes everything."""
    node = Node()
    node.start()
    node.shut_down()
    node.cancel()
    node.shut_down()
    write(tmp_path / "journal", node.records)
    for words, count in ((("--all",), "2 shutdowns"), (("-1",), "2 shutdowns")):
        ran = run("journal", "pack", *words, "--journal", tmp_path / "journal", "-o", tmp_path / "a.zip")
        assert count in ran.out, "they stand in one segment"
    assert run("journal", "pack", "-3", "--journal", tmp_path / "journal", "-o", tmp_path / "b.zip").code == 2


def test_the_same_journal_makes_the_same_file(run: Run, journal: Path, tmp_path: Path) -> None:
    """Twice, byte for byte; only its owner can read it, and nothing else is left behind."""
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    for file in (one, two):
        assert run("journal", "pack", "--redact", "--journal", journal, "-o", file).code == 0
    assert one.read_bytes() == two.read_bytes()
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"journal", "one.zip", "two.zip"}


def test_a_torn_tail_is_told(run: Run, spoiled: Path) -> None:
    """What is intact is packed, with the banner and its code, and the copy has both."""
    damage(write(spoiled / "journal", node_after_shutdown().records), "torn")
    file = spoiled / "one.zip"
    ran = run("journal", "pack", "--redact", "--journal", spoiled / "journal", "-o", file)
    assert ran.code == 4
    assert "torn" in ran.err
    verified = run("replay", "verify", "--journal", file)
    assert verified.code == 4
    assert verified.out.startswith("identical: ")


def test_what_diverges_is_not_redacted(run: Run, spoiled: Path) -> None:
    """It cannot be made again; as it is, it can be packed."""
    records = node_after_shutdown().records
    tamper(records, "PodEnded", reason="made up")
    write(spoiled / "journal", records)
    file = spoiled / "one.zip"
    ran = run("journal", "pack", "--redact", "--journal", spoiled / "journal", "-o", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert not file.exists()
    assert run("journal", "pack", "--journal", spoiled / "journal", "-o", file).code == 0
    assert run("replay", "verify", "--journal", file).code == 3


def test_wrong_requests(run: Run, journal: Path, tmp_path: Path) -> None:
    """No file to write, a folder in its place, and a file that is no packed journal: one line each."""
    (tmp_path / "other").write_text("hello")
    for words in (
        ("journal", "pack", "--journal", journal),
        ("journal", "pack", "--journal", journal, "-o", tmp_path),
        ("journal", "pack", "--journal", journal, "-o", tmp_path / "nowhere" / "one.zip"),
        ("journal", "ls", "--journal", tmp_path / "other"),
        ("journal", "ls", "--journal", tmp_path / "nothing"),
    ):
        ran = run(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), words
