"""The running system: which boot, which userspace of it, and is it going down.

A soft reboot keeps the boot id, so "the same boot" is not "the same userspace". Each question is asked on
the bus, and when that is gone (it may be, late in a shutdown) on systemd's private socket.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import trio

from actors.edges.boot import boot_id as boot_id
from actors.edges.bus import Bus, BusError, ask_once, system_bus_address
from actors.edges.logind.names import SYSTEMD

#: systemd's own socket: speaks D-Bus without a bus, and lives as long as systemd.
PRIVATE = "unix:path=/run/systemd/private"
#: Process 1 of a forced power-off, as ``/proc/1/comm`` cuts its name.
LAST_PROCESS = "systemd-shutdow"
ASK_SECONDS_MAX = 0.3
#: Written by a service manager that runs in a container.
CONTAINER = Path("/run/systemd/container")
FIRST_PROCESS = Path("/proc/1")
#: Of ``/proc/PID/stat``, counted behind the command's name.
START_TICKS_FIELD = 19
#: These know soft reboots but do not count them; their userspace has a time at which it began.
UNCOUNTED = range(254, 257)


async def manager_property(name: str, address: str | None = None) -> Any:
    """A property of systemd's manager; None when nobody answers in time."""
    for where, hello in ((address or system_bus_address(), True), (PRIVATE, False)):
        with contextlib.suppress(BusError), trio.move_on_after(ASK_SECONDS_MAX):
            return await ask_once(where, lambda bus: _get(bus, name), hello)
    return None


async def _get(bus: Bus, name: str) -> Any:
    return await bus.get(SYSTEMD, name)


async def userspace_id(address: str | None = None) -> str:
    """The boot id, and after a soft reboot what tells this userspace from the one before.

    Without a soft reboot it *is* the boot id, so a start that could not ask makes no difference. A whole
    machine in a container shares the kernel's boot id with all its lives; there the service manager's own
    start tells them apart.
    """
    boot = boot_id() + _container_start()
    count = await manager_property("SoftRebootsCount", address)
    if count is None and _major(await manager_property("Version", address)) in UNCOUNTED:
        count = await manager_property("UserspaceTimestampMonotonic", address)
    return f"{boot}+{count}" if isinstance(count, int) and count > 0 else boot


def _container_start() -> str:
    """Empty on a host, and where the first process is no service manager (a pod's own process namespace)."""
    with contextlib.suppress(OSError):
        name, _, fields = (FIRST_PROCESS / "stat").read_text().rpartition(") ")
        if CONTAINER.exists() and name.endswith("(systemd"):
            return f".{fields.split()[START_TICKS_FIELD]}"
    return ""


def _major(version: object) -> int:
    digits = str(version).partition(".")[0].partition("~")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


async def system_is_stopping(address: str | None = None) -> bool:
    """Does the service manager stop everything (so that a SIGTERM means the machine), or only our unit?"""
    with contextlib.suppress(OSError):
        if Path("/proc/1/comm").read_text().strip() == LAST_PROCESS:
            return True
    return bool(await manager_property("SystemState", address) == "stopping")
