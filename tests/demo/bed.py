"""Running the demo as a person does: in a pipe, or on a terminal of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "demo")
#: What the demo promises.
SECONDS_MAX = 20.0


class Ran(NamedTuple):
    """How a run ended; ``seconds`` from the first to the last moment."""

    code: int
    out: str
    err: str
    seconds: float
    journal: Path


def run_demo(folder: Path, *arguments: str) -> Ran:
    """The demo in a pipe, its files under ``folder``."""
    began = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "--journal", str(folder / "journal"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began, folder / "journal")


def left_over(folder: Path) -> list[int]:
    """Processes that carry the marks of a demo in this folder."""
    needle = f"EBBTIDE_STATE={folder}".encode()
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdecimal() and needle in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found
