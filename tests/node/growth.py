"""Measure a daemon's growth: memory, descriptors, threads, tasks, files, and its API objects.

Counts fluctuate with current work. A look is the lowest of several idle samples. Growth is the median slope
between all pairs of looks (Theil and Sen), which ignores outliers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trio

from ebbtide.events.facts import DaemonStarted
from tests.node import remains
from tests.node.bed import Bed
from tests.node.contenders import TAINT
from tests.node.ebbtide import Daemon
from tests.node.shutdowns import MIB
from tests.proc import each_process

#: All names and sources of our API objects contain this.
OURS = "ebbtide"
LOOKS = 8
BETWEEN_SECONDS = 0.4
TOLD_SECONDS_MAX = 5
POLL_SECONDS = 0.02

#: Kept API connections by name. The client keeps one per concurrent call for a minute, so they are counted
#: apart.
KEPT_DESCRIPTOR, KEPT_TASK = "socket: tcp", "task _io_task"

NUMBER = re.compile(r"\d+")

#: Runs ``ebbtide`` with a SIGUSR2 handler that writes in-process figures. It does not allocate before, and
#: needs no thread or task.
TELLING = """
import collections, ctypes, gc, json, os, signal, sys, trio
FILE = {file!r}
class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in 'arena o s h hblkhd u f uordblks fordblks k'.split()]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Mallinfo
def names(task):
    yield task.name.rpartition('.')[2]
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from names(child)
def tell(*_):
    tasks = collections.Counter(names(trio.lowlevel.current_root_task()))
    heap = mallinfo()
    said = dict(tasks=tasks, blocks=sys.getallocatedblocks(), frozen=gc.get_freeze_count(),
                heap=heap.uordblks + heap.hblkhd, free=heap.fordblks)
    with open(FILE + '.new', 'w') as file:
        json.dump(said, file)
    os.replace(FILE + '.new', FILE)
