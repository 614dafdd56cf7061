"""Clean up a containerd bed, also after its owner was killed.

``python -m tests.beds.containerd_cleaning FOLDER``, in the bed's mount namespace: kill the processes of the
namespace and of the cgroups named like the folder, then remove those cgroups and the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS_MAX = 300
POLL_SECONDS = 0.02


def members() -> Iterator[int]:
    """Processes of our mount namespace: containerd and its shims."""
    mine = os.readlink("/proc/self/ns/mnt")
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/mnt") == mine:
                yield int(entry)


def groups(name: str) -> list[Path]:
    return [file.parent for file in Path("/sys/fs/cgroup").glob(f"*/{name}/**/cgroup.procs")]


def kill_all(name: str) -> bool:
    """Whether anybody was there."""
    found = {*members()} - {os.getpid()}
    for group in groups(name):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def remove_groups(name: str) -> bool:
    """Whether any is left."""
    for group in sorted(groups(name), key=lambda each: len(each.parts), reverse=True):
        with contextlib.suppress(OSError):
            group.rmdir()
    return bool(groups(name))


def clean(folder: Path) -> bool:
    """Whether all of it has gone in time."""
    deadline = time.monotonic() + SECONDS_MAX
    while kill_all(folder.name) or remove_groups(folder.name):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed([each for each in mounts if each.startswith(f"{folder}/")]):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(folder, ignore_errors=True)
    return True


if __name__ == "__main__":
    sys.exit(0 if clean(Path(sys.argv[1])) else 1)
