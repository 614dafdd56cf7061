"""Commands as in a shell, without this machine's bus; and committed output texts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

NOWHERE = "unix:path=/nonexistent/bus"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


#: The fixture ``run``: ``run("journal", "ls", ...)``, without a process of its own.
Run = Callable[..., Ran]


def ebbtide(*arguments: str | Path, **environ: str) -> Ran:
    """The command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from ebbtide.cli import main; main()", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": NOWHERE, **environ},
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def same_as_golden(path: Path, text: str) -> None:
    """Compare with the golden file. A missing file is written and fails: read it, then commit it."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was written: read it, and run again")
    assert text == path.read_text(), f"if it is meant: remove {path}, run again, and read the new one"
