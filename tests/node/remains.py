"""What of a node is not in its namespaces: control groups, made in every tree, and folders.

Both have one name, with the process id of their owner in it, so that what a killed run could not remove is
found and removed by the next one.
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
#: Not under a folder that the node has a layer over, and short: a socket's path has 108 bytes.
BASE = Path("/tmp")
#: A new group of this tree has neither, and takes no process before it has both.
CPUSET = ("cpuset.cpus", "cpuset.mems")


def new_folder() -> Path:
    """A folder of this process for a bed. Its name is also that of the bed's groups."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir=BASE))


def trees() -> list[Path]:
    """Every tree of version 1 (and the one of version 2 beside them), or the only one of version 2."""
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return sorted(tree for tree in CGROUPS.iterdir() if (tree / "cgroup.procs").exists())


def make(name: str) -> None:
    """The group (``a/b`` makes both) in every tree, ready to take processes."""
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
    """In every tree. The kernel empties a group a moment after its last process has gone."""

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
    """Remove what the beds left whose owner was killed together with them."""
    places = [path for tree in (BASE, *trees()) for path in tree.glob(f"{PREFIX}-*")]
    for name in dict.fromkeys(path.name for path in places):
        owner = name.removeprefix(f"{PREFIX}-").split("-")[0]
        if not Path("/proc", owner).exists():
            remove(name)
            shutil.rmtree(BASE / name, ignore_errors=True)