signal.signal(signal.SIGUSR2, tell)
{more}
import ebbtide.cli as cli
sys.exit(cli.main())
"""


class Look(NamedTuple):
    """``after`` this many shutdowns. ``heap_mib``: allocated from the C library; ``free_mib``: its free
    memory. ``connections``: to the API server; ``descriptors`` and ``tasks`` (Trio's): all others.
    ``blocks``: Python's memory blocks; ``frozen``: objects outside the collector. ``groups``: the
    node's control groups; ``files``: in the daemon's folders without ``segments``, the journal's.
    ``events``, ``leases``: our API objects; ``marks``: our taint, conditions and annotations on the
    Node.
    """

    after: int
    rss_mib: float
    heap_mib: float
    free_mib: float
    connections: int
    descriptors: int
    threads: int
    tasks: int
    blocks: int
    frozen: int
    groups: int
    files: int
    segments: int
    journal_bytes: int
    marks: int
    events: int
    leases: int


class Observer:
    """Watches one daemon; create it before the start. ``more``: Python code that runs in it first."""

    def __init__(self, bed: Bed, daemon: Daemon, more: str = "") -> None:
        self.bed, self.daemon = bed, daemon
        self.file = bed.folder / "told.json"
        daemon.program = (sys.executable, "-c", TELLING.format(file=str(self.file), more=more))
        self._pid = 0
        #: The last look's descriptors and tasks by name, the lowest of each.
        self.named: Counter[str] = Counter()

    @property
    def proc(self) -> Path:
        if not self._pid:
            pid = self.daemon.events(DaemonStarted)[-1].pid
            inside = os.readlink(f"/proc/{self.bed.pid}/ns/pid")
            self._pid = _outside(pid, inside)
        return Path(f"/proc/{self._pid}")

    async def look(self, after: int, looks: int = LOOKS) -> Look:
        """The lowest of each count over several samples."""
        taken = []
        for at in range(looks):
            if at:
                await trio.sleep(BETWEEN_SECONDS)
            look, named = await self._look_once(after)
            taken.append(look)
            self.named = self.named & named if at else named
        lowest = [min(column) for column in zip(*taken, strict=True)]
        return Look(*lowest)

    async def _look_once(self, after: int) -> tuple[Look, Counter[str]]:
        self.file.unlink(missing_ok=True)
        os.kill(int(self.proc.name), signal.SIGUSR2)
        with trio.fail_after(TOLD_SECONDS_MAX):
            while not self.file.exists():
                await trio.sleep(POLL_SECONDS)
        told = json.loads(self.file.read_text())
        descriptors = _descriptors(self.proc)
        named = descriptors + Counter({f"task {name}": count for name, count in told["tasks"].items()})
        status = dict(line.split(":", 1) for line in (self.proc / "status").read_text().splitlines())
        segments = list(self.daemon.journal.glob("*.ebj"))
        look = Look(
            after,
            int(status["VmRSS"].split()[0]) / MIB,
            told["heap"] / MIB / MIB,
            told["free"] / MIB / MIB,
            named[KEPT_DESCRIPTOR],
            sum(descriptors.values()) - named[KEPT_DESCRIPTOR],
            int(status["Threads"]),
            sum(told["tasks"].values()) - named[KEPT_TASK],
            told["blocks"],
            told["frozen"],
            self._groups(),
            sum(1 for folder in self._folders() for path in folder.rglob("*")) - len(segments),
            len(segments),
            sum(path.stat().st_size for path in segments),
            *await self._objects(),
        )
        return look, named

    def _folders(self) -> tuple[Path, ...]:
        return self.daemon.journal, self.bed.place(self.daemon.folder)

    def _groups(self) -> int:
        return sum(1 for tree in remains.left(self.bed.group) for _ in os.walk(tree))

    async def _objects(self) -> tuple[int, int, int]:
        node = await self.bed.api.get(f"/api/v1/nodes/{self.daemon.member.name}")
        marks = [each["key"] for each in node["spec"].get("taints", []) if each["key"] == TAINT]
        marks += [each["type"] for each in node["status"]["conditions"] if OURS in json.dumps(each)]
        marks += [name for name in node["metadata"].get("annotations", {}) if OURS in name]
        events = (await self.bed.api.get("/apis/events.k8s.io/v1/events"))["items"]
        leases = (await self.bed.api.get("/apis/coordination.k8s.io/v1/leases"))["items"]
        return len(marks), sum(map(_is_ours, events)), sum(map(_is_ours, leases))


def _is_ours(made: dict[str, Any]) -> bool:
    return OURS in made.get("reportingController", "") or OURS in made["metadata"]["name"]


def _outside(pid: int, namespace: str) -> int:
    """The process's number on the machine. Raises LookupError."""
    for outer, status in each_process("status").items():
        numbers = next(line for line in status.decode().splitlines() if line.startswith("NSpid"))
        with contextlib.suppress(OSError):
            if int(numbers.split()[-1]) == pid and os.readlink(f"/proc/{outer}/ns/pid") == namespace:
                return outer
    raise LookupError(f"no process {pid} in {namespace}")


def _descriptors(proc: Path) -> Counter[str]:
    """Descriptor counts by target, without numbers: sockets by family, logind's locks as one."""
    families = {}
    for family, column in (("tcp", 9), ("tcp6", 9), ("unix", 6)):
        for line in (proc / "net" / family).read_text().splitlines()[1:]:
            families[f"socket:[{line.split()[column]}]"] = f"socket: {family}"
    found: Counter[str] = Counter()
    for descriptor in (proc / "fd").iterdir():
        # One may have been closed meanwhile.
        with contextlib.suppress(OSError):
            target = os.readlink(descriptor)
            found[families.get(target) or NUMBER.sub("N", target.partition(":[")[0])] += 1
    return found


def growth(looks: Sequence[Look], field: str, over: int) -> float:
    points = [(each.after, getattr(each, field)) for each in looks]
    slopes: list[float] = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in itertools.combinations(points, 2)]
    return statistics.median(slopes) * over
