"""A whole shutdown of 300 process pods in three waves, beside the least that it can cost.

The bare loop signals all processes of a wave and waits for them, and does nothing else. Ebbtide's time runs
from the request to logind to the moment at which logind, its last lock released, starts the power-off. Both
alternate, on the same programs. The limit is made from the bare loop's time and a bare sync's, measured here.

    sudo python -m benchmarks.waves --rounds 7
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from benchmarks import bare_loop
from benchmarks.node import Node, node
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say

PODS, WAVES = bare_loop.WAVES * 100, bare_loop.WAVES
SLOW_SECONDS = 0.5
POD_SECONDS_MAX = 0.0003
SYNCS_A_WAVE = 2
SLOW_RATIO_MAX = 1.05
SYNCS = 20
SYNC_BYTES = 4096
NS_PER_SECOND = 1_000_000_000


class Times:
    """Seconds of each round."""

    def __init__(self) -> None:
        self.bare: list[float] = []
        self.ours: list[float] = []


class Bench:
    def __init__(self, on: Node, pods: int) -> None:
        self.node, self.pods = on, pods
        self.times = {0.0: Times(), SLOW_SECONDS: Times()}
        self.shutdowns = 0
        self.cost = 0.0
        self.syncs: list[float] = []

    async def run(self, rounds: int) -> None:
        self.node.start()
        await self.node.until_said("armed: ")
        for at in range(rounds):
            for seconds, times in self.times.items():
                times.bare.append(await self.bare(seconds))
                times.ours.append(await self.ours(seconds))
                self.syncs.append(sync_seconds(self.node.folder))
                say(f"round {at}, {seconds} s: bare {times.bare[-1]:.3f} s, ebbtide {times.ours[-1]:.3f} s")

    async def bare(self, seconds: float) -> float:
        pidfds = bare_loop.start(bare_loop.programs(self.pods, seconds))
        await quiet()
        began = time.perf_counter()
        for wave in range(WAVES):
            bare_loop.end_wave(pidfds[wave::WAVES])
        return time.perf_counter() - began

    async def ours(self, seconds: float, meter: Callable[[], float] = time.perf_counter) -> float:
        """From the request to the start of the power-off; ``cost`` is what ``meter`` grew by meanwhile."""
        for pod, command in enumerate(bare_loop.programs(self.pods, seconds)):
            self.node.pod(f"r{self.shutdowns:04}-{pod:04}", command, pod % WAVES * 1000)
        await self.node.until_running(self.pods)
        await quiet()
        before = meter()
        asked_ns = await self.node.bed.power_off()
        self.shutdowns += 1
        await self.node.until_said("lock released", self.shutdowns)
        self.cost = meter() - before
        await self.node.until_said("armed: ", self.shutdowns + 1)
        starts = await self.node.bed.starts()
        for path in self.node.pods.iterdir():
            path.unlink()
        return (starts[-1][1] - asked_ns) / NS_PER_SECOND


def sync_seconds(folder: Path) -> float:
    """A bare append and fdatasync on the journal's file system, median."""
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken)


def figures(times: dict[float, Times], pods: int, sync: float) -> list[Figure]:
    quick, slow = times[0.0], times[SLOW_SECONDS]
    extra = POD_SECONDS_MAX * pods + SYNCS_A_WAVE * WAVES * sync
    # Pairs: each of our rounds beside the bare loop's just before it.
    quick_over = median([ours - bare for ours, bare in zip(quick.ours, quick.bare, strict=True)])
    slow_ratio = median([ours / bare for ours, bare in zip(slow.ours, slow.bare, strict=True)])
    basis = f"0.3 ms a pod + 6 syncs of {sync * 1000:.2f} ms"
    return [
        Figure(f"{pods} pods that exit at once, the bare loop", median(quick.bare), None, "s"),
        Figure(f"{pods} pods that exit at once, ebbtide", median(quick.ours), None, "s"),
        Figure(f"{pods} pods that exit at once, over the bare loop", quick_over, extra, "s", basis),
        Figure(f"{pods} pods that need {SLOW_SECONDS} s, the bare loop", median(slow.bare), None, "s"),
        Figure(f"{pods} pods that need {SLOW_SECONDS} s, ebbtide", median(slow.ours), None, "s"),
        Figure(
            f"{pods} pods that need {SLOW_SECONDS} s, ratio to the bare loop", slow_ratio, SLOW_RATIO_MAX, "x"
        ),
    ]


async def measure(rounds: int, pods: int) -> list[Figure]:
    async with node(WAVES) as on:
        await on.bed.start_unit("failed")
        bench = Bench(on, pods)
        await bench.run(rounds)
        return figures(bench.times, pods, median(bench.syncs))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7, help="pairs of each kind (default 7)")
    options.add_argument("--pods", type=int, default=PODS, help=f"pods (default {PODS})")
    arguments = options.parse_args()
    found = trio.run(measure, arguments.rounds, arguments.pods)
    return conclude("waves", arguments, found, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
