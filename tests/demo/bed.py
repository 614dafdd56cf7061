"""Run the demo in a pipe, like a person."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

from tests.waiting import WATCHDOG_SECONDS

COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "demo")
#: The same in real time; a mode follows (`tests.demo.patient`).
PATIENT = (sys.executable, "-m", "tests.demo.patient")


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    journal: Path


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def run_demo(folder: Path, *command: str) -> Ran:
    """To its end, its files under ``folder``."""
    done = subprocess.run(
        [*command, "--journal", str(folder / "journal")],
        capture_output=True,
        text=True,
        env=_environment(folder),
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, folder / "journal")


@contextmanager
def demo_until(words: str, folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with files under ``folder``, once it printed a line with these words."""
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=_environment(folder)) as child:
        assert child.stdout is not None
        assert any(words in line for line in child.stdout)
        yield child


def left_over(folder: Path) -> list[int]:
    """A demo's pods in this folder: their environment has the folder, not the test's name."""
    ours, not_a_pod = f"TMPDIR={folder}\0".encode(), b"PYTEST_CURRENT_TEST="
    found = []
    for place in Path("/proc").iterdir():
        try:
            environ = (place / "environ").read_bytes() if place.name.isdecimal() else b""
            if ours in environ and not_a_pod not in environ:
                found.append(int(place.name))
        except OSError:
            continue
    return found
