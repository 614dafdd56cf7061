"""``replay report`` and ``export jsonl`` as commands: output and place."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.commands import Run
from tests.journals import GOLDEN, SHUTDOWN


def test_jsonl_is_journal_show(run: Run, request: pytest.FixtureRequest) -> None:
    """``journal show -o json``'s lines of this shutdown, as they are kept (``--rewrite`` keeps new ones)."""
    shown = run("journal", "show", "-o", "json", "--journal", SHUTDOWN).out.splitlines(keepends=True)
    listed = json.loads(run("journal", "ls", "-o", "json", "--journal", SHUTDOWN).out)
    first = listed["episodes"][-1]["firstSeq"]
    mine = [line for line in shown if first in (json.loads(line)["episode"], json.loads(line)["seq"])]
    kept, made = GOLDEN / "report" / "shutdown-v1.jsonl", run("export", "jsonl", "--journal", SHUTDOWN).out
    assert made == "".join(mine) != ""
    if request.config.getoption("--rewrite", default=False):
        kept.write_text(made, encoding="utf-8")
    assert kept.read_text(encoding="utf-8") == made


def test_an_existing_file_is_replaced_whole(replay: Run, tmp_path: Path) -> None:
    """With the umask's mode, without leftovers; an error keeps the old file."""
    path = tmp_path / "report.html"
    path.write_text("old")
    assert replay("report", "-9", "-o", path).code == 2
    assert path.read_text() == "old"
    path.unlink()
    before = os.umask(0o022)
    try:
        assert replay("report", "-o", path).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert replay("report", "-o", path).code == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
