"""A node's shutdown by the kubelet, by Ebbtide and by bare calls: same node, same pods, runs in turn.

python -m benchmarks.node_side_by_side --pods 105 --runs 5        # pods that end at once, three priorities
python -m benchmarks.node_side_by_side --stubborn --pods 20       # one in each wave of 10 s ignores SIGTERM
python -m benchmarks.node_side_by_side --contender kubelet --contender cri
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from benchmarks.node_runs import Run, run_once
from benchmarks.plot import plot
from benchmarks.report import Figure, conclude, median, parser, say
from tests.node.bringing_up import node_bed
from tests.node.contenders import ALL, Contender
from tests.node.shutdowns import make_priorities, waves

PICTURE = Path(__file__).parents[1] / "docs" / "performance-node.svg"
#: Where a picture has no room for the whole label.
SHORT = {"kubelet": "the kubelet"}
COMPARED = ("kubelet", "cri", "api", "bare", "told")
MEMORY_MIB_MAX = 80.0
FIRST_STOP_MS_MAX = 10.0
#: What may be missed against bare calls that write the same statuses, and against the kubelet. Those alone
#: leave out half of the work, and stand there for comparison.
OVER_BARE, OF_KUBELET = {"told": 1.10, "bare": None}, {"cri": 0.42, "api": 0.70}

Runs = dict[str, list[Run]]


async def measure(contenders: Sequence[Contender], pods: int, runs: int, stubborn: bool) -> Runs:
    """In turn, so that all see the same machine."""
    found: Runs = {each.name: [] for each in contenders}
    async with node_bed() as bed:
        await make_priorities(bed)
        for number in range(runs):
            for each in contenders:
                with tempfile.TemporaryDirectory(prefix="ebbtide-run.") as folder:
                    run = await run_once(bed, each, waves(), pods, stubborn, Path(folder))
                found[each.name].append(run)
                say(f"run {number + 1}, {each.label}: {_row(run)}")
    return found


def _row(run: Run) -> str:
    told = run.journal
    journal = f", first stop {told.stop_ms:.1f} ms, {told.fates} fates, {told.killed} killed" if told else ""
    return f"{run.seconds:.2f} s, {run.final} of {run.pods} final, {run.memory_mib:.0f} MiB{journal}"


def middle(runs: list[Run], field: str) -> float:
    return median([float(getattr(run, field)) for run in runs])


def times(found: Runs, what: str, stubborn: bool) -> list[Figure]:
    """Each one's time, and the limits that are made of the others' in the same runs."""
    medians = {name: middle(runs, "seconds") for name, runs in found.items()}
    rows = []
    for name, seconds in medians.items():
        runs = [run.seconds for run in found[name]]
        spread = f"{len(runs)} runs, {min(runs):.2f} to {max(runs):.2f} s"
        rows.append(Figure(f"{what}, {ALL[name].label}", seconds, None, "s", spread))
    for name, share in ({"cri": 1.0, "api": 1.0} if stubborn else OF_KUBELET).items():
        if {name, "kubelet"} <= medians.keys():
            ratio = medians[name] / medians["kubelet"]
            rows.append(Figure(f"{what}, mode {name} against the kubelet", ratio, share, "x"))
    for name, limit in ({} if stubborn else OVER_BARE).items():
        if {"cri", name} <= medians.keys():
            ratio = medians["cri"] / medians[name]
            rows.append(Figure(f"{what}, mode cri against {ALL[name].label}", ratio, limit, "x"))
    return rows


def records(found: Runs, what: str) -> list[Figure]:
    """What the journals and the API server have at the release, at the worst; memory; the first stop."""
    rows = []
    for name, runs in found.items():
        label, told = ALL[name].label, [run.journal for run in runs if run.journal]
        final = min(100.0 * run.final / run.pods for run in runs)
        # Of bare calls this says that they did write what they are compared for.
        if name != "bare":
            limit = 100.0 if told or name == "told" else None
            rows.append(
                Figure(f"{what}: final in the API at the release, {label}", final, limit, "%", "", True)
            )
        if name not in OVER_BARE:
            memory = middle(runs, "memory_mib")
            rows.append(Figure(f"resident memory, {label}", memory, MEMORY_MIB_MAX if told else None, "MiB"))
        if told:
            fates = min(100.0 * each.fates / run.pods for each, run in zip(told, runs, strict=True))
            rows.append(
                Figure(f"{what}: fates on record at the release, {label}", fates, 100.0, "%", "", True)
            )
            stop = median([each.stop_ms for each in told])
            rows.append(Figure(f"signal to the first stop, written, {label}", stop, FIRST_STOP_MS_MAX, "ms"))
    return rows


def picture(found: Runs) -> str:
    lines = {
        SHORT.get(name, ALL[name].label): [(float(at), run.seconds) for at, run in enumerate(runs, 1)]
        for name, runs in found.items()
    }
    return plot("105 pods, three priorities: PowerOff until logind goes on", "run", "seconds", lines)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--pods", type=int, default=105, help="how many (105)")
    options.add_argument("--runs", type=int, default=5, help="how often each (5)")
    options.add_argument("--stubborn", action="store_true", help="one pod in each wave ignores SIGTERM")
    options.add_argument("--contender", action="append", choices=ALL, help=f"default: {', '.join(COMPARED)}")
    asked = options.parse_args()
    contenders = [ALL[name] for name in asked.contender or COMPARED]
    found = trio.run(measure, contenders, asked.pods, asked.runs, asked.stubborn)
    what = f"{asked.pods} pods, one stubborn in each 10 s wave" if asked.stubborn else f"{asked.pods} pods"
    if asked.keep and not asked.stubborn:
        PICTURE.write_text(picture(found))
    rows = [*times(found, what, asked.stubborn), *records(found, what)]
    command = f"benchmarks.node_side_by_side --pods {asked.pods}{' --stubborn' if asked.stubborn else ''}"
    name = "node_stubborn" if asked.stubborn else "node_obedient"
    return conclude(name, asked, rows, {"command": command, "runs": _plain(found)})


def _plain(found: Runs) -> dict[str, Any]:
    return {
        name: [run._asdict() | {"journal": run.journal._asdict() if run.journal else None} for run in runs]
        for name, runs in found.items()
    }


if __name__ == "__main__":
    sys.exit(main())
