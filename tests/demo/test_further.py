"""Where the demo sends its reader next: commands that there are, and that answer on its own journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.demo.view import NEXT_COMMANDS

JOURNAL = Path(__file__).parents[1] / "golden" / "demo-v1"


@pytest.mark.parametrize("command", [command for _, command in NEXT_COMMANDS])
def test_each_of_them_answers(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is printed, on a journal that the demo has left."""
    monkeypatch.chdir(tmp_path)
    assert guarded([*command.split(), "--journal", str(JOURNAL)]) == 0


def test_the_verbs_of_the_morning_after_are_named() -> None:
    """What happened, where the time went, and a page to send."""
    named = " ".join(command for _, command in NEXT_COMMANDS)
    for verb in ("timeline", "blame", "report -o", "verify"):
        assert f"replay {verb}" in named
