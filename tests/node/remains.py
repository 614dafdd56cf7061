"""A node's leftovers outside its namespaces: control groups and folders.

Their shared name has the owner's PID, so the next run removes a killed run's leftovers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from tests.waiting import until_sync

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "ebbtide-node"
#: Outside the node's overlays, and short: a socket path has 108 bytes.
BASE = Path("/tmp")
#: A new group needs both before it accepts processes.
CPUSET = ("cpuset.cpus", "cpuset.mems")


def new_folder() -> Path:
    """A bed's folder, owned by this process. Its name is also the groups' name."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=BASE))


def trees() -> list[Path]:
    """All version 1 trees with their version 2 tree, or the single version 2 tree."""
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return sorted(tree for tree in CGROUPS.iterdir() if (tree / "cgroup.procs").exists())


def make(name: str) -> None:
    """Create the group (``a/b``: both) in every tree, ready for processes."""
    for tree in trees():
        group = tree
        for part in Path(name).parts:
            group /= part
            group.mkdir(exist_ok=True)
            for file in CPUSET if tree.name == "cpuset" else ():
                (group / file).write_text((group.parent / file).read_text())


def left(name: str) -> list[Path]:
    return [tree / name for tree in trees() if (tree / name).exists()]


def remove(name: str) -> None:
    """Remove it from every tree. The kernel empties a group a moment after its last process."""

    def removed() -> bool:
        for group in left(name):
            _remove_below(group)
        return not left(name)

    until_sync(removed, f"the control groups {name} are not empty")


def _remove_below(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def sweep() -> None:
    places = [path for tree in (BASE, *trees()) for path in tree.glob(f"{PREFIX}-*")]
    for name in dict.fromkeys(path.name for path in places):
        owner = name.removeprefix(f"{PREFIX}-").split("-")[0]
        if not Path("/proc", owner).exists():
            remove(name)
            shutil.rmtree(BASE / name, ignore_errors=True)
