"""The pods that this edge knows: warm in memory, and kept on disk for the daemon's next life.

An inventory is read from the table without any I/O.

Kept on disk is which processes a running pod has, and how it was launched: one small file a pod, replaced
atomically. It means nothing after a reboot, so it is not synced, and the folder belongs on a file system
that goes with the boot. It holds the launch specification (a hook must still run when the manifest has
changed), so the folder is readable for its owner only.
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
    """One container: its first process, while it has one.

    ``child`` False: adopted after a restart, somebody else reads its exit code.
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
        #: Made only where somebody waits: init containers.
        self.ended: trio.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.pod.pod.uid, self.spec.name)

    def begin(self, pid: int, pidfd: int, start_ticks: int) -> None:
        self.pid, self.pidfd, self.start_ticks = pid, pidfd, start_ticks
        self.phase = "running"
        self.pod.changed()

    def finish(self, end: ExitStatus) -> None:
        """Its first process has ended, or it will never be started."""
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
    """One pod. ``containers`` are those that a shutdown stops; plain init containers come and go.

    ``stopping``: somebody asked for the end of a container that was not started yet, so nothing more of
    this pod is started. ``starting``: a start is under way. ``recovered``: begun by an earlier daemon, and
    not yet met in a manifest.
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
        """Was it begun, and is nothing of it left to stop?"""
        return self.begun and all(item.phase == "ended" for item in self.containers.values())

    def changed(self) -> None:
        self._view = None

    def view(self) -> Pod:
        """The pod as an inventory shows it: a container that is still to be started has to be stopped
        as well, so it counts as running.
        """
        if self._view is None:
            running = {name for name, entry in self.containers.items() if entry.phase != "ended"}
            containers = tuple(
                msgspec.structs.replace(item, running=item.name in running) for item in self.pod.containers
            )
            self._view = msgspec.structs.replace(self.pod, containers=containers)
        return self._view


class PodTable:
    """Every pod by UID, in the order in which they became known."""

    def __init__(self) -> None:
        self.pods: dict[str, PodEntry] = {}

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        pod = self.pods.get(uid)
        return pod.containers.get(container) if pod is not None else None

    def active(self) -> list[Pod]:
        """The pods that a shutdown has to end: begun, and not over (the reference lists active pods only)."""
        return [entry.view() for entry in self.pods.values() if entry.begun and not entry.over]


RECORD_VERSION = 1
#: A UID that is fit to be a file name stays readable; any other is hashed.
PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The first process of a container, and its cgroup where it has one."""

    name: str
    pid: int
    start_ticks: int
    group: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that was begun in this boot. Containers that are not listed were not started yet, and never
    will be when it was told to stop (``stopping``).
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
    """A file name for a UID or a container's name."""
    return text if PLAIN_FILE_NAME.fullmatch(text) else hashlib.sha256(os.fsencode(text)).hexdigest()


def output_name(uid: str, container: str) -> str:
    """The name of a container's output file."""
    return f"{file_name(uid)}.{file_name(container)}"


class PodRecords:
    """The records of one state directory."""

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
        """Every record of this boot, oldest first; what cannot be used is removed."""
        found = []
        # The paths of a folder's files, oldest first; none where it cannot be read: then marks must do.
        ages = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    ages[entry.path] = entry.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path]):
            with suppress(OSError, ValueError):  # what msgspec raises is a ValueError, and so is bad UTF-8
                record = _record_decoder.decode(read_own(Path(path)))
                # Of another boot the numbers are others' by now; of another version the fields may mean
                # something else, and the marks find what runs.
                if (record.version, record.boot_id) == (RECORD_VERSION, self._boot_id):
                    found.append(record)
                    continue
            with suppress(OSError):
                os.unlink(path)
        return found

    def remove(self, uid: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / file_name(uid))
