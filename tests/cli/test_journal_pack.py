"""``ebbtide journal pack``: one file for every reading verb, with or without names."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import msgspec
import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodEnded
from ebbtide.events.reader import History
from ebbtide.replay.redact import _SegmentWriter
from tests.cli.bed import write
from tests.cli.replay.test_verify import node_after_shutdown, tamper
from tests.commands import Run

NAMES = ("db-0", "shop", "node-1", "machine-1", "00000000-0000-4000-8000-000000000291")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path / "journal", node_after_shutdown().records)
    return tmp_path / "journal"


def test_one_file_for_every_reading_verb(run: Run, journal: Path, tmp_path: Path) -> None:
    """Named like a directory, with the same answers."""
    file = tmp_path / "one.zip"
    packed = run("journal", "pack", "--journal", journal, "-o", file)
    assert (packed.code, packed.err) == (0, "")
    assert packed.out.startswith(f"{file}: 1 shutdown, records 1 to ")
    assert "names as they are" in packed.out
    for verb in (("journal", "ls"), ("journal", "show"), ("journal", "check"), ("replay", "timeline")):
        assert run(*verb, "--journal", file) == run(*verb, "--journal", journal)
    assert run("replay", "verify", "--journal", file).code == 0


def test_without_names(run: Run, journal: Path, tmp_path: Path) -> None:
    """It verifies, names its original's ID, and has no names."""
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


def test_what_diverges_is_not_redacted(run: Run, spoiled: Path) -> None:
    """It cannot be remade; unredacted it can be packed."""
    records = node_after_shutdown().records
    tamper(records, "PodEnded", reason="made up")
    write(spoiled / "journal", records)
    file = spoiled / "one.zip"
    ran = run("journal", "pack", "--redact", "--journal", spoiled / "journal", "-o", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert not file.exists()
    assert run("journal", "pack", "--journal", spoiled / "journal", "-o", file).code == 0
    assert run("replay", "verify", "--journal", file).code == 3


# --- of a damaged journal

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "shutdown-v1"


@pytest.fixture
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outside the folder that every test replays."""
    return Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("damaged") / "journal"))


def spoil(folder: Path, damage: str) -> None:
    _, second, third, *_ = sorted(folder.glob("*.ebj"))
    data = bytearray(second.read_bytes())
    if damage == "a cut tail":
        third.write_bytes(third.read_bytes()[:-9])
    elif damage == "no second segment":
        second.unlink()
    else:
        data[len(data) // 2] ^= 1
        second.write_bytes(data)


DAMAGE = {"no second segment": 5, "a bit in the second": 5, "a cut tail": 4}


@pytest.mark.parametrize("how", [(), ("--all", "--redact")], ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGE)
def test_the_copy_has_the_originals_verdict(
    run: Run, fragile: Path, tmp_path_factory: pytest.TempPathFactory, damage: str, how: tuple[str, ...]
) -> None:
    """Pack exits with it and explains; the manifest has it; every verb on the copy exits with it."""
    code = DAMAGE[damage]
    spoil(fragile, damage)
    assert run("journal", "check", "--journal", fragile).code == code
    file = tmp_path_factory.mktemp("made") / "copy.zip"
    packed = run("journal", "pack", *how, "--journal", fragile, "-o", file)
    assert packed.code == code
    assert packed.err.count("\n") == 1
    state = {4: "torn", 5: "corrupt"}[code]
    assert state in packed.err
    with zipfile.ZipFile(file) as archive:
        assert json.loads(archive.read("manifest.json"))["state"] == state
    for verb in (("journal", "check"), ("replay", "verify"), ("journal", "ls")):
        ran = run(*verb, "--journal", file)
        assert ran.code == code, verb
    check = json.loads(run("journal", "check", "--journal", file, "-o", "json").out)
    intact = History([DirectorySource(fragile)])
    assert check["lastSeq"] == intact.read().end.seq
    again = file.with_name("again.zip")
    assert run("journal", "pack", "--journal", file, "-o", again).code == code
    assert run("journal", "check", "--journal", again).code == code


def test_a_copy_that_does_not_verify_gets_no_name(
    run: Run, fragile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the logic depended on a name, the copy would differ: one line, and no file."""
    record = _SegmentWriter._record

    def wrong(self: _SegmentWriter, raw: object) -> object:
        made = record(self, raw)  # type: ignore[arg-type]  # handed on as it comes
        return msgspec.structs.replace(made, cause=1) if isinstance(made.event, PodEnded) else made

    monkeypatch.setattr(_SegmentWriter, "_record", wrong)
    ran = run("journal", "pack", "--redact", "--journal", fragile, "-o", tmp_path / "copy.zip")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "nothing was packed" in ran.err
    assert list(tmp_path.iterdir()) == []
