"""Read /proc for every process.

``Path("/proc").glob("[0-9]*/stat")`` is unsafe: Python 3.11 stats each file and raises ProcessLookupError
when a process ends.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def each_process(file: str, proc: Path = Path("/proc")) -> dict[int, bytes]:
    """Each process's ``file`` by PID, except processes that end meanwhile."""
    found = {}
    for name in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError):
            found[int(name)] = (proc / name / file).read_bytes()
    return found
