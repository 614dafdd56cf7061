"""Running a module of these tests in a process of its own: under any hash seed, by any Python that there is.

``EBBTIDE_OTHER_PYTHONS`` names other interpreters that have the locked dependencies, with colons between;
``.ci/run`` makes them where the machine has one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import WATCHDOG_SECONDS

ROOT = Path(__file__).resolve().parents[1]

OTHERS = [path for path in os.environ.get("EBBTIDE_OTHER_PYTHONS", "").split(":") if path]

#: This one first.
PYTHONS = [sys.executable, *OTHERS]


def ran(python: str, hash_seed: str, module: str, *arguments: str | Path) -> str:
    """What ``python -m module`` prints. Raises subprocess.CalledProcessError."""
    return subprocess.run(
        [python, "-m", module, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=True,
    ).stdout
