"""systemd, the service manager: reports to it, and questions about the running system.

Its descriptor store has a duplicate of the delay lock, so that the lock survives our crash.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import trio
from jeepney import DBusAddress

from ebbtide.actors.edges.linux.bus import BusError, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.events import bounds

SYSTEMD = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)

FIRST_INHERITED = 3
LOCK_NAME = "ebbtide-lock"
LISTEN_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
#: Two may be lost or late before the service manager takes us for hung.
SIGNS_OF_LIFE = 3
#: `ebbtide.supervisor` passes a connected descriptor's number.
DESCRIPTOR_PREFIX = "fd:"


def inherited_fds(environ: MutableMapping[str, str] | None = None) -> dict[str, tuple[int, ...]]:
    """Descriptors by name. Removes the variables, which are not for our children."""
    environ = os.environ if environ is None else environ
    pid, count, listed = (environ.get(name, "") for name in LISTEN_VARIABLES[:3])
    for name in LISTEN_VARIABLES:
        environ.pop(name, None)
    if pid != str(os.getpid()) or not count.isdigit():
        return {}
    names = listed.split(":")
    found: dict[str, tuple[int, ...]] = {}
    for index in range(int(count)):
        descriptor = FIRST_INHERITED + index
        name = names[index] if index < len(names) else "unknown"
        with contextlib.suppress(OSError):
            # A child with the lock would hold the machine.
            os.set_inheritable(descriptor, False)
            found[name] = (*found.get(name, ()), descriptor)
    return found


class ServiceManager:
    """``address``: a path, ``@`` and an abstract name, or `DESCRIPTOR_PREFIX` and a number; empty: none.
    ``life_seconds``: between two ``WATCHDOG=1``; 0: not wanted.
    """

    def __init__(self, address: str, life_seconds: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._inherited: socket.socket | None = None
        if address.startswith(DESCRIPTOR_PREFIX):
            with contextlib.suppress(OSError, ValueError):
                self._inherited = socket.socket(fileno=int(address.removeprefix(DESCRIPTOR_PREFIX)))
                # Our children must not report in our name.
                self._inherited.set_inheritable(False)
        self.life_seconds = life_seconds

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> ServiceManager:
        """Removes the variables."""
        environ = os.environ if environ is None else environ
        address, silent_usec, pid = (
            environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        # Without a pid the variable is for every process (sd_watchdog_enabled(3)).
        asked = silent_usec.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(silent_usec) / 1e6 / SIGNS_OF_LIFE if asked else 0.0)

    def __bool__(self) -> bool:
        return self._inherited is not None or self._address[:1] in ("/", "\0")

    def notify(self, **variables: str | int) -> bool:
        """Example: ``READY=1, STATUS="armed"``. True: sent. Never waits, never raises."""
        try:
            with self._connected() as sender:
                self._send(sender, variables)
        except OSError:
            return False
        return True

    async def notify_in_time(self, **variables: str | int) -> bool:
        """`notify` that waits for room; bounded."""
        return await self._send_when_taken(variables)

    def _connected(self) -> socket.socket:
        if self._inherited is not None:
            return self._inherited.dup()
        if not self:
            raise OSError("there is no service manager")
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sender.connect(self._address)
        except OSError:
            sender.close()
            raise
        return sender

    @staticmethod
    def _send(
        sender: socket.socket, variables: dict[str, str | int], descriptors: tuple[int, ...] = ()
    ) -> None:
        """Raises BlockingIOError without room."""
        # A line break in a value would start another variable.
        lines = (f"{name}={str(value).replace(chr(10), ' ')}" for name, value in variables.items())
        passed = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        # In a shutdown a slow service manager must not delay us.
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        sender.sendmsg(["\n".join(lines).encode(errors="replace")], passed, flags)

    async def _send_when_taken(
        self, variables: dict[str, str | int], descriptors: tuple[int, ...] = ()
    ) -> bool:
        """True: sent in time."""
        seconds = bounds.now.manager_send_seconds
        with trio.move_on_after(seconds), contextlib.suppress(OSError), self._connected() as sender:
            while True:
                try:
                    self._send(sender, variables, descriptors)
                    return True
                except BlockingIOError:
                    # Only a connected sender is woken.
                    await trio.lowlevel.wait_writable(sender)
        return False

    async def store(self, name: str, descriptor: int) -> bool:
        """True: sent."""
        # ``FDPOLL=0``: while logind is down the lock polls an error, and would be dropped.
        return await self._send_when_taken({"FDSTORE": 1, "FDNAME": name, "FDPOLL": 0}, (descriptor,))

    async def remove(self, name: str) -> bool:
        """Remove every descriptor with that name; True: *confirmed*."""
        return await self._send_when_taken({"FDSTOREREMOVE": 1, "FDNAME": name}) and await self.barrier()

    async def barrier(self) -> bool:
        """Wait until the service manager has handled our earlier messages."""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            try:
                sent = await self._send_when_taken({"BARRIER": 1}, (theirs,))
            finally:
                os.close(theirs)
            if sent:
                # systemd closes its end at this message.
                with trio.move_on_after(bounds.now.manager_barrier_seconds):
                    await trio.lowlevel.wait_readable(ours)
                    return True
            return False
        finally:
            os.close(ours)


#: systemd's own socket: D-Bus without a bus, as long as systemd lives.
PRIVATE_SOCKET = "unix:path=/run/systemd/private"
#: Process 1 of a forced power-off, in ``/proc/1/comm``.
SHUTDOWN_PROCESS = "systemd-shutdow"
#: A service manager in a container writes it.
CONTAINER_FILE = Path("/run/systemd/container")
FIRST_PROCESS = Path("/proc/1")
#: Counted behind the command's name.
START_TICKS_FIELD = 19
#: Soft reboots without a count, but with the userspace's start time.
VERSIONS_WITHOUT_COUNT = range(254, 257)


async def manager_property(name: str, address: str | None = None) -> Any:
    """None: no answer in time."""
    for where, hello in ((address or system_bus_address(), True), (PRIVATE_SOCKET, False)):
        with contextlib.suppress(BusError), trio.move_on_after(bounds.now.manager_property_seconds):
            return await ask_once(where, lambda bus: bus.get(SYSTEMD, name), hello)
    return None


async def userspace_id(address: str | None = None) -> str:
    """The boot id. A soft reboot keeps it, so its count is added, if systemd answers. A container keeps it
    too: the start of its service manager is added.
    """
    boot = boot_id()
    with contextlib.suppress(OSError):
        name, _, fields = (FIRST_PROCESS / "stat").read_text().rpartition(") ")
        if CONTAINER_FILE.exists() and name.endswith("(systemd"):
            boot += f".{fields.split()[START_TICKS_FIELD]}"
    count = await manager_property("SoftRebootsCount", address)
    if count is None:
        version = re.match(r"\d+", str(await manager_property("Version", address)), re.ASCII)
        if version is not None and int(version[0]) in VERSIONS_WITHOUT_COUNT:
            count = await manager_property("UserspaceTimestampMonotonic", address)
    return f"{boot}+{count}" if isinstance(count, int) and count > 0 else boot


async def system_is_stopping(address: str | None = None) -> bool:
    """Does the whole machine stop, or only our unit?"""
    with contextlib.suppress(OSError):
        if Path("/proc/1/comm").read_text().strip() == SHUTDOWN_PROCESS:
            return True
    return bool(await manager_property("SystemState", address) == "stopping")
