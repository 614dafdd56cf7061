"""``replay report`` and ``export`` from the command line: what is written, where, and what never is."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
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
    """A command in this process, on the golden journal unless one is named."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")

    def call(*arguments: str | Path, journal: Path = JOURNAL) -> Ran:
        code = guarded([*map(str, arguments), "--journal", str(journal)])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return call


VERBS = (("replay", "report"), ("export", "jsonl"))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_same_to_a_file_and_to_a_pipe(run: Run, tmp_path: Path, verb: tuple[str, str]) -> None:
    """``-o`` writes what standard output would get, and says on standard error how much it was."""
    piped = run(*verb)
    assert run(*verb).out == piped.out
    written = run(*verb, "-o", tmp_path / "out")
    assert (piped.code, written.code) == (0, 0)
    assert written.out == b""
    assert (tmp_path / "out").read_bytes() == piped.out != b""
    assert written.err.startswith(f"wrote {tmp_path / 'out'}: ")
    assert run(*verb, "-o", "-").out == piped.out


def test_jsonl_is_journal_show(run: Run) -> None:
    """The lines of ``journal show -o json`` of this shutdown, byte for byte."""
    shown = run("journal", "show", "-o", "json").out.splitlines()
    episode = json.loads(run("journal", "ls", "-o", "json").out)["episodes"][-1]["firstSeq"]
    mine = [line for line in shown if episode in (json.loads(line)["episode"], json.loads(line)["seq"])]
    assert run("export", "jsonl").out.splitlines() == mine != []


def test_golden_jsonl(run: Run, request: pytest.FixtureRequest) -> None:
    """The golden shutdown's lines are what they were (``--rewrite`` as for the page's data)."""
    kept, made = GOLDEN / "report" / "shutdown-v1.jsonl", run("export", "jsonl").out
    if request.config.getoption("--rewrite", default=False):
        kept.write_bytes(made)
    assert kept.read_bytes() == made


def test_an_existing_file_is_replaced_whole(run: Run, tmp_path: Path) -> None:
    """By a file as the umask says; nothing else is left in the folder, and an error leaves the old one."""
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


def test_not_to_a_terminal() -> None:
    """What nobody can read does not fill a terminal: one line says what to do."""
    main, terminal = pty.openpty()
    program = "from ebbtide.cli import main; main()"
    with open(main, "rb", buffering=0), open(terminal, "wb", buffering=0) as screen:
        done = subprocess.run(
            [sys.executable, "-c", program, "replay", "report", "--journal", str(JOURNAL)],
            stdout=screen,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert b"name a file, -o " in done.stderr


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(run: Run, tmp_path: Path) -> None:
    """Not by the name of the file that the result is first written to; and no name is no file."""
    missing = tmp_path / "missing" / "page.html"
    ran = run("replay", "report", "-o", missing)
    assert (ran.code, ran.out) == (2, b"")
    assert f"{missing}: " in ran.err
    assert ".page.html." not in ran.err
    ran = run("replay", "report", "-o", "")
    assert (ran.code, ran.out) == (2, b"")
    assert "-o names no file: give it one, such as report.html" in ran.err
