"""Hundreds of pods on one node: does what a pod costs stay what it is, in time and in memory?

Each mode ends the smaller number and the larger one, in turn on one node. Linear means: a pod costs no more
among the many than among the few, but for a quarter. Waves are so long that nobody is cut off: what is
measured is the daemon, and not who had to be killed.

python -m benchmarks.node_crowd --keep                # 105 and 500, modes cri and api; half an hour
python -m benchmarks.node_crowd --mode cri --pods 60 120
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from benchmarks.node_runs import Run, memory_of_daemon, run_once
from benchmarks.report import Figure, conclude, median, parser, say
from tests.node.bringing_up import node_bed
from tests.node.contenders import ALL, Setting, fresh
from tests.node.shutdowns import make_priorities, waves

MODES = ("cri", "api")
FEW, MANY = 105, 500
WAVE_SECONDS = 60
GROWTH_MAX = 1.25
PEAK_MIB_MAX = 120.0

#: By mode: the memory of a daemon without pods, and the runs by their number of pods.
Found = dict[str, tuple[float, dict[int, list[Run]]]]


async def measure(modes: Sequence[str], counts: Sequence[int], runs: int) -> Found:
    found: Found = {}
    async with node_bed() as bed:
        await make_priorities(bed)
        for mode in modes:
            contender = ALL[mode]
            with tempfile.TemporaryDirectory(prefix="ebbtide-run.") as folder:
                setting = Setting(waves(WAVE_SECONDS), Path(folder))
                await fresh(bed, contender, setting)
                async with contender.holds(bed, setting) as daemon:
                    assert daemon is not None
                    alone = memory_of_daemon(bed, daemon)
            say(f"{contender.label}: {alone:.1f} MiB without a pod")
            found[mode] = alone, {count: [] for count in counts}
            for _ in range(runs):
                for count in counts:
                    with tempfile.TemporaryDirectory(prefix="ebbtide-run.") as folder:
                        run = await run_once(bed, contender, waves(WAVE_SECONDS), count, False, Path(folder))
                    found[mode][1][count].append(run)
                    assert run.journal is not None
                    say(
                        f"{contender.label}, {count} pods: {run.seconds:.2f} s, {run.journal.fates} fates, "
                        f"{run.journal.killed} killed, {run.final} final, {run.peak_mib:.1f} MiB at most"
                    )
    return found


def figures(found: Found) -> list[Figure]:
    rows = []
    for mode, (alone, by_count) in found.items():
        label = ALL[mode].label
        each_ms: list[float] = []
        each_kib: list[float] = []
        for count, runs in by_count.items():
            what = f"{count} pods, {label}"
            seconds = [run.seconds for run in runs]
            spread = f"{len(runs)} runs, {min(seconds):.2f} to {max(seconds):.2f} s"
            peak = max(run.peak_mib for run in runs)
            fates = min(100.0 * run.journal.fates / count for run in runs if run.journal)
            final = min(100.0 * run.final / count for run in runs)
            each_ms.append(1000 * median(seconds) / count)
            each_kib.append(1024 * (median([run.peak_mib for run in runs]) - alone) / count)
            rows += [
                Figure(f"{what}: PowerOff until logind goes on", median(seconds), None, "s", spread),
                Figure(f"{what}: fates on record at the release", fates, 100.0, "%", "", True),
                Figure(f"{what}: final in the API at the release", final, 100.0, "%", "", True),
                Figure(f"{what}: resident memory at most", peak, PEAK_MIB_MAX, "MiB"),
            ]
        few, many = min(by_count), max(by_count)
        basis = f"linear: {each_ms[0]:.1f} and {each_ms[-1]:.1f} ms"
        rows.append(
            Figure(
                f"{label}: a pod's time among {many} against among {few}",
                each_ms[-1] / each_ms[0],
                GROWTH_MAX,
                "x",
                basis,
            )
        )
        basis = f"linear: {each_kib[0]:.1f} and {each_kib[-1]:.1f} KiB over {alone:.1f} MiB without a pod"
        rows.append(
            Figure(
                f"{label}: a pod's memory among {many} against among {few}",
                each_kib[-1] / each_kib[0],
                GROWTH_MAX,
                "x",
                basis,
            )
        )
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--pods", type=int, nargs=2, default=(FEW, MANY), help="few and many (105 500)")
    options.add_argument("--runs", type=int, default=1, help="how often each (1)")
    options.add_argument("--mode", action="append", choices=MODES, help=f"default: {', '.join(MODES)}")
    asked = options.parse_args()
    counts = sorted(asked.pods)
    found = trio.run(measure, asked.mode or MODES, counts, asked.runs)
    command = f"benchmarks.node_crowd --pods {counts[0]} {counts[1]}"
    return conclude("node_crowd", asked, figures(found), {"command": command, "runs": _plain(found)})


def _plain(found: Found) -> dict[str, Any]:
    return {
        mode: {
            str(count): [
                run._asdict() | {"journal": run.journal._asdict() if run.journal else None} for run in runs
            ]
            for count, runs in by_count.items()
        }
        for mode, (_, by_count) in found.items()
    }


if __name__ == "__main__":
    sys.exit(main())
