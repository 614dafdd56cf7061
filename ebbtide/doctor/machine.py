"""The doctor's look at the machine: units, the kubelet's process and settings.

It only reads. A question without an answer gives no finding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jeepney import DBusAddress

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.bus import Bus, BusRefused
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds
from ebbtide.config import ConfigError, load
from ebbtide.doctor.snapshot import SINGLE_UNIT_DISTRIBUTIONS, KubeletState
from ebbtide.events.base import NS_PER_SECOND

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
UNIT_NOT_FOUND = "not-found"
ACTIVE_STATES = ("active", "activating", "reloading")

#: The kubelet's settings, where its command line has no ``--config``.
KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
COMMAND_BYTES_MAX = 64 * 1024
KUBELET = "kubelet"

# --- units -------------------------------------------------------------------------------------


async def unit_state(bus: Bus, unit: str) -> tuple[bool | None, bool | None]:
    """Is there such a unit, and is it active? None: the service manager does not say. Raises BusError."""
    # LoadUnit, since GetUnit misses an installed unit that was never started. A unit that is not installed
    # can be loaded too; its LoadState tells.
    try:
        (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", unit, answer="o")
    except BusRefused as error:
        return (False, False) if error.name == NO_SUCH_UNIT else (None, None)
    address = DBusAddress(path, SYSTEMD.bus_name, UNIT_INTERFACE)
    if await _unit_property(bus, address, "LoadState") == UNIT_NOT_FOUND:
        return False, False
    state = await _unit_property(bus, address, "ActiveState")
    return True, None if state is None else state in ACTIVE_STATES


async def _unit_property(bus: Bus, address: DBusAddress, name: str) -> Any:
    try:
        return await bus.get(address, name)
    except BusRefused:
        return None


async def look_at_kubelet(bus: Bus, unit: str, node: str) -> KubeletState:
    """Its unit, its process, and what its settings ask for. Raises BusError."""
    loaded, active = await unit_state(bus, unit)
    others = [other for other in SINGLE_UNIT_DISTRIBUTIONS if other != unit]
    beside = tuple([other for other in others if (await unit_state(bus, other))[1]])
    return kubelet_process(node)._replace(unit=unit, loaded=loaded, active=active, beside=beside)


# --- processes ---------------------------------------------------------------------------------


def commands() -> Iterator[tuple[int, list[str]]]:
    """Each process's number and command line, without kernel threads."""
    for pid in proc.all_pids():
        if data := proc.read_bytes(f"/proc/{pid}/cmdline", COMMAND_BYTES_MAX):
            yield pid, os.fsdecode(data).rstrip("\0").split("\0")


def kubelet_process(node: str) -> KubeletState:
    """The kubelet with this node's name, else the first without a name on its command line."""
    # A machine with clusters in containers shows the kubelets of all of them.
    found = [(pid, argv) for pid, argv in commands() if argv[0].rpartition("/")[2] == KUBELET]
    ours = [each for each in found if command_line_flag(each[1], "hostname-override").lower() == node]
    unnamed = [each for each in found if not command_line_flag(each[1], "hostname-override")]
    for pid, argv in (*ours, *unnamed):
        config, grace_ns = kubelet_settings(pid, argv)
        return KubeletState(pid=pid, config=config, grace_ns=grace_ns)
    return KubeletState()


def command_line_flag(argv: list[str], name: str) -> str:
    """``--name=value`` or ``--name value``; the last one counts, as with Go's flags."""
    value = ""
    for at, word in enumerate(argv):
        if word.startswith(f"--{name}="):
            value = word.partition("=")[2]
        elif word == f"--{name}" and at + 1 < len(argv):
            value = argv[at + 1]
    return value


def kubelet_settings(pid: int, argv: list[str]) -> tuple[str, int | None]:
    """Its configuration file, and the whole graceful shutdown in it; None: the file cannot be read.

    The file is read in the process's own mount namespace.
    """
    name = command_line_flag(argv, "config") or str(KUBELET_CONFIG)
    root = Path(f"/proc/{pid}/root")
    folder = command_line_flag(argv, "config-dir")
    paths = [root / name.lstrip("/")]
    if folder:
        paths += sorted((root / folder.lstrip("/")).glob("*.conf"))
    try:
        settings = load(paths).settings
    except ConfigError:
        return name, None
    return name, requested_seconds(effective_periods(settings)) * NS_PER_SECOND
