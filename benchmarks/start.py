"""From exec to armed, warm: until logind lists our lock.

Three kinds of start alternate: with an empty journal, with a month of idle journal behind it (`idle_month`, a
megabyte every day, which is the most an idle day may write), and with that and 100 manifests to read. Beside
them the bare interpreter with the libraries imported, which no start can beat.

    sudo python -m benchmarks.start --rounds 20
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import trio

from benchmarks.idle_month import JOURNAL_ID, make
from benchmarks.node import Node, end_all, node
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, percentile, say

LIMIT_SECONDS = 0.5
PODS = 100
LIBRARIES = "import trio, msgspec, jeepney, click, yaml"

EMPTY, MONTH, PODS_TOO, BARE = (
    "an empty journal",
    "a month of idle journal",
    f"that and {PODS} manifests",
    "bare",
)


class Starts:
    def __init__(self, on: Node, month: Path) -> None:
        self.node, self.month = on, month
        self.seconds: dict[str, list[float]] = {EMPTY: [], MONTH: [], PODS_TOO: [], BARE: []}

    async def round(self) -> None:
        self.seconds[BARE].append(bare_seconds())
        await self.start(EMPTY)
        shutil.copytree(self.month, self.node.folder / "journal", dirs_exist_ok=True)
        await self.start(MONTH)
        for pod in range(PODS):
            self.node.pod(f"pod-{pod:04}", ["sleep", "3600"], pod % 3 * 1000)
        await self.start(PODS_TOO)
        for path in self.node.pods.iterdir():
            path.unlink()
        say(", ".join(f"{kind} {found[-1]:.3f} s" for kind, found in self.seconds.items()))

    async def start(self, kind: str) -> None:
        if kind == EMPTY:
            shutil.rmtree(self.node.folder / "journal", ignore_errors=True)
        await quiet()
        began = time.perf_counter()
        self.node.start()
        self.seconds[kind].append(await self.node.until_armed() - began)
        await self.node.until_said("armed: ")
        if kind == PODS_TOO:
            await self.node.until_running(PODS)
        self.node.stop()
        end_all(self.node.runtime)
        shutil.rmtree(self.node.runtime)


def bare_seconds() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", LIBRARIES], check=True)
    return time.perf_counter() - began


def figures(seconds: dict[str, list[float]]) -> list[Figure]:
    rows = [Figure("interpreter and libraries alone, p50", median(seconds[BARE]), None, "s")]
    for kind in (EMPTY, MONTH, PODS_TOO):
        rows.append(Figure(f"start to armed with {kind}, p50", median(seconds[kind]), LIMIT_SECONDS, "s"))
        rows.append(Figure(f"start to armed with {kind}, p90", percentile(seconds[kind], 0.9), None, "s"))
    return rows


async def measure(rounds: int) -> dict[str, list[float]]:
    async with node() as on:
        month = on.folder / "month"
        await make(month)
        (month / "lock").unlink()
        (month / "reserve").unlink(missing_ok=True)
        starts = Starts(on, month)
        for _ in range(rounds):
            await starts.round()
    return starts.seconds


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20, help="starts of each kind (default 20)")
    arguments = options.parse_args()
    seconds = trio.run(measure, arguments.rounds)
    samples: dict[str, object] = {"rounds": arguments.rounds, "journal": JOURNAL_ID.hex()}
    return conclude("start", arguments, figures(seconds), samples)


if __name__ == "__main__":
    sys.exit(main())
