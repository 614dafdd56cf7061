"""The process edge's pods: in memory, and on disk for the daemon's next life.

An inventory is read from the table without I/O. Each running pod has one small file with its processes and
its launch specification, replaced atomically. It means nothing after a reboot, so it is not synced, and
belongs on a file system that goes with the boot. A hook must still run after its manifest has changed, and
may hold secrets, so only the owner can read the folder.
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

from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec, ProcessSpec
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.values import Pod

ContainerPhase = Literal["waiting", "running", "ended"]


class ContainerEntry:
    """One container, with its first process while it has one.

    ``child`` False: adopted after a restart, so another process gets its exit code.
    """

    __slots__ = (
        "child",
        "end",
        "ended",
        "gone",
        "group",
        "phase",
        "pid",
        "pidfd",
        "pod",
        "spec",
        "start_ticks",
    )

    def __init__(self, pod: PodEntry, spec: ContainerSpec) -> None:
        self.pod = pod
        self.spec = spec
        self.phase: ContainerPhase = "waiting"
        self.pid = 0
        self.pidfd = -1
        self.start_ticks = 0
        self.group = ""
        self.child = True
        #: It ended while no daemon ran.
        self.gone = False
        self.end = ExitStatus()
        #: Only for init containers, which are waited for.
        self.ended: trio.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.pod.pod.uid, self.spec.name)

    def begin(self, pid: int, pidfd: int, start_ticks: int) -> None:
        self.pid, self.pidfd, self.start_ticks = pid, pidfd, start_ticks
        self.phase = "running"
        self.pod.changed()

    def finish(self, end: ExitStatus) -> None:
        """Its first process has ended, or will never start."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1
        self.phase = "ended"
        self.end = end
        self.pod.changed()
        if self.ended is not None:
            self.ended.set()

    def record(self) -> ContainerRecord:
        return ContainerRecord(
            name=self.spec.name, pid=self.pid, start_ticks=self.start_ticks, group=self.group
        )


class PodEntry:
    """``containers``: those that a shutdown stops; plain init containers come and go.

    ``stopping``: a waiting container was told to stop, so no more of this pod is started. ``starting``: a
    start is under way. ``recovered``: begun by an earlier daemon, and not yet seen in a manifest.
    """

    __slots__ = (
        "_view",
        "containers",
        "init",
        "order",
        "path",
        "pod",
        "recovered",
        "spec",
        "starting",
        "stopping",
    )

    def __init__(self, pod: Pod, spec: ProcessSpec, path: str = "") -> None:
        self.pod = pod
        self.spec = spec
        self.path = path
        self.order = ""
        self.containers = {item.name: ContainerEntry(self, item) for item in spec.lasting}
        self.init: ContainerEntry | None = None
        self.starting = False
        self.stopping = False
        self.recovered = False
        self._view: Pod | None = None

    @property
    def begun(self) -> bool:
        return bool(self.order)

    @property
    def over(self) -> bool:
        """Has it begun and ended?"""
        return self.begun and all(item.phase == "ended" for item in self.containers.values())

    def changed(self) -> None:
        self._view = None

    def view(self) -> Pod:
        """For an inventory. A waiting container has to be stopped as well, so it counts as running."""
        if self._view is None:
            running = {name for name, entry in self.containers.items() if entry.phase != "ended"}
            containers = tuple(
                msgspec.structs.replace(item, running=item.name in running) for item in self.pod.containers
            )
            self._view = msgspec.structs.replace(self.pod, containers=containers)
        return self._view


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


RECORD_VERSION = 1
#: Any other UID is hashed.
PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The first process and the cgroup, if any."""

    name: str
    pid: int
    start_ticks: int
    group: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that was begun in this boot. Unlisted containers have not started, and with ``stopping`` never
    will.
    """

    version: int
    boot_id: str
    order: str
    pod: Pod
    spec: ProcessSpec
    containers: tuple[ContainerRecord, ...] = ()
    stopping: bool = False


_record_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(PodRecord)


def file_name(text: str) -> str:
    """For a UID or a container's name."""
    return text if PLAIN_FILE_NAME.fullmatch(text) else hashlib.sha256(os.fsencode(text)).hexdigest()


def output_name(uid: str, container: str) -> str:
    return f"{file_name(uid)}.{file_name(container)}"


class PodRecords:
    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def store(
        self,
        order: str,
        pod: Pod,
        spec: ProcessSpec,
        containers: tuple[ContainerRecord, ...],
        stopping: bool = False,
    ) -> None:
        """Raises OSError."""
        record = PodRecord(
            version=RECORD_VERSION,
            boot_id=self._boot_id,
            order=order,
            pod=pod,
            spec=spec,
            containers=containers,
            stopping=stopping,
        )
        write_atomically(self._folder / file_name(pod.uid), _record_encoder.encode(record))

    def load(self) -> list[PodRecord]:
        """The records of this boot, oldest first. Removes unusable files."""
        found = []
        # Without a readable folder the marks have to do.
        ages = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    ages[entry.path] = entry.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path]):
            with suppress(OSError, ValueError):  # what msgspec raises is a ValueError, and so is bad UTF-8
                record = _record_decoder.decode(read_own(Path(path)))
                # The numbers of another boot are reused, and the fields of another version may differ: the
                # marks find what runs.
                if (record.version, record.boot_id) == (RECORD_VERSION, self._boot_id):
                    found.append(record)
                    continue
            with suppress(OSError):
                os.unlink(path)
        return found

    def remove(self, uid: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / file_name(uid))
