"""Looking at the configuration, the daemon, logind, the journal and the pods, without changing anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from actors.edges.bus import Bus as Connection
from actors.edges.bus import BusError, ask_once, system_bus_address
from actors.edges.logind.dropins import DropIns
from actors.edges.logind.names import MANAGER, SYSTEMD, WHO, is_kubelet_lock
from actors.edges.logind.reader import ask_all, grant, preparing
from ebbtide.config import ConfigError, Loaded, default_paths, load
from ebbtide.config.node import NodeSection
from ebbtide.control import ControlError, ask
from ebbtide.doctor.machine import acpid_runs, power_key_file
from ebbtide.doctor.pods import look_at_pods
from ebbtide.doctor.sight import Bus, Sight, Store
from ebbtide.doctor.starts import Starts
from ebbtide.options import RunOptions
from ebbtide.plan_view import build_plan
from events.history import History
from events.source import DirectorySource

#: logind answers in under a millisecond.
LOGIND_SECONDS_MAX = 3.0


def gather(options: RunOptions) -> Sight:
    """Look at everything; a mode that is empty is found out. Raises nothing but PermissionError, where a
    folder is for root only.
    """
    loaded, config_error = _config(options.config)
    status, status_error = _status(options.control_socket)
    bus, bus_error = look_at_logind()
    store = look_at_journal(options.journal)
    running = str((status or {}).get("mode", "")) or store.mode
    pods = look_at_pods(options, loaded.options.node if loaded is not None else NodeSection(), running)
    raise_grant = loaded is not None and loaded.settings.raise_grant
    return Sight(
        config_error=config_error,
        raise_grant=raise_grant,
        plan=None if loaded is None else build_plan(loaded.settings, pods.manifests, _coming(loaded, bus)),
        status=status,
        status_error=status_error,
        bus=bus,
        bus_error=bus_error,
        files=DropIns().read(),
        store=store,
        forecasts=pods.forecasts,
        labels={found.pod.uid: found.pod.label for found in pods.manifests},
        pods=tuple(found.pod for found in pods.manifests),
        acpid=acpid_runs(),
        power_key_file=power_key_file(),
        node=pods.seen,
    )


def _coming(loaded: Loaded, bus: Bus | None) -> int | None:
    """The grant that a shutdown would have: a limit that the daemon may raise is no reason to cut a pod."""
    if bus is None or loaded.settings.raise_grant:
        return None
    return bus.grant_ns


def _config(configs: Sequence[Path]) -> tuple[Loaded | None, str]:
    try:
        return load(configs or default_paths()), ""
    except ConfigError as error:
        return None, str(error)


def _status(socket: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        return ask("status", socket), ""
    except ControlError as error:
        return None, str(error)


# --- logind ------------------------------------------------------------------------------------


def look_at_logind() -> tuple[Bus | None, str]:
    """What logind says, or why it says nothing."""

    async def look() -> Bus | None:
        with trio.move_on_after(LOGIND_SECONDS_MAX):
            return await ask_once(system_bus_address(), _questions)
        return None

    try:
        found = trio.run(look)
    except BusError as error:
        return None, str(error)
    return found, "" if found is not None else f"no answer within {LOGIND_SECONDS_MAX:g} s"


async def _questions(bus: Connection) -> Bus:
    limit, going, rows, key, version = await ask_all(bus, grant, preparing, _inhibitors, _power_key, _systemd)
    return Bus(
        grant_ns=limit,
        preparing=going,
        our_lock=any(_is_ours(row) for row in rows),
        kubelet_lock=any(is_kubelet_lock(row) for row in rows),
        power_key=key,
        systemd=version,
    )


async def _inhibitors(bus: Connection) -> Any:
    return (await bus.method(MANAGER, "ListInhibitors"))[0]


def _is_ours(row: tuple[str, str, str, str, int, int]) -> bool:
    what, who, _, mode, _, _ = row
    return who == WHO and mode == "delay" and "shutdown" in what.split(":")


async def _power_key(bus: Connection) -> str:
    """Empty where this logind does not tell."""
    try:
        return str(await bus.get(MANAGER, "HandlePowerKey"))
    except BusError:
        return ""


async def _systemd(bus: Connection) -> str:
    """systemd's version; empty where it cannot be asked (a logind on a bus of its own)."""
    try:
        return str(await bus.get(SYSTEMD, "Version"))
    except BusError:
        return ""


# --- the journal -------------------------------------------------------------------------------


def look_at_journal(path: Path) -> Store:
    """Its health by a whole reading, and the room that is left for it."""
    place = _nearest(path)
    try:
        room = os.statvfs(place)
        history = History([DirectorySource(path)])
        starts = Starts()
        for raw in history.raw():
            starts.take(raw)
        verdict = history.verdict if history.path.segments or history.path.tail else None
    except OSError as error:
        return Store(str(path), error=f"{error.filename or path}: {error.strerror}")
    return Store(
        str(path),
        exists=path.is_dir(),
        writable=os.access(place, os.W_OK),
        free_bytes=room.f_bavail * room.f_frsize,
        verdict=verdict,
        failed_starts=starts.failed,
        mode=starts.mode,
    )


def _nearest(path: Path) -> Path:
    """The directory, or what of its path exists: that is where it will be made."""
    absolute = path.absolute()
    return next(folder for folder in (absolute, *absolute.parents) if folder.exists())
