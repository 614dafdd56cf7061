"""What is mounted for pods, from the kernel's own table: is a volume still in use on this node?

A volume that is mounted here must not be attached elsewhere, whatever the API says of its pod. What dies with
the boot anyway (memory, projected files) holds nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

#: Plugins, as the kubelet names their folders, whose volumes nobody else could use.
OWN_PLUGINS = (
    "kubernetes.io~empty-dir",
    "kubernetes.io~secret",
    "kubernetes.io~configmap",
    "kubernetes.io~projected",
    "kubernetes.io~downward-api",
)
#: Below a pod's folder: file systems, and block devices.
VOLUMES = ("volumes", "volumeDevices")
#: One container's part of a volume, mounted once more; its plugin does not stand in its path.
SUBPATHS = "volume-subpaths"
MEMORY = "tmpfs"
#: Mounts that one record names: a node has some hundred, and a record has to stay below 1 MiB.
MOUNTS_MAX = 2048
#: The kernel writes space, tab, newline and backslash as three octal digits.
ESCAPE = re.compile(r"\\([0-7]{3})")

#: A pod's UID and the volume's name, or nothing and a path below the kubelet's folder of plugins.
Mounted = tuple[str, str]


class Mount(NamedTuple):
    """One line of mountinfo (proc_pid_mountinfo(5)). ``device``: major and minor number."""

    path: PurePosixPath
    device: str
    kind: str


def parse(text: str) -> Iterator[Mount]:
    """Lines that are none are passed over. Pure."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if dash and len(fields) >= 6:
            path = ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
            yield Mount(PurePosixPath(path), fields[2], kind)


def mounted(mounts: Iterable[Mount], root: PurePosixPath) -> tuple[Mounted, ...]:
    """What is in use below the kubelet's ``root`` (``/var/lib/kubelet``), each once, in the table's order.
    At most `MOUNTS_MAX`. Pure.
    """
    table = list(mounts)
    own = _device_of(table, root)
    found = (_use(mount, root, own) for mount in table)
    return tuple(dict.fromkeys(each for each in found if each is not None))[:MOUNTS_MAX]


def _device_of(table: list[Mount], place: PurePosixPath) -> str:
    """Of the file system that a path lies on: the deepest mount above it, the last one on that place."""
    above = [mount for mount in reversed(table) if place.is_relative_to(mount.path)]
    return max(above, key=lambda mount: len(mount.path.parts)).device if above else ""


def _use(mount: Mount, root: PurePosixPath, own_device: str) -> Mounted | None:
    if not mount.path.is_relative_to(root):
        return None
    match mount.path.relative_to(root).parts:
        case ("pods", uid, folder, plugin, volume, *_) if folder in VOLUMES and plugin not in OWN_PLUGINS:
            return uid, volume
        case ("pods", uid, folder, volume, *_) if folder == SUBPATHS:
            foreign = mount.kind != MEMORY and mount.device != own_device
            return (uid, volume) if foreign else None
        case ("plugins", _, *_):
            return "", str(mount.path)
    return None


def read(table: Path, root: Path) -> tuple[Mounted, ...]:
    """From a file such as ``/proc/self/mountinfo``; a ``root`` that is a link is followed. Raises OSError."""
    text = table.read_text(errors="replace")
    return mounted(parse(text), PurePosixPath(os.path.realpath(root)))
