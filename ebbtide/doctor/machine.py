"""Looking at the machine for the doctor: units, the kubelet's process and settings, the boot, acpid.

Only asks and reads. What nobody answers is not known, and no finding is made of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jeepney import DBusAddress

from actors.edges.bus import Bus, BusError, Refused
from actors.edges.logind.names import SYSTEMD
from actors.edges.process import proc
from actors.policy.periods import effective_periods, requested_seconds
from ebbtide.config import ConfigError, load
from ebbtide.doctor.seen import ONE_UNIT, Kubelet
from events.base import NS_PER_SECOND

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
NOT_FOUND = "not-found"
RUNNING = ("active", "activating", "reloading")

#: Where kubeadm and others keep the kubelet's settings, if its command line does not say.
KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
COMMAND_BYTES_MAX = 64 * 1024
#: Their ``server`` and ``agent`` have the kubelet inside.
KUBELETS = ("kubelet", "k3s", "rke2")
ACPID = "acpid"

LOGIND_FOLDERS = tuple(
    Path(folder, "systemd/logind.conf.d") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
)
POWER_KEY = re.compile(r"^\s*HandlePowerKey\s*=\s*ignore\s*$", re.MULTILINE)


# --- units -------------------------------------------------------------------------------------


async def unit_state(bus: Bus, unit: str) -> tuple[bool | None, bool | None]:
    """Is there such a unit, and is it active? None: the service manager does not say. Raises BusError."""
    try:
        (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", unit)
    except Refused as error:
        return (False, False) if error.name == NO_SUCH_UNIT else (None, None)
    address = DBusAddress(path, SYSTEMD.bus_name, UNIT_INTERFACE)
    if await _ask(bus, address, "LoadState") == NOT_FOUND:
        return False, False
    state = await _ask(bus, address, "ActiveState")
    return True, None if state is None else state in RUNNING


async def _ask(bus: Bus, address: DBusAddress, name: str) -> Any:
    try:
        return await bus.get(address, name)
    except Refused:
        return None


async def look_at_kubelet(bus: Bus, unit: str, node: str) -> Kubelet:
    """Its unit, its process, and what its settings ask for. Raises BusError."""
    loaded, active = await unit_state(bus, unit)
    others = [other for other in ONE_UNIT if other != unit]
    beside = tuple([other for other in others if (await unit_state(bus, other))[1]])
    return kubelet_process(node)._replace(unit=unit, loaded=loaded, active=active, beside=beside)


async def boot_ns(bus: Bus) -> int | None:
    """How long the last boot took, firmware and loader included where they told; None while it is not
    finished, or where the service manager does not say. systemd counts in microseconds.
    """
    try:
        finish_us = await bus.get(SYSTEMD, "FinishTimestampMonotonic")
        firmware_us = await bus.get(SYSTEMD, "FirmwareTimestampMonotonic")
    except BusError:
        return None
    if not isinstance(finish_us, int) or not finish_us:
        return None
    return (finish_us + (firmware_us if isinstance(firmware_us, int) else 0)) * (NS_PER_SECOND // 1_000_000)


# --- processes ---------------------------------------------------------------------------------


def commands() -> Iterator[tuple[int, list[str]]]:
    """Every process's number and words, those of the kernel left out."""
    for pid in proc.pids():
        if data := proc.read_bytes(f"/proc/{pid}/cmdline", COMMAND_BYTES_MAX):
            yield pid, os.fsdecode(data).rstrip("\0").split("\0")


def called(words: list[str], name: str) -> bool:
    return words[0].rpartition("/")[2] == name


def acpid_runs() -> bool:
    return any(called(words, ACPID) for _, words in commands())


def kubelet_process(node: str) -> Kubelet:
    """The kubelet of this node: the one that was given its name, else the first that was given none."""
    found = [(pid, words) for pid, words in commands() if called(words, KUBELETS[0])]
    ours = [each for each in found if flag(each[1], "hostname-override").lower() == node]
    unnamed = [each for each in found if not flag(each[1], "hostname-override")]
    for pid, words in (*ours, *unnamed):
        config, grace_ns = kubelet_settings(pid, words)
        return Kubelet(pid=pid, config=config, grace_ns=grace_ns)
    return Kubelet()


def flag(words: list[str], name: str) -> str:
    """``--name=value`` or ``--name value``; the last one counts, as with Go's flags."""
    value = ""
    for at, word in enumerate(words):
        if word.startswith(f"--{name}="):
            value = word.partition("=")[2]
        elif word == f"--{name}" and at + 1 < len(words):
            value = words[at + 1]
    return value


def kubelet_settings(pid: int, words: list[str]) -> tuple[str, int | None]:
    """Its configuration file, and the graceful shutdown that it asks for in all; None: it cannot be read.

    The file is looked up as that process sees it, which may be in a mount namespace of its own.
    """
    name = flag(words, "config") or str(KUBELET_CONFIG)
    root = Path(f"/proc/{pid}/root")
    folder = flag(words, "config-dir")
    paths = [root / name.lstrip("/")]
    if folder:
        paths += sorted((root / folder.lstrip("/")).glob("*.conf"))
    try:
        settings = load(paths).settings
    except ConfigError:
        return name, None
    return name, requested_seconds(effective_periods(settings)) * NS_PER_SECOND


# --- logind's files ----------------------------------------------------------------------------


def power_key_file() -> str:
    """The first file that has logind ignore the power key; empty where none does."""
    paths = [path for folder in LOGIND_FOLDERS for path in sorted(folder.glob("*.conf"), reverse=True)]
    for path in (*paths, Path("/etc/systemd/logind.conf")):
        try:
            if POWER_KEY.search(path.read_text(errors="replace")):
                return str(path)
        except OSError:
            continue
    return ""
