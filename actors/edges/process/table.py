"""The pods that this edge knows, warm in memory: what an inventory is read from without any I/O."""

from __future__ import annotations

import os
from typing import Literal

import msgspec
import trio

from actors.edges.process.endings import End
from actors.edges.process.record import ContainerRecord
from actors.edges.process.spec import ContainerSpec, ProcessSpec
from events.model import Pod

Phase = Literal["waiting", "running", "ended"]


class ContainerEntry:
    """One container: its first process, while it has one.

    ``child`` False: adopted after a restart, somebody else reads its exit code.
    """

    __slots__ = ("child", "end", "ended", "group", "phase", "pid", "pidfd", "pod", "spec", "start_ticks")

    def __init__(self, pod: PodEntry, spec: ContainerSpec) -> None:
        self.pod = pod
        self.spec = spec
        self.phase: Phase = "waiting"
        self.pid = 0
        self.pidfd = -1
        self.start_ticks = 0
        self.group = ""
        self.child = True
        self.end = End()
        #: Made only where somebody waits: init containers.
        self.ended: trio.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.pod.pod.uid, self.spec.name)

    def begin(self, pid: int, pidfd: int, start_ticks: int) -> None:
        self.pid, self.pidfd, self.start_ticks = pid, pidfd, start_ticks
        self.phase = "running"
        self.pod.changed()

    def finish(self, end: End) -> None:
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
            self._view = self._look()
        return self._view

    def _look(self) -> Pod:
        containers = tuple(
            msgspec.structs.replace(item, running=self._runs(item.name)) for item in self.pod.containers
        )
        return msgspec.structs.replace(self.pod, containers=containers)

    def _runs(self, name: str) -> bool:
        entry = self.containers.get(name)
        return entry is not None and entry.phase != "ended"


class Table:
    """Every pod by UID, in the order in which they became known."""

    def __init__(self) -> None:
        self.pods: dict[str, PodEntry] = {}

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        pod = self.pods.get(uid)
        return pod.containers.get(container) if pod is not None else None

    def active(self) -> list[Pod]:
        """The pods that a shutdown has to end: begun, and not over (the reference lists active pods only)."""
        return [entry.view() for entry in self.pods.values() if entry.begun and not entry.over]
