"""What /proc says of every process.

``Path("/proc").glob("[0-9]*/stat")`` is not it: in Python 3.11 it looks at each file itself, and raises
ProcessLookupError where a process ends in that moment.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def each_process(file: str, proc: Path = Path("/proc")) -> dict[int, bytes]:
    """The bytes of ``file`` of every process by its number, but for those that end meanwhile."""
    found = {}
    for name in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError):
            found[int(name)] = (proc / name / file).read_bytes()
    return found
