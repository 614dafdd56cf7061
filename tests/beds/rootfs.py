"""Root folders of Debian systems, built once and kept outside the tree.

Cached by their inputs: a changed package list builds anew.
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
#: The suite with soft reboots (systemd 254 and later).
SOFT_REBOOTS = "trixie"


class Unavailable(Exception):
    """The root folder is unavailable; has the reason in one line."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside a nursery's failure."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/ebbtide-tests``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ebbtide-tests"


def keep(building: Path, wanted: Path) -> None:
    """Rename only after the sync: a power cut leaves no partial result, and later tests' journals do not
    wait for gigabytes of writes.
    """
    os.sync()
    building.rename(wanted)


def rootfs(suite: str, packages: tuple[str, ...] = PACKAGES) -> Path:
    """A suite's root folder, built if missing. Read-only: tests lay a layer over it.

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
    """Parallel test runs build a folder only once."""
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
