"""docs/fleet.md: from zero to the first answer in the page's two commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import Run
from tests.replay.sim.columns import PAGE


def test_the_first_answer_takes_two_commands(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the page, with fewer nodes."""
    block = re.search(r"<!-- first-answer -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line, comments=True) for line in block[1].splitlines()]
    assert [words[0] for words in commands] == ["ebbtide", "ebbtide"]
    monkeypatch.chdir(tmp_path)
    for words in commands:
        ran = run(*("1..5" if word == "1..100" else word for word in words[1:]))
        assert ran.code == 0
    assert ran.out.startswith("from 5 shutdowns of 5 nodes: ")
    assert "shutdownGracePeriodByPodPriority:" in ran.out
