"""The machine under the daemon: its boot, its clocks, its logind and service manager.

One daemon runs for each runtime folder, and for each machine (`ebbtide.machine_lock`).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Protocol

from ebbtide import __version__
from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.actors.edges.service_manager import ServiceManager, system_is_stopping, userspace_id
from ebbtide.actors.interfaces import Edge, StartState
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DaemonStarted, StopRequested
from ebbtide.events.segment import Identity

MACHINE_ID = Path("/etc/machine-id")

#: For closing the journal and the exit.
LEAVING_SECONDS = 2


class Host(Protocol):
    """A source of facts about the process: a node, the demo or a test."""

    async def started(self) -> DaemonStarted:
        """The first fact of this process."""

    async def stopping(self, needed_ns: int) -> StopRequested:
        """After SIGTERM: for our unit, or for the machine? ``needed_ns``: the time for a shutdown."""

    @property
    def life_seconds(self) -> float:
        """Between two signs for the watchdog; 0 without one."""

    def notify(self, **variables: str | int) -> None:
        """Notifies the service manager, if its socket has room."""

    async def notify_in_time(self, **variables: str | int) -> None:
        """The same, but waits a moment for room."""


def host_name() -> str:
    """For a machine without a Node's name."""
    return os.uname().nodename


def journal_identity(node: str) -> Identity:
    """A machine without an id has its host name."""
    try:
        machine_id = MACHINE_ID.read_text().strip() or host_name()
    except OSError:
        machine_id = host_name()
    return Identity(node=node, machine_id=machine_id, boot_id=boot_id(), code_version=__version__)


class Logind(Edge, Protocol):
    @property
    def lock_held(self) -> bool: ...

    async def read_start_state(self) -> StartState: ...


class LocalHost:
    def __init__(
        self, name: str, mode: str, logind: Logind, service: ServiceManager, failed_starts: int
    ) -> None:
        self._name = name
        self._mode = mode
        self._logind = logind
        self._service = service
        self._failed_starts = failed_starts

    async def started(self) -> DaemonStarted:
        state = await self._logind.read_start_state()
        return DaemonStarted(
            version=__version__,
            pid=os.getpid(),
            mode=self._mode,
            node=self._name,
            boot_id=boot_id(),
            userspace_id=await userspace_id(),
            preparing=state.preparing,
            kind=state.kind,
            grant_ns=state.grant_ns,
            lock_inherited=self._logind.lock_held,
            failed_starts=self._failed_starts,
        )

    async def stopping(self, needed_ns: int) -> StopRequested:
        """Asks the service manager for the time of the shutdown."""
        stopping = await system_is_stopping()
        # Only when the machine goes down: a plain stop of our unit ends no pod. At once: the service manager
        # kills a unit after TimeoutStopSec, and the pods' graces may be longer.
        if stopping:
            extension_ns = needed_ns + LEAVING_SECONDS * NS_PER_SECOND
            await self._service.notify_in_time(EXTEND_TIMEOUT_USEC=extension_ns // 1000)
        return StopRequested(system_stopping=stopping, stop_time_ns=needed_ns)

    @property
    def life_seconds(self) -> float:
        return self._service.life_seconds

    def notify(self, **variables: str | int) -> None:
        self._service.notify(**variables)

    async def notify_in_time(self, **variables: str | int) -> None:
        await self._service.notify_in_time(**variables)


class SystemClock:
    """Deadlines use the monotonic clock, which restarts at each boot."""

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


RUNTIME_LOCK_NAME = "daemon.lock"

#: More than a process id and a line break.
OWNER_BYTES_MAX = 64


class RuntimeTaken(Exception):
    """The text names the other daemon and the cure."""


def lock_runtime(runtime: Path) -> int:
    """The descriptor with the lock; leave it open. Raises RuntimeTaken, OSError."""
    runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
    # A lock ends with its process. The file stays: if another start had it open, a removal would allow two
    # locks.
    descriptor = os.open(runtime / RUNTIME_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, OWNER_BYTES_MAX, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise RuntimeTaken(
            f"ebbtide (process {owner}) runs with {runtime}: end it first, or name another with --runtime"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
