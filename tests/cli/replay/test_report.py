"""``replay report`` and ``export`` as commands: output, place, and refusals."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide.cli.common.guard import guarded

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
JOURNAL = GOLDEN / "shutdown-v1"


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run in this process, by default on the golden journal."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")

    def call(*arguments: str | Path, journal: Path = JOURNAL) -> Ran:
        code = guarded([*map(str, arguments), "--journal", str(journal)])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return call


def test_jsonl_is_journal_show(run: Run) -> None:
    """``journal show -o json``'s lines of this shutdown, byte for byte."""
    shown = run("journal", "show", "-o", "json").out.splitlines()
    episode = json.loads(run("journal", "ls", "-o", "json").out)["episodes"][-1]["firstSeq"]
    mine = [line for line in shown if episode in (json.loads(line)["episode"], json.loads(line)["seq"])]
    assert run("export", "jsonl").out.splitlines() == mine != []


def test_golden_jsonl(run: Run, request: pytest.FixtureRequest) -> None:
    """The golden shutdown's lines are unchanged (``--rewrite`` as for the page's data)."""
    kept, made = GOLDEN / "report" / "shutdown-v1.jsonl", run("export", "jsonl").out
    if request.config.getoption("--rewrite", default=False):
        kept.write_bytes(made)
    assert kept.read_bytes() == made


def test_an_existing_file_is_replaced_whole(run: Run, tmp_path: Path) -> None:
    """With the umask's mode, without leftovers; an error keeps the old file."""
    path = tmp_path / "report.html"
    path.write_text("old")
    assert run("replay", "report", "-9", "-o", path).code == 2
    assert path.read_text() == "old"
    path.unlink()
    before = os.umask(0o022)
    try:
        assert run("replay", "report", "-o", path).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert run("replay", "report", "-o", path).code == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
