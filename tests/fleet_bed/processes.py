"""The processes of a cluster's executors, what they weigh and what they took, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tests.fleet_bed.cluster import Cluster
from tests.proc import each_process

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
KIB_A_MIB = 1024
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Stat(NamedTuple):
    """``seconds``: of processor time, its own."""

    pid: int
    parent: int
    seconds: float


def stats() -> dict[int, Stat]:
    found = {}
    for pid, text in each_process("stat").items():
        # A program's name may hold spaces and parentheses.
        fields = text.rpartition(b")")[2].split()
        found[pid] = Stat(pid, int(fields[1]), sum(map(int, fields[11:13])) / TICKS_A_SECOND)
    return found


def below(pids: tuple[int, ...], known: dict[int, Stat]) -> list[Stat]:
    """Every process that one of these has started, directly or not."""
    found: list[Stat] = []
    front = set(pids)
    while front:
        children = [each for each in known.values() if each.parent in front]
        found += children
        front = {each.pid for each in children}
    return found


def executors(cluster: Cluster) -> list[int]:
    """Pids of their JVMs, which are children of the workers."""
    argv = each_process("cmdline")
    children = (each.pid for each in stats().values() if each.parent in cluster.worker_pids)
    return [pid for pid in children if EXECUTOR in argv.get(pid, b"")]


def python_times(cluster: Cluster) -> dict[int, float]:
    """Processor time of the executors' Pythons, by pid: the JVMs' own is Spark's start and its compiler's."""
    return {each.pid: each.seconds for each in below(tuple(executors(cluster)), stats())}


def times(cluster: Cluster) -> dict[int, float]:
    """Of the executors, their JVMs included."""
    return {each.pid: each.seconds for each in below(cluster.worker_pids, stats())}


def spent(before: dict[int, float], after: dict[int, float]) -> float:
    """Between two looks. Spark ends a Python that had nothing to do for a minute, so that one may be gone."""
    return sum(now - before.get(pid, 0.0) for pid, now in after.items())


def peak_mib(pids: list[int]) -> float:
    """The largest resident memory of one of them, 0 where there is none any more."""
    return max(map(_peak_mib, pids), default=0)


def _peak_mib(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) / KIB_A_MIB if found else 0


def python_peak_mib(cluster: Cluster) -> float:
    return peak_mib([each.pid for each in below(tuple(executors(cluster)), stats())])
