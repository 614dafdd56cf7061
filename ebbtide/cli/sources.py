"""Where commands get what they judge: configuration files, pods, and logind's limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ebbtide.config import Loaded, default_paths, load
from ebbtide.manifests import Manifest
from ebbtide.manifests import load as load_manifests
from events.model import Settings

#: A plan waits no longer than this for logind; without an answer the grant is not known.
LOGIND_SECONDS_MAX = 1.0


def read_config(paths: Sequence[Path]) -> Loaded:
    """The named files, or the default one. Raises ConfigError."""
    return load(paths or default_paths())


def read_pods(paths: Sequence[str], runtime: Path, settings: Settings) -> list[Manifest]:
    """The named pods, or those that the daemon runs. Raises ManifestError."""
    if paths:
        zero = settings.gate("PodLifecycleSleepActionAllowZero")
        return load_manifests(paths, allow_zero_sleep=zero)
    from ebbtide.doctor.running import running_pods

    return [Manifest(pod=found.pod, spec=found.spec, source=str(runtime)) for found in running_pods(runtime)]


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
    from ebbtide.control import ControlError, ask

    try:
        ask("status", runtime / "ebbtide.sock")
    except ControlError:
        return False
    return True


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
