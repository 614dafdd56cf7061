"""The process edge's pods: in memory, and on disk for the daemon's next life.

Each running pod has one small file with its processes and its launch specification, since a hook must still
run after its manifest has changed. It may hold secrets, so only the owner can read the folder. It means
nothing after a reboot, so it is not synced, and belongs on a file system that goes with the boot.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import trio

from ebbtide.actors.edges.linux.proc import boot_id_with_dashes
from ebbtide.actors.edges.linux.processes import ExitStatus, TreeRoot, kill_trees
from ebbtide.actors.edges.pod_spec import ContainerSpec, ProcessSpec
from ebbtide.events.facts import ContainerExited
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.values import Pod

ContainerPhase = Literal["waiting", "running", "ended"]


class ContainerEntry(msgspec.Struct, eq=False):
    """One container, with its first process while it has one.

    ``begun``: it may run, so it is in the record, at first without a process. ``child`` False: adopted after
    a restart, so another process gets its exit code. ``gone``: it ended while no daemon ran. ``ended``: for
    init containers.
    """

    pod: PodEntry
    spec: ContainerSpec
    phase: ContainerPhase = "waiting"
    pid: int = 0
    pidfd: int = -1
    start_ticks: int = 0
    group: str = ""
    begun: bool = False
    child: bool = True
    gone: bool = False
    end: ExitStatus = ExitStatus()
    ended: trio.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.pod.pod.uid, self.spec.name)

    @property
    def root(self) -> TreeRoot:
        return TreeRoot(self.pid, self.start_ticks)

    def begin(self, pid: int, pidfd: int, start_ticks: int) -> None:
        self.begun, self.pid, self.pidfd, self.start_ticks = True, pid, pidfd, start_ticks
        self.phase = "running"

    def finish(self, end: ExitStatus) -> None:
        """Its first process has ended, or will never start."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1
        self.phase = "ended"
        self.end = end
        if self.ended is not None:
            self.ended.set()

    def exited(self) -> ContainerExited:
        uid, name = self.key
        return ContainerExited(
            uid=uid, container=name, exit_code=self.end.exit_code, signal=self.end.signal, gone=self.gone
        )

    def record(self) -> ProcessRecord:
        return ProcessRecord(
            name=self.spec.name, pid=self.pid, start_ticks=self.start_ticks, group=self.group
        )


class PodEntry(msgspec.Struct, eq=False):
    """``containers``: main containers and sidecars. ``init``: the plain init container that runs now.
    ``order``: the key of the pod's start; empty: not begun.

    ``stopping``: a waiting container has got its stop, so no more of this pod starts. ``starting``: a start
    is under way. ``recovered``: an earlier daemon began it, and no manifest has named it yet.
    """

    pod: Pod
    spec: ProcessSpec
    path: str = ""
    order: str = ""
    containers: dict[str, ContainerEntry] = {}
    init: ContainerEntry | None = None
    #: Hooks that have begun, by their orders' keys.
    hooks: dict[str, ProcessRecord] = {}
    starting: bool = False
    stopping: bool = False
    recovered: bool = False

    def __post_init__(self) -> None:
        self.containers = {item.name: ContainerEntry(self, item) for item in self.spec.lasting}

    @property
    def begun(self) -> bool:
        return bool(self.order)

    @property
    def over(self) -> bool:
        """Has it begun and ended?"""
        return self.begun and all(item.phase == "ended" for item in self.containers.values())

    def view(self) -> Pod:
        """For an inventory. A waiting container has to be stopped too, so it counts as running."""
        running = {name for name, entry in self.containers.items() if entry.phase != "ended"}
        containers = tuple(
            msgspec.structs.replace(item, running=item.name in running) for item in self.pod.containers
        )
        return msgspec.structs.replace(self.pod, containers=containers)


class PodTable:
    """By UID, in the order of their discovery."""

    def __init__(self) -> None:
        self.pods: dict[str, PodEntry] = {}

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        pod = self.pods.get(uid)
        return pod.containers.get(container) if pod is not None else None

    def active(self) -> list[Pod]:
        """The pods that a shutdown has to end."""
        return [entry.view() for entry in self.pods.values() if entry.begun and not entry.over]


RECORD_VERSION = 2
#: Any other UID is hashed.
PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A first process and its cgroup, if any. ``name``: of the container; of a hook, its order's key. Number
    0: the daemon was about to start it.
    """

    name: str
    pid: int
    start_ticks: int
    group: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that was begun in this boot. Unlisted containers have not started, and with ``stopping`` never
    will. ``init``: its running init container.
    """

    version: int
    boot_id: str
    order: str
    pod: Pod
    spec: ProcessSpec
    containers: tuple[ProcessRecord, ...] = ()
    init: ProcessRecord | None = None
    hooks: tuple[ProcessRecord, ...] = ()
    stopping: bool = False


def file_name(text: str) -> str:
    """For a UID or a container's name."""
    return text if PLAIN_FILE_NAME.fullmatch(text) else hashlib.sha256(os.fsencode(text)).hexdigest()


def output_name(uid: str, container: str) -> str:
    return f"{file_name(uid)}.{file_name(container)}"


class PodRecords:
    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def store(self, entry: PodEntry) -> None:
        """Keep what runs for the daemon's next life. Raises OSError."""
        record = PodRecord(
            version=RECORD_VERSION,
            boot_id=self._boot_id,
            order=entry.order,
            pod=entry.pod,
            spec=entry.spec,
            containers=tuple(each.record() for each in entry.containers.values() if each.begun),
            init=entry.init.record() if entry.init is not None else None,
            hooks=tuple(entry.hooks.values()),
            stopping=entry.stopping,
        )
        write_atomically(self._folder / file_name(entry.pod.uid), msgspec.msgpack.encode(record))

    def load(self) -> list[PodRecord]:
        """The records of this boot, oldest first. Removes unusable files."""
        found = []
        ages = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    ages[entry.path] = entry.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path]):
            with suppress(OSError, ValueError):  # what msgspec raises is a ValueError, and so is bad UTF-8
                record = msgspec.msgpack.decode(read_own(Path(path)), type=PodRecord)
                # The numbers of another boot are reused, and the fields of another version may differ.
                if (record.version, record.boot_id) == (RECORD_VERSION, self._boot_id):
                    found.append(record)
                    continue
            with suppress(OSError):
                os.unlink(path)
        return found

    def remove(self, uid: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / file_name(uid))


def kill_recorded(folder: Path) -> None:
    """SIGKILL to all that the records of this boot in ``folder`` name, and their trees."""
    records = PodRecords(folder, boot_id_with_dashes()).load()
    kill_trees(
        [root_of(each) for record in records for each in (*record.containers, *record.hooks, record.init)]
    )


def root_of(record: ProcessRecord | None) -> TreeRoot:
    return TreeRoot() if record is None else TreeRoot(record.pid, record.start_ticks)
