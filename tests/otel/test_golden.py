"""Golden journals export to golden bytes in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.otel import golden

ROOT = Path(__file__).parents[2]


FILES = golden.files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_bytes_of_a_golden_journal_are_those_that_were_reviewed(path: Path) -> None:
    """``python -m tests.otel.golden`` shows a necessary change; it raises the projection's version."""
    assert FILES[path] == path.read_bytes()


def test_no_process_makes_other_bytes() -> None:
    """Another hash seed, time zone or locale gives the same bytes."""
    shown = subprocess.run(
        [sys.executable, "-m", "tests.otel.golden", "--show"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "2", "TZ": "Pacific/Auckland", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.split() == [hashlib.sha256(data).hexdigest() for data in FILES.values()]
