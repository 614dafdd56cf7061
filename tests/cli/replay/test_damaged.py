"""The reading verbs on a torn or corrupt journal: the shutdown's end is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ebbtide.cli.replay.replay_timeline import _last_episode
from ebbtide.events.segment import header_length
from tests.commands import Run
from tests.journals import SHUTDOWN
from tests.replay.report.journals import story

#: The journal's boot is the current one: without damage the shutdown would count as running.
BOOT = "boot-1"

DOCUMENTS = {
    "ls": ("journal", "ls"),
    "blame": ("replay", "blame"),
    "critical-chain": ("replay", "critical-chain"),
    "diff": ("replay", "diff", "last", "last"),
    "state": ("replay", "state", "--at", "20"),
    "advise": ("replay", "advise"),
}


@pytest.fixture(params=["torn", "corrupt"])
def hurt(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """The golden shutdown without its end: (state, folder)."""
    monkeypatch.setattr("ebbtide.cli.common.selection.boot_id", lambda: BOOT)
    monkeypatch.setattr("ebbtide.cli.replay.replay_timeline.boot_id", lambda: BOOT)
    monkeypatch.setattr("ebbtide.actors.edges.linux.proc.boot_id", lambda: BOOT)
    journal = tmp_path / "journal"
    shutil.copytree(SHUTDOWN, journal)
    _, second, third = sorted(journal.iterdir())
    data = bytearray(second.read_bytes())
    if request.param == "torn":
        third.unlink()
        second.write_bytes(data[: len(data) * 3 // 4])
    else:
        data[len(data) * 3 // 4] ^= 1
        second.write_bytes(data)
    return str(request.param), journal


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_every_document_says_what_is_wrong_with_the_journal(
    run: Run, hurt: tuple[str, Path], verb: str
) -> None:
    """JSON has the state and its sentence too, not only standard error."""
    state, journal = hurt
    ran = run(*DOCUMENTS[verb], "--journal", journal, "-o", "json")
    assert ran.code == {"torn": 4, "corrupt": 5}[state]
    document = json.loads(ran.out)
    # In the shutdown's heading, or in the document.
    heading = document.get("episode") or document.get("a") or document
    found = heading.get("journal") or document["journals"][0]
    assert found["state"] == state
    assert found["banner"] in ran.err


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[1_000] ^= 1
    return bytes(changed)


def _of_version_2(data: bytes) -> bytes:
    """The number follows the magic; the header's last 32 bytes are its hash."""
    length = header_length(data)
    content = data[:8] + b"\x02" + data[9 : length - 32]
    return content + sha256(content).digest() + data[length:]


@pytest.mark.parametrize(("change", "code"), [(_flipped, 5), (_of_version_2, 6)])
def test_no_advice_from_what_cannot_be_read(
    run: Run, tmp_path: Path, change: Callable[[bytes], bytes], code: int
) -> None:
    """Corrupt before the first stop, or another format: the exit code is the journal's, not 1."""
    files = story()
    for name, data in files.items():
        (tmp_path / name).write_bytes(change(data) if name == min(files) or code == 6 else data)
    ran = run("replay", "advise", "--journal", tmp_path)
    assert "no advice" in ran.err
    assert ran.code == code


@pytest.mark.parametrize("words", [("replay", "state", "--at", "+1s"), ("export", "otlp-json")], ids=" ".join)
def test_a_shutdown_whose_begin_is_damaged(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The damage is reported, also where the answer needs the lost begin."""
    journal = Path(shutil.copytree(SHUTDOWN, tmp_path / "journal"))
    first = min(journal.glob("*.ebj"))
    first.write_bytes(b"?" + first.read_bytes()[1:])
    ran = run(*words, "--journal", journal)
    assert (ran.code, ran.out, ran.err.count("the journal is corrupt")) == (5, "", 1)


def test_a_shutdown_is_followed_across_a_write_under_way(run: Run, hurt: tuple[str, Path]) -> None:
    """In the current boot a torn tail may be half a write; a corrupt journal is not followed."""
    state, journal = hurt
    last = _last_episode((journal,))
    assert last is not None
    assert last.outcome == {"torn": "running", "corrupt": "truncated"}[state]
