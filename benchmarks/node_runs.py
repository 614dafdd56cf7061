"""One shutdown of one contender, measured from outside, and what its journal says beside it.

The clock is the machine's monotonic one everywhere: of who asks logind, of the service manager that logind
tells to go on, and of the journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ebbtide.events.base import Record
from ebbtide.events.decisions import DeletePod, PodEnded, ReleaseLock, SendSignal
from ebbtide.events.facts import DaemonStarted, PrepareForShutdown
from tests.node.bed import Bed
from tests.node.contenders import Contender, Setting, fresh
from tests.node.ebbtide import Daemon
from tests.node.pods import PODS
from tests.node.shutdowns import FINAL, MIB, NS, fill, many, memory_of, power_off

OVER_SECONDS_MAX = 180


class Told(NamedTuple):
    """What a journal says of its only shutdown. ``stop_ms``: from the signal until a stop is ordered and
    written; ``fates`` and ``killed``: pods whose end was on record before the release was ordered.
    """

    stop_ms: float
    fates: int
    killed: int
    release_ms: float


class Run(NamedTuple):
    """``seconds`` from the request until logind went on; ``final`` of ``pods`` had their final status in the
    API, or no object, when it did. ``memory_mib`` is before the shutdown, ``peak_mib`` the daemon's most.
    """

    seconds: float
    pods: int
    final: int
    memory_mib: float
    peak_mib: float
    journal: Told | None


async def run_once(
    bed: Bed, contender: Contender, waves: dict[str, Any], count: int, stubborn: bool, folder: Path
) -> Run:
    """A node as after its boot, filled, and shut down. The journal has to replay."""
    setting = Setting(waves, folder)
    await fresh(bed, contender, setting)
    await fill(bed, many(count, stubborn))
    async with contender.holds(bed, setting) as daemon:
        memory = memory_of_daemon(bed, daemon) if daemon else memory_of(bed, "kubelet")
        asked_ns, over_ns = await power_off(bed)
        final = count - await unfinished(bed)
        told, peak = None, 0.0
        if daemon:
            await daemon.until(lambda: _is_released(daemon), "it did not order the release")
            told, peak = of_journal(daemon.records()), memory_of_daemon(bed, daemon, "VmHWM")
            await daemon.verify()
    return Run((over_ns - asked_ns) / NS, count, final, memory, peak, told)


async def unfinished(bed: Bed) -> int:
    """Pods of which the API server still has an object without a final phase."""
    pods = (await bed.api.get(PODS))["items"]
    return sum(each["status"]["phase"] not in FINAL for each in pods)


def _is_released(daemon: Daemon) -> bool:
    return bool(daemon.events(ReleaseLock))


def memory_of_daemon(bed: Bed, daemon: Daemon, field: str = "VmRSS") -> float:
    """Resident, in MiB; by ``VmHWM`` the most that it has been."""
    pid = daemon.events(DaemonStarted)[-1].pid
    status = bed.place(Path(f"/proc/{pid}/status")).read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields[field].split()[0]) / MIB


def of_journal(records: list[Record]) -> Told:
    signal = first(records, PrepareForShutdown)
    release = first(records, ReleaseLock)
    stops = [each for each in records if isinstance(each.event, SendSignal | DeletePod)]
    ended = [each.event for each in records if isinstance(each.event, PodEnded) and each.seq < release.seq]
    stop_ns = stops[0].mono_ns - signal.mono_ns if stops else 0
    killed = sum(isinstance(each, PodEnded) and each.outcome == "killed" for each in ended)
    return Told(stop_ns / 1e6, len(ended), killed, (release.mono_ns - signal.mono_ns) / 1e6)


def first(records: list[Record], kind: type) -> Record:
    return next(each for each in records if isinstance(each.event, kind))
