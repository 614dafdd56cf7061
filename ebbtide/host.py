"""The machine under the daemon: its boot, its clocks, its logind and service manager.

One daemon runs per runtime folder: two would both run the same pods' hooks, whatever their journals are.
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

#: Asked of the service manager on top of what the shutdown needs: to close the journal, and to exit.
LEAVING_SECONDS = 2


class Host(Protocol):
    """What differs between a node, the demo and a test: where facts about the process come from."""

    async def started(self) -> DaemonStarted:
        """The first fact of this process."""

    async def stopping(self, needed_ns: int) -> StopRequested:
        """SIGTERM came: is it our unit only, or the machine? ``needed_ns``: what a shutdown would need."""

    @property
    def life_seconds(self) -> float:
        """How often the service manager wants a sign of life; 0 where it does not."""

    def notify(self, **variables: str | int) -> None:
        """Tell the service manager, where it has room for it."""

    async def notify_in_time(self, **variables: str | int) -> None:
        """The same, but wait for room, for a moment."""


def host_name() -> str:
    """What this machine is called where it is nobody's Node."""
    return os.uname().nodename


def journal_identity(node: str) -> Identity:
    """Who writes the journal here. A machine without an id is known by its host name."""
    try:
        machine_id = MACHINE_ID.read_text().strip() or host_name()
    except OSError:
        machine_id = host_name()
    return Identity(node=node, machine_id=machine_id, boot_id=boot_id(), code_version=__version__)


class Logind(Edge, Protocol):
    """The edge of either logind, and what a start needs of it."""

    @property
    def lock_held(self) -> bool: ...

    async def read_start_state(self) -> StartState: ...


class LocalHost:
    """`Host` on this machine, whichever logind it has."""

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
        """The service manager is asked for the time that the shutdown needs, and gives it."""
        stopping = await system_is_stopping()
        # Only when the machine goes down: a plain stop of our unit ends no pod and has nothing to wait for.
        # Asked at once, since the service manager kills a unit when its TimeoutStopSec is over, and the
        # pods' graces may be longer than that.
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
    """The real clocks. The monotonic one is what deadlines are made of; it starts anew at each boot."""

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


RUNTIME_LOCK_NAME = "daemon.lock"

#: A process id and a line break fit many times over.
OWNER_BYTES_MAX = 64


class RuntimeTaken(Exception):
    """Another daemon runs here; the text names it and says what to do."""


def lock_runtime(runtime: Path) -> int:
    """The descriptor that holds the claim; leave it open. Raises RuntimeTaken, OSError."""
    runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
    # A lock on an open file goes with the process, however that ends; a file with a number in it does not.
    # The file stays: one that is removed while another start has it open would be locked twice.
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
