"""A real node around the daemon: its boot, its logind, its service manager."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from actors.edges.service import ServiceManager
from actors.edges.start_state import StartState
from actors.edges.system import boot_id, system_is_stopping, userspace_id
from ebbtide import __version__
from events.base import NS_PER_SECOND
from events.facts import DaemonStarted, StopRequested
from events.segment import Identity

MACHINE_ID = Path("/etc/machine-id")

#: Asked of the service manager on top of the overtime, for the way out.
LEAVING_SECONDS = 2


def host() -> str:
    """What this machine is called where it is nobody's Node."""
    return os.uname().nodename


def identity(node: str) -> Identity:
    """Who writes the journal here. A machine without an id is known by its host name."""
    try:
        machine_id = MACHINE_ID.read_text().strip() or host()
    except OSError:
        machine_id = host()
    return Identity(node=node, machine_id=machine_id, boot_id=boot_id(), code_version=__version__)


class Logind(Protocol):
    """What a start needs of either logind."""

    @property
    def lock_held(self) -> bool: ...

    async def read_start_state(self) -> StartState: ...


class Node:
    """`ebbtide.daemon.Surroundings`: this machine, whichever logind it has."""

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
        if stopping:
            extension_ns = needed_ns + LEAVING_SECONDS * NS_PER_SECOND
            self._service.notify(EXTEND_TIMEOUT_USEC=extension_ns // 1000)
        return StopRequested(system_stopping=stopping, stop_time_ns=needed_ns)

    def notify(self, **variables: str | int) -> None:
        self._service.notify(**variables)
