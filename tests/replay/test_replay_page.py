"""The examples of docs/replay.md and docs/notebook.md run and print their documented output; each verb and
function has one.

    python -m tests.replay.test_replay_page          # writes the page's outputs anew; read the difference

A ``console`` block has commands after ``$`` and their output. ``…`` matches anything, alone on a line any
lines. A command without output is run for its exit code. ``OUT`` is a temporary folder; commands run in the
repository's root. ``python`` blocks form one doctest.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide import replay
from ebbtide.cli.replay import SECTIONS
from tests.waiting import WATCHDOG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "replay.md"
NOTEBOOK = ROOT / "docs" / "notebook.md"

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Example(NamedTuple):
    """``line`` is where it stands on the page."""

    line: int
    command: str
    output: str


def blocks(kind: str, of: Path = PAGE) -> Iterator[tuple[int, str]]:
    """Blocks of a kind with their first lines."""
    page = of.read_text()
    for found in _BLOCK.finditer(page):
        if found[1] == kind:
            yield page.count("\n", 0, found.start()) + 2, found[2]


def examples() -> list[Example]:
    found: list[Example] = []
    for first, text in blocks("console"):
        for at, line in enumerate(text.splitlines(), first):
            if line.startswith("$ "):
                found.append(Example(at, line[2:], ""))
            else:
                found[-1] = found[-1]._replace(output=f"{found[-1].output}{line}\n")
    return found


def perform(command: str, folder: Path) -> tuple[int, str]:
    """Exit code and output, as in a shell."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "OUT": str(folder), "COLUMNS": "120", "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode().replace(str(folder), "$OUT")


def fits(printed: str, expected: str) -> bool:
    """Does it match the page, with ``…``?"""
    lines = [r"(?:.*\n)*" if line == "…" else _line(line) for line in expected.splitlines()]
    return re.fullmatch("".join(lines), printed) is not None


def _line(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…"))) + "\n"


def write() -> None:
    with tempfile.TemporaryDirectory() as name:
        for example in examples():
            _, printed = perform(example.command, Path(name))
            if example.output and not fits(printed, example.output):
                before = f"$ {example.command}\n{example.output}"
                PAGE.write_text(PAGE.read_text().replace(before, f"$ {example.command}\n{printed}"))


VERBS = [verb for section in SECTIONS.values() for verb in section]

#: Exported types and errors.
NO_VERBS = (
    "Journal",
    "Shutdown",
    "ShutdownRecord",
    "Outage",
    "OutageRecord",
    "outage_records",
    "NoJournal",
    "NoSuchShutdown",
    "WrongChange",
    "NoEvidence",
)


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    """In order: later commands use earlier outputs."""
    for example in examples():
        code, printed = perform(example.command, tmp_path)
        where = f"docs/replay.md:{example.line}: {example.command}"
        assert code == 0, f"{where}\n{printed}"
        if example.output:
            again = "if it is meant: python -m tests.replay.test_replay_page, and read the difference"
            assert fits(printed, example.output), f"{where}\n{printed}\n{again}"


@pytest.mark.parametrize(
    "page", [PAGE, pytest.param(NOTEBOOK, marks=pytest.mark.proof)], ids=lambda page: page.name
)
def test_the_library_does_what_the_page_shows(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks are one doctest."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    text = "".join(f"{block}\n" for _, block in blocks("python", page))
    test = doctest.DocTestParser().get_doctest(text, {}, f"docs/{page.name}", str(page), 0)
    assert test.examples
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=told.append)
    assert not runner.failures, "".join(told)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example(verb: str) -> None:
    commands = [example.command for example in examples()]
    assert any(re.search(rf"ebbtide replay {verb}\b", command) for command in commands)


@pytest.mark.parametrize("name", [name for name in replay.EXPORTS if name not in NO_VERBS])
def test_every_function_has_an_example(name: str) -> None:
    """In a Python block of either page."""
    texts = [block for page in (PAGE, NOTEBOOK) for _, block in blocks("python", page)]
    assert any(f"replay.{name}(" in text for text in texts)


def test_a_fresh_clone_is_enough() -> None:
    """The examples read the repository's journals and write no file there."""
    before = subprocess.run(["git", "status", "--short", "tests/golden"], cwd=ROOT, capture_output=True)
    assert before.returncode == 0
    assert all("tests/golden/" in example.command or "$OUT" in example.command for example in examples())


if __name__ == "__main__":
    write()
