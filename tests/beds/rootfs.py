"""Root folders of whole Debian systems, built once and kept outside the tree.

Keyed by what went into them, so that a second run costs nothing and a change of the list builds anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("systemd", "systemd-sysv", "dbus", "libpam-systemd", "python3")
#: bookworm has systemd 252, trixie 257.
SUITES = ("bookworm", "trixie")
#: The one that knows soft reboots (systemd 254 and later).
SOFT_REBOOTS = "trixie"


class Unavailable(Exception):
    """The root folder cannot be had here; says why, in one line."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/ebbtide-tests``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ebbtide-tests"


def keep(building: Path, wanted: Path) -> None:
    """What was built gets its name when it is on the disk: a cut leaves no half of it, and writing gigabytes
    out is not left to the tests that come next, whose journals would wait for it.
    """
    os.sync()
    building.rename(wanted)


def rootfs(suite: str, packages: tuple[str, ...] = PACKAGES) -> Path:
    """The root folder of a suite, built if it is not there. Never written to: a layer goes over it.

    Raises Unavailable: no root, no mmdebstrap, no mirror.
    """
    key = hashlib.sha256("\n".join((suite, *packages)).encode()).hexdigest()[:12]
    wanted = cache_folder() / f"rootfs-{suite}-{key}"
    with alone(wanted):
        if not wanted.exists():
            _build(suite, packages, wanted)
    return wanted


@contextlib.contextmanager
def alone(wanted: Path) -> Iterator[None]:
    """Two test runs that need the same folder build it once."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{wanted}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(suite: str, packages: tuple[str, ...], wanted: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise Unavailable("needs root and mmdebstrap")
    building = Path(tempfile.mkdtemp(prefix=f"{wanted.name}.", dir=wanted.parent))
    include = ",".join(packages)
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}", suite, str(building)]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(building, ignore_errors=True)
        said = error.stderr.strip().splitlines()
        raise Unavailable(f"mmdebstrap {suite}: {said[-1] if said else 'failed'}") from error
    building.chmod(0o755)
    keep(building, wanted)
