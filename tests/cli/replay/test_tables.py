"""Tables on terminals of any width, and pasted output."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ebbtide.cli.common.guard import guarded
from tests.commands import Run
from tests.journals import SHUTDOWN

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Screen = Callable[..., list[str]]


@pytest.fixture
def screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """The command's lines on a terminal of so many columns."""

    def show(columns: int, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        ran = run(*arguments, "--journal", SHUTDOWN)
        assert ran.code == 0
        return COLOURS.sub("", ran.out).splitlines()

    return show


def test_what_is_to_paste_is_a_configuration(screen: Screen, tmp_path: Path) -> None:
    """No line wraps on a narrow terminal: pasted, it is valid and fits."""
    lines = screen(40, "replay", "advise")
    paste = lines[lines.index("to paste:") + 1 :]
    file = tmp_path / "advice.yaml"
    file.write_text("\n".join(paste) + "\n")
    assert guarded(["config", "check", "--config", str(file)]) == 0
    text = re.sub(r"\n *# ", " ", file.read_text())
    assert "as it is: 3 stops, too few to shorten it (10 are needed)" in text
    assert "InhibitDelayMaxSec=" in text


#: Each verb's unbreakable words.
WHOLE = {
    ("replay", "advise"): ("shop/stuck", "shop/web", "PRIORITY", "ADVISED", "reached"),
    ("replay", "what-if", "--grant", "6s"): ("graceful", "killed", "shop/web-0", "shop/stuck-0", "PRIORITY"),
    ("replay", "blame"): ("graceful", "killed", "shop/web-0", "shop/stuck-0", "ALONE", "SIGTERM,"),
    ("journal", "ls"): ("STARTED", "graceful,", "complete"),
}


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("verb", WHOLE)
def test_no_word_is_broken(screen: Screen, columns: int, verb: tuple[str, ...]) -> None:
    """Columns vanish or rows become blocks; names and headings stay whole."""
    lines = [line for line in screen(columns, *verb) if not line.lstrip().startswith("#")]
    words = " ".join(lines).split()
    assert set(WHOLE[verb]) <= set(words)
    assert all(len(line.rstrip()) <= columns for line in lines if "/" not in line or len(line.split()) > 1)
