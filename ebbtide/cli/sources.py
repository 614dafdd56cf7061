"""Where commands get what they judge: configuration files, pods, and logind's limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebbtide.config import Loaded, default_paths, load
from ebbtide.manifests import Manifest
from ebbtide.manifests import load as load_manifests
from ebbtide.options import control_socket
from events.model import Settings

#: A plan waits no longer than this for logind; without an answer the grant is not known.
LOGIND_SECONDS_MAX = 1.0


def read_config(paths: Sequence[Path]) -> Loaded:
    """The named files, or the default one. Raises ConfigError."""
    return load(paths or default_paths())


def read_pods(paths: Sequence[str], settings: Settings) -> list[Manifest]:
    """The named pods. Raises ManifestError."""
    return load_manifests(paths, allow_zero_sleep=settings.gate("PodLifecycleSleepActionAllowZero"))


def grant_or_logind(grant_ns: int | None) -> int | None:
    """``grant_ns``, or logind's limit; None where there is no logind to ask."""
    return grant_ns if grant_ns is not None else logind_grant()


def grant_to_come(grant_ns: int | None, raise_grant: bool, runtime: Path) -> int | None:
    """The grant that a shutdown would have, as the doctor judges it; None: not known, or all that is needed.

    A daemon that does not run yet raises the limit when it arms, unless a file of somebody else's wins.
    """
    if grant_ns is not None or not raise_grant or daemon_answers(runtime):
        return grant_or_logind(grant_ns)
    from actors.edges.logind.dropins import DropIns

    return logind_grant() if DropIns().read().overridden_by else None


def daemon_answers(runtime: Path) -> bool:
    """Whether a daemon runs that may be asked."""
    return _status(runtime) is not None


def daemon_mode(runtime: Path) -> str:
    """The running daemon's; empty where none answers."""
    return str((_status(runtime) or {}).get("mode", ""))


def _status(runtime: Path) -> dict[str, Any] | None:
    from ebbtide.control import ControlError, ask

    try:
        answer: dict[str, Any] = ask("status", control_socket(runtime))
    except ControlError:
        return None
    return answer


def logind_grant() -> int | None:
    """logind's ``InhibitDelayMaxUSec`` in nanoseconds."""
    import trio

    from actors.edges.bus import BusError, ask_once, system_bus_address
    from actors.edges.logind.reader import grant

    async def ask() -> int | None:
        with trio.move_on_after(LOGIND_SECONDS_MAX):
            return await ask_once(system_bus_address(), grant)
        return None

    try:
        return trio.run(ask)
    except BusError:
        return None
