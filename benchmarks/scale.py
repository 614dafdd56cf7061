"""What a shutdown costs against the number of pods: 10 to 1 000 processes that exit at once, three waves.

The whole of it under the real logind, from the request to the start of the power-off, and the daemon's own
processor time in it; beside them the bare loop. Linear means: a pod costs no more among 1 000 than among 100,
but for a quarter. ``--keep`` also draws ``docs/performance-scale.svg``.

    sudo python -m benchmarks.scale --rounds 3
"""

from __future__ import annotations

import sys

import trio

from benchmarks.idle import look
from benchmarks.node import ROOT, node
from benchmarks.plot import plot
from benchmarks.report import Figure, conclude, median, parser, say
from benchmarks.waves import WAVES, Bench

COUNTS = (10, 30, 100, 300, 1000)
GROWTH_MAX = 1.25
PICTURE = ROOT / "docs" / "performance-scale.svg"
OURS, CPU, BARE = "ebbtide", "of it, its processor time", "the bare loop"

Series = dict[str, dict[int, list[float]]]


async def measure(rounds: int, counts: tuple[int, ...]) -> Series:
    found: Series = {name: {count: [] for count in counts} for name in (OURS, CPU, BARE)}
    async with node(WAVES) as on:
        await on.bed.start_unit("failed")
        on.start()
        await on.until_said("armed: ")
        bench = Bench(on, 0)
        for _ in range(rounds):
            for count in counts:
                bench.pods = count
                found[BARE][count].append(await bench.bare(0.0))
                found[OURS][count].append(await bench.ours(0.0, lambda: look(on.pid).cpu_seconds))
                found[CPU][count].append(bench.cost)
                say(", ".join(f"{name} {times[count][-1]:.4f} s" for name, times in found.items()))
    return found


def figures(medians: dict[str, dict[int, float]], counts: tuple[int, ...]) -> list[Figure]:
    rows = []
    for name in (OURS, CPU, BARE):
        per_pod = {count: medians[name][count] / count for count in counts}
        for count in counts:
            rows.append(Figure(f"{name}, {count} pods, a pod", per_pod[count] * 1000, None, "ms"))
    for name in (OURS, CPU):
        growth = (medians[name][1000] / 1000) / (medians[name][100] / 100)
        rows.append(
            Figure(f"{name}: a pod among 1 000 against one among 100", growth, GROWTH_MAX, "x", "linear")
        )
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3, help="shutdowns of each size (default 3)")
    arguments = options.parse_args()
    found = trio.run(measure, arguments.rounds, COUNTS)
    medians = {name: {count: median(times[count]) for count in COUNTS} for name, times in found.items()}
    if arguments.keep:
        lines = {name: [(count, medians[name][count]) for count in COUNTS] for name in medians}
        title = "A whole shutdown against the number of pods"
        PICTURE.write_text(plot(title, "pods", "seconds", lines))
    return conclude("scale", arguments, figures(medians, COUNTS), {"seconds": medians})


if __name__ == "__main__":
    sys.exit(main())
