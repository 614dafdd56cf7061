"""``python -m tests.actors.edges.logind.flooded ADDRESS ROOT``: the edge as a measured process.

Prints ``armed``, ``down`` at logind's signal, then a JSON line: the event loop's longest stall in processor
milliseconds (so other load does not count), the peak memory in MiB, and the number of facts of each kind.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import trio

from ebbtide.actors.edges.logind_edge import LogindEdge
from ebbtide.events.decisions import Arm
from ebbtide.events.facts import PrepareForShutdown
from tests.actors.edges.logind.conftest import running

#: The loop's turns; short against the measured stalls.
TICK_SECONDS = 0.001
WAIT_SECONDS_MAX = 60


class Turns:
    """Measures the longest pause between two turns of one task."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    async def run(self) -> None:
        before = time.thread_time()
        while True:
            await trio.sleep(TICK_SECONDS)
            now = time.thread_time()
            self.longest_seconds, before = max(self.longest_seconds, now - before), now


def peak_mib() -> float:
    (line,) = (row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def main(address: str, root: str) -> None:
    async with running(LogindEdge(address, root=Path(root))) as rig, trio.open_nursery() as nursery:
        ending = await rig.do(Arm(key="a"))
        turns = Turns()
        nursery.start_soon(turns.run)
        print("armed" if ending.result == "done" else ending.reason, flush=True)
        with trio.fail_after(WAIT_SECONDS_MAX):
            while not rig.facts.of(PrepareForShutdown):
                await trio.sleep(TICK_SECONDS)
        print("down", flush=True)
        report = {
            "stall_ms": turns.longest_seconds * 1000,
            "peak_mib": peak_mib(),
            "facts": Counter(type(fact).__name__ for fact in rig.facts.facts),
        }
        print(json.dumps(report), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
