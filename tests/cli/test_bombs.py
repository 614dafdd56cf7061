"""Strangers' journals that fill the memory: every reader stays below its limit, and names the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.cli.common.guard import CORRUPT
from tests.bombs import BOMBS, Measured, measured, packed, segment

PEAK_MIB_MAX = 256
#: Unpacked from one MB, or a few. Without limits most of them take more than `PEAK_MIB_MAX`.
PACK_BYTES = 32_000_000
OBJECT_BYTES = 12_000_000


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@pytest.fixture
def pack(request: pytest.FixtureRequest, packs: Path) -> Path:
    path = packs / f"{request.param}.ebpack"
    return path if path.exists() else packed(path, request.param, PACK_BYTES)


def bounded(found: Measured, place: Path) -> Measured:
    assert found.peak_mib <= PEAK_MIB_MAX, f"{found.peak_mib:.0f} MiB: {found.err}"
    if "of memory" in found.err:
        assert str(place) in found.err
    assert "Traceback" not in found.err
    assert "unexpected" not in found.err
    return found


@pytest.mark.parametrize("pack", BOMBS, indirect=True)
def test_a_pack_of_a_megabyte(pack: Path) -> None:
    bounded(measured("replay", "blame", "last", "--journal", pack), pack)


@pytest.mark.parametrize("pack", ["autopsy_lines", "a_wide_checkpoint"], indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "verify"),
        ("replay", "timeline", "last"),
        ("replay", "report", "last", "-o", "page.html"),
        ("journal", "ls"),
        ("export", "parquet", "-o", "tables"),
    ],
    ids=" ".join,
)
def test_every_reader(
    pack: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bounded(measured(*words, "--journal", pack), pack)


@pytest.mark.parametrize("verb", ["verify", "tables"])
def test_a_fleet(verb: str, tmp_path: Path) -> None:
    """Each journal in a worker, of which two run. The whole ones are read."""
    for name in BOMBS:
        member, data = segment(name, OBJECT_BYTES, node=name)
        (tmp_path / "fleet" / name).mkdir(parents=True)
        (tmp_path / "fleet" / name / member).write_bytes(data)
    to = ("--to", tmp_path / "tables") if verb == "tables" else ()
    found = measured("fleet", verb, "--journals", tmp_path / "fleet", "--jobs", "2", *to)
    bounded(found, tmp_path)


def test_a_shutdown_keeps_no_more_than_a_nodes(tmp_path: Path) -> None:
    """What is beyond that is counted, and makes the list's exit code."""
    pack = packed(tmp_path / "pack", "hooks_of_one_pod", 1_000_000)
    found = measured("replay", "blame", "last", "--journal", pack, "-o", "json")
    assert found.out.count('"hook"') < 300
    told = measured("journal", "ls", "--journal", pack)
    assert told.code == CORRUPT
    assert "more than 256 of a pod: HookRecord" in told.err
