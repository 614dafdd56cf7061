"""What a reading command may import: nothing that writes a journal, draws a table or talks to anybody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.bed import whole_shutdown

#: The edges (but for the name of the boot), the runner, YAML, tables, and the explanation that nobody needs.
UNWANTED = (
    "trio",
    "rich",
    "yaml",
    "jeepney",
    "h11",
    "asyncio",
    "zipfile",
    "ebbtide.actors.runner",
    "ebbtide.actors.edges.linux.bus",
    "ebbtide.events.disk",
    "ebbtide.events.writer",
    "ebbtide.daemon",
    "ebbtide.config",
    "ebbtide.replay.divergence",
    "ebbtide.replay.redact",
)


@pytest.mark.parametrize(
    "words", ["replay verify", "replay verify -o json", "journal ls -o json", "journal show"]
)
def test_a_reading_command_starts_lean(tmp_path: Path, words: str) -> None:
    """Most of the time of a short command is its start, and most of that is imports."""
    whole_shutdown(tmp_path)
    arguments = [*words.split(), "--journal", str(tmp_path)]
    code = (
        f"import sys; from ebbtide.cli.common.guard import guarded; code = guarded({arguments!r});"
        "print('', *sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "ebbtide.events.reader" in imported
    assert not imported & set(UNWANTED)
