"""Ctrl-C ends a test run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.beds.inside import PROJECT
from tests.waiting import WATCHDOG_SECONDS

INTERRUPTED = 2
#: Ctrl-C during a test that waits beside a started process.
TESTS = """
import signal
import trio

async def test_interrupted():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

def test_next():
    print("it goes on")
"""


@pytest.mark.proof
def test_ctrl_c_ends_the_run(tmp_path: Path) -> None:
    """The test's processes end, and no other test starts."""
    (tmp_path / "test_ours.py").write_text(TESTS)
    argv = ["-m", "pytest", "-q", "-s", "-c", str(PROJECT / "pyproject.toml"), "-p", "tests.conftest"]
    ran = subprocess.run(
        [sys.executable, *argv, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
    )
    assert ran.returncode == INTERRUPTED, ran.stdout + ran.stderr
    assert "it goes on" not in ran.stdout
    assert "Ctrl-C" in ran.stdout
