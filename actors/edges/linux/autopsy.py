"""What a straggler was doing just before SIGKILL: which processes, in which state, which signals they ignore.

Everything is read from files of ``/proc`` that never wait for the process that is looked at, and the
reading stops at a deadline: an autopsy is evidence, and evidence never outranks the pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.signals import mask_names
from ebbtide.events.model import ProcessReport

#: One autopsy's time, half of it for the look that finds the processes. What was not read until then is
#: not in it, but for the first process, which is always looked at.
AUTOPSY_NS_MAX = 100_000_000
#: Processes of one container that are reported; keeps the record small.
PROCESSES_MAX = 32

PROCESS_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "I": "idle",
}


def process_report(
    stat: proc.ProcessStat, status: proc.ProcessStatus | None, wait_channel: str, connections: int
) -> ProcessReport:
    """One process from what was read of it. Pure."""
    return ProcessReport(
        pid=stat.pid,
        parent_pid=stat.parent_pid,
        command=stat.command,
        state=PROCESS_STATES.get(stat.state, stat.state),
        wait_channel=wait_channel,
        signals_caught=mask_names(status.caught) if status else (),
        signals_ignored=mask_names(status.ignored) if status else (),
        connections=connections,
    )


def examine_processes(
    stats: Iterable[proc.ProcessStat], deadline_ns: int, mono_ns: Callable[[], int] = time.monotonic_ns
) -> tuple[ProcessReport, ...]:
    """Look at each process until ``deadline_ns``, parents before children, at most `PROCESSES_MAX`."""
    reports: list[ProcessReport] = []
    established: frozenset[int] | None = None
    for stat in sorted(stats, key=lambda item: (item.start_ticks, item.pid))[:PROCESSES_MAX]:
        if reports and mono_ns() >= deadline_ns:
            break
        if established is None:
            established = proc.read_tcp(stat.pid)
        # Its number may be another's by now.
        fresh = proc.read_stat(stat.pid)
        if fresh is None or fresh.start_ticks != stat.start_ticks:
            continue
        channel = (proc.read_bytes(f"/proc/{stat.pid}/wchan") or b"").decode(errors="replace")
        connections = len(established.intersection(proc.socket_inodes(stat.pid)))
        status = proc.read_status(stat.pid)
        reports.append(process_report(fresh, status, "" if channel == "0" else channel, connections))
    return tuple(reports)
