"""What a straggler was doing just before SIGKILL, by ``/proc``: the first process and its tree."""

from __future__ import annotations

import time

import trio

from actors.edges.cri.table import ContainerEntry
from actors.edges.process import proc
from actors.edges.process.autopsy import AUTOPSY_NS_MAX, examine
from actors.edges.process.scan import Process
from actors.edges.process.sweep import Root, members
from events.model import ProcessReport


async def autopsy(entry: ContainerEntry) -> tuple[ProcessReport, ...]:
    """Empty where the runtime shows no process on this machine."""
    if not entry.pid:
        return ()
    deadline_ns = time.monotonic_ns() + AUTOPSY_NS_MAX
    return await trio.to_thread.run_sync(_look, entry.pid, entry.start_ticks, deadline_ns)


def _look(pid: int, start_ticks: int, deadline_ns: int) -> tuple[ProcessReport, ...]:
    """Reads no environment, so nothing here waits for a process that hangs."""
    stats = (proc.read_stat(each) for each in proc.pids())
    look = [Process(stat, None) for stat in stats if stat is not None]
    tree = members(look, {("", ""): Root(pid, start_ticks)})
    return examine([item.stat for item in tree], deadline_ns)
