"""Run a test module in a separate process: any hash seed, any installed Python.

python -m tests.pythons     # makes an environment for each other Python here; compares the bytes

``EBBTIDE_OTHER_PYTHONS`` lists their interpreters, separated by colons.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import WATCHDOG_SECONDS

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SAME_BYTES = ("tests/replay/sim/test_same_journal.py",)

OTHERS = [path for path in os.environ.get("EBBTIDE_OTHER_PYTHONS", "").split(":") if path]

#: This one first.
PYTHONS = [sys.executable, *OTHERS]


def ran(python: str, hash_seed: str, module: str, *arguments: str | Path) -> str:
    """The output of ``python -m module``. Raises subprocess.CalledProcessError."""
    return subprocess.run(
        [python, "-m", module, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=True,
    ).stdout


def _installed() -> Iterator[tuple[str, str]]:
    """Other versions on the path or in pyenv."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in VERSIONS:
        candidates = [f"python{version}", *map(str, folder.glob(f"{version}.*/bin/python"))]
        for candidate in (
            candidates if version != f"{sys.version_info.major}.{sys.version_info.minor}" else ()
        ):
            try:
                subprocess.run([candidate, "-c", "import ensurepip, venv"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            yield version, candidate
            break


def main() -> int:
    pythons = []
    for version, candidate in _installed():
        environment = ROOT / ".venv" / f"other-{version}"
        subprocess.run([candidate, "-m", "venv", environment], check=True)
        pythons.append(str(environment / "bin" / "python"))
        lock = ROOT / "requirements.lock"
        subprocess.run(
            [pythons[-1], "-m", "pip", "install", "-q", "--require-hashes", "-r", lock], check=True
        )
    if not pythons:
        print("no second Python is on this machine", file=sys.stderr)
        return 1
    environ = os.environ | {"EBBTIDE_OTHER_PYTHONS": ":".join(pythons)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *SAME_BYTES], cwd=ROOT, env=environ
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
