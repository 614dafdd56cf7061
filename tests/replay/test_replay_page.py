"""docs/replay.md: every example does what the page says, and every verb and function has one."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path

import pytest

from ebbtide import replay
from ebbtide.cli.replay import SECTIONS
from tests.replay.page import PAGE, ROOT, blocks, examples, fits, perform

VERBS = [verb for section in SECTIONS.values() for verb in section]

#: What the library exports beside verbs: types, and errors.
NO_VERBS = (
    "Journal",
    "Shutdown",
    "ShutdownRecord",
    "NoJournal",
    "NoSuchShutdown",
    "WrongChange",
    "NoEvidence",
)


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    """In their order, for some use what an earlier one has made."""
    for example in examples():
        code, printed = perform(example.command, tmp_path)
        where = f"docs/replay.md:{example.line}: {example.command}"
        assert code == 0, f"{where}\n{printed}"
        if example.output:
            again = "if it is meant: python -m tests.replay.page, and read the difference"
            assert fits(printed, example.output), f"{where}\n{printed}\n{again}"


@pytest.mark.slow
def test_the_library_does_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks are one doctest, from the first to the last."""
    monkeypatch.chdir(ROOT)
    text = "".join(f"{block}\n" for _, block in blocks("python"))
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/replay.md", str(PAGE), 0)
    assert test.examples
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=told.append)
    assert not runner.failures, "".join(told)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example(verb: str) -> None:
    """Run, not only named."""
    commands = [example.command for example in examples()]
    assert any(re.search(rf"ebbtide replay {verb}\b", command) for command in commands)


@pytest.mark.parametrize("name", [name for name in replay.EXPORTS if name not in NO_VERBS])
def test_every_function_has_an_example(name: str) -> None:
    """In a Python block."""
    assert any(f"replay.{name}(" in block for _, block in blocks("python"))


def test_a_fresh_clone_is_enough() -> None:
    """The examples read journals that are in the repository, and write nothing into it."""
    before = subprocess.run(["git", "status", "--short", "tests/golden"], cwd=ROOT, capture_output=True)
    assert before.returncode == 0
    assert all("tests/golden/" in example.command or "$OUT" in example.command for example in examples())
