"""What is packed of a damaged journal says that it is: no healthy-looking copy of half a shutdown."""

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
from tests.commands import Run

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "shutdown-v1-states-digest"
HOW = pytest.mark.parametrize("how", [(), ("--redact",), ("--all",), ("--all", "--redact")], ids=" ".join)


@pytest.fixture
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Away from what a test makes: what a replay finds in it is not judged behind the test's back."""
    return Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("damaged") / "journal"))


def segments(journal: Path) -> list[Path]:
    return sorted(journal.glob("*.ebj"))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def without_the_second(journal: Path) -> None:
    segments(journal)[1].unlink()


def bit_in_the_second(journal: Path) -> None:
    file = segments(journal)[1]
    flip(file, file.stat().st_size // 2)


def bit_in_the_last(journal: Path) -> None:
    file = segments(journal)[2]
    flip(file, file.stat().st_size - 40)


def cut_tail(journal: Path) -> None:
    file = segments(journal)[2]
    file.write_bytes(file.read_bytes()[:-9])


DAMAGE = {
    "no second segment": (without_the_second, 5),
    "a bit in the second": (bit_in_the_second, 5),
    "a bit in the last": (bit_in_the_last, 4),
    "a cut tail": (cut_tail, 4),
}


@HOW
@pytest.mark.parametrize("damage", DAMAGE)
def test_the_copy_has_the_originals_verdict(
    run: Run, journal: Path, tmp_path_factory: pytest.TempPathFactory, damage: str, how: tuple[str, ...]
) -> None:
    """Packing ends with it and says why; the manifest has it; every verb on the copy ends with it."""
    spoil, code = DAMAGE[damage]
    spoil(journal)
    assert run("journal", "check", "--journal", journal).code == code
    file = tmp_path_factory.mktemp("made") / "copy.zip"
    packed = run("journal", "pack", *how, "--journal", journal, "-o", file)
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
    intact = History([DirectorySource(journal)])
    assert check["lastSeq"] == intact.read().end.seq
    again = file.with_name("again.zip")
    assert run("journal", "pack", "--journal", file, "-o", again).code == code
    assert run("journal", "check", "--journal", again).code == code


def test_only_the_intact_prefix_is_packed(run: Run, journal: Path, tmp_path: Path) -> None:
    """What stands behind a gap is a part of nothing that can be told; the rest is as it was."""
    without_the_second(journal)
    file = tmp_path / "copy.zip"
    assert "records 1 to 44" in run("journal", "pack", "--journal", journal, "-o", file).out
    shown = run("journal", "show", "--journal", file)
    assert (shown.code, shown.out) == (5, run("journal", "show", "--journal", journal).out)


def test_where_the_original_lay_is_not_told(
    run: Run, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk names a path; the copy has what went wrong, and not where."""
    read, name = DirectorySource.read, segments(journal)[1].name

    def failing(self: DirectorySource, file: str, offset: int, size: int) -> bytes:
        if file == name and offset > 5000:
            raise OSError(5, "Input/output error", f"{self.location}/{file}")
        return read(self, file, offset, size)

    monkeypatch.setattr(DirectorySource, "read", failing)
    monkeypatch.setattr("ebbtide.events.reader.CHUNK_BYTES", 4096)
    file = tmp_path / "copy.zip"
    assert run("journal", "pack", "--redact", "--journal", journal, "-o", file).code == 5
    with zipfile.ZipFile(file) as archive:
        manifest = archive.read("manifest.json").decode()
    assert "cannot be read" in manifest
    assert str(journal) not in manifest


def test_a_manifest_that_says_nonsense(run: Run, journal: Path, tmp_path: Path) -> None:
    """A copy whose findings cannot be understood is none."""
    file, other = tmp_path / "copy.zip", tmp_path / "other.zip"
    assert run("journal", "pack", "--journal", journal, "-o", file).code == 0
    for findings in ([{}], [7], 7, [{"case": {"format": "odd"}, "segment": "", "offset": 0, "seq": 0}]):
        with zipfile.ZipFile(file) as archive, zipfile.ZipFile(other, "w") as made:
            manifest = {**json.loads(archive.read("manifest.json")), "findings": findings}
            made.writestr("manifest.json", json.dumps(manifest))
        ran = run("journal", "check", "--journal", other)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_a_copy_that_does_not_verify_gets_no_name(
    run: Run, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the logic ever decide by a name, the copy is not what it says: one line, and no file."""
    record = _SegmentWriter._record

    def wrong(self: _SegmentWriter, raw: object) -> object:
        made = record(self, raw)  # type: ignore[arg-type]  # handed on as it comes
        return msgspec.structs.replace(made, cause=1) if isinstance(made.event, PodEnded) else made

    monkeypatch.setattr(_SegmentWriter, "_record", wrong)
    ran = run("journal", "pack", "--redact", "--journal", journal, "-o", tmp_path / "copy.zip")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "nothing was packed" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_segment_that_may_not_be_read(run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the reader's trouble and no damage: one line with the cure, and no half an answer."""
    read, name = DirectorySource.read, segments(journal)[1].name

    def forbidden(self: DirectorySource, file: str, offset: int, size: int) -> bytes:
        if file == name:
            raise PermissionError(13, "Permission denied", f"{self.location}/{file}")
        return read(self, file, offset, size)

    monkeypatch.setattr(DirectorySource, "read", forbidden)
    for verb in (
        ("journal", "check"),
        ("journal", "ls"),
        ("replay", "verify"),
        ("replay", "advise"),
        ("export", "parquet", "-o", journal / "tables"),
        ("journal", "pack", "-o", journal / "copy.zip"),
    ):
        ran = run(*verb, "--journal", journal)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), verb
        assert f"{name}: Permission denied; use sudo" in ran.err
    assert len(list(journal.iterdir())) == 3
