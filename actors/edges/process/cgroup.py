"""A cgroup for each container, where one is delegated to us: then nothing a pod does can leave its tree.

Only cgroup v2 with ``cgroup.kill`` (Linux 5.14) is used, and only below a group that is ours to divide:
one that the service manager marked as delegated (``Delegate=yes``), that belongs to our own user, or the
root of a machine or container without a service manager. No controller is switched on, so pods may stand
beside the daemon in the same group.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

DELEGATE_ATTRIBUTES = ("user.delegate", "trusted.delegate")


def delegated_group(mounts: str, own: str) -> Path | None:
    """Our own cgroup v2 group in the file system, from the texts of mountinfo and ``/proc/self/cgroup``.

    None when there is no cgroup v2, or our group lies outside of what is mounted.
    """
    group = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if group is not None and kind.startswith("cgroup2 "):
            root, point = fields.split()[3:5]
            if ".." not in group and Path(group).is_relative_to(root):
                return Path(point) / Path(group).relative_to(root)
    return None


def is_delegated(group: Path) -> bool:
    """May we divide this group? See the module's text."""
    if not os.access(group, os.W_OK):
        return False
    for name in DELEGATE_ATTRIBUTES:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    is_root = not (group / "cgroup.type").exists() and not Path("/run/systemd/system").exists()
    return is_root or group.stat().st_uid == os.geteuid() != 0


class Cgroups:
    """Makes, kills and removes one group a container, below one group a state directory."""

    def __init__(self, parent: Path, state_dir: Path) -> None:
        name = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
        self.base = parent / f"ebbtide-{name}"

    @classmethod
    def detect(cls, state_dir: Path) -> Cgroups | None:
        """None where no group is delegated, or the kernel cannot kill one."""
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
            group = delegated_group(mounts, Path("/proc/self/cgroup").read_text())
        except OSError:
            return None
        if group is None or not is_delegated(group):
            return None
        found = cls(group, state_dir)
        return found if found.usable() else None

    def make(self, name: str) -> str:
        """A new group's folder; empty when the kernel refuses (a limit on groups): then do without."""
        group = self.base / name
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return str(group)

    def prune(self) -> None:
        """Take away what is empty; groups of pods that live stay. The base comes back with the next pod."""
        for group in [*self.base.glob("*/"), self.base]:
            remove_group(str(group))

    def usable(self) -> bool:
        """Can groups be made here, and killed?"""
        try:
            self.base.mkdir(exist_ok=True)
        except OSError:
            return False
        return (self.base / "cgroup.kill").exists()


def kill_group(group: str) -> bool:
    """SIGKILL to everything in it at once. False when that failed; a group that is gone is empty."""
    try:
        fd = os.open(f"{group}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        os.write(fd, b"1")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def remove_group(group: str) -> bool:
    """Take an empty group away. False while something in it still lives."""
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
