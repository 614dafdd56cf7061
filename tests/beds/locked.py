"""Environments for test programs: pinned by hash, made on first use, and kept."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.beds.rootfs import Unavailable, cache_folder, keep


def locked_python(lock: Path) -> Path:
    """The Python of an environment with a lock file's packages. Raises Unavailable."""
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    wanted = cache_folder() / f"{lock.stem}-{key}"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{wanted}.lock", "w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not wanted.exists():
            _install(lock, wanted)
    return wanted / "bin" / "python"


def _install(lock: Path, wanted: Path) -> None:
    # Its Python survives the final rename; its scripts do not, but no test uses them.
    building = wanted.with_suffix(".part")
    shutil.rmtree(building, ignore_errors=True)
    venv.create(building, with_pip=True)
    pip = [str(building / "bin" / "python"), "-m", "pip", "install", "-q"]
    argv = [*pip, "--require-hashes", "-r", str(lock)]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise Unavailable(f"{lock.name}: {said[-1] if said else 'failed'}") from error
    keep(building, wanted)
