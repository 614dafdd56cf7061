"""A what-if as somebody types it, on a long shutdown; and advice from a fleet.

A node of 110 pods that takes ten minutes to go down: pods that need minutes, pods that never end, hooks. The
journal is read, the shutdown executed again as it was, then decided anew twice (best and worst case) under
other periods, and both laid side by side. Beside it: advice from 200 nodes' journals in one folder.

    python -m benchmarks.what_if --rounds 15
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Hook, Period, Pod, Settings
from ebbtide.replay.sim.scenario import ContainerPlan, HookPlan, PodPlan, SimulationPlan
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, simulate

PODS, COMMAND_SECONDS_MAX = 110, 1.0
PERIODS = ((0, 300), (1000, 200), (2000, 100))
NODES, NODE_PODS = 200, 30
CONFIG = """\
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
  - {priority: 0, shutdownGracePeriodSeconds: 400}
  - {priority: 1000, shutdownGracePeriodSeconds: 100}
  - {priority: 2000, shutdownGracePeriodSeconds: 150}
"""


def _plan(number: int) -> PodPlan:
    """Every tenth never ends; the others take from seconds to minutes, every third has a hook."""
    priority, period = PERIODS[number % len(PERIODS)]
    hook = Hook(kind="exec", detail="drain") if number % 3 == 1 else None
    pod = Pod(
        uid=f"8f2d6c1e-3b7a-4d52-9a55-{number:012x}",
        namespace="shop",
        name=f"web-{number}",
        priority=priority,
        grace_seconds=600,
        containers=(Container(name="main", hook=hook),),
    )
    stop_ns = None if number % 10 == 0 else (1 + number * period // (2 * PODS)) * NS_PER_SECOND
    manner = ContainerPlan(stop_ns=stop_ns, reap_ns=5_000_000, hook=HookPlan(number % 20 * NS_PER_SECOND))
    return PodPlan(pod, {"main": manner})


def record(folder: Path) -> int:
    """The journal of the long shutdown; the number of its records."""
    periods = tuple(Period(priority=priority, seconds=seconds) for priority, seconds in PERIODS)
    plan = SimulationPlan(Settings(by_pod_priority=periods), tuple(map(_plan, range(PODS))))
    machine = Machine(plan).run()
    _keep(machine.journal.files(), folder)
    return len(machine.journal.records)


def record_fleet(folder: Path) -> None:
    for seed in range(NODES):
        _keep(
            simulate(SimulationRequest(synthetic=NODE_PODS, calm=True), seed).files(), folder / f"node-{seed}"
        )


def _keep(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def command(*arguments: str | Path) -> tuple[float, float, bytes]:
    """Seconds by the clock and by the processor, and what it printed."""
    trio.run(quiet)
    program = [sys.executable, "-c", "from ebbtide.cli import main; main()", "replay", *map(str, arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(program, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    say(f"{arguments[0]}: {seconds:.2f} s, {busy:.2f} s of them computing")
    return seconds, busy, done.stdout


def measure(folder: Path, rounds: int) -> list[Figure]:
    long, fleet, config = folder / "long", folder / "fleet", folder / "new.yaml"
    events = record(long)
    record_fleet(fleet)
    config.write_text(CONFIG)
    asked = ("what-if", "--journal", long, "--config", config, "-o", "json")
    found = [command(*asked) for _ in range(rounds)]
    document = json.loads(found[0][2])
    took = document["totalSeconds"]["then"]
    assert took > 590, "the shutdown takes ten minutes"
    assert len(document["pods"]) == PODS
    advised = [command("advise", "--journal", fleet, "-o", "json") for _ in range(3)]
    return [
        Figure(
            f"what-if on a shutdown of {PODS} pods in {took / 60:.0f} min, start to finish",
            median(_column(found, 0)),
            COMMAND_SECONDS_MAX,
            "s",
            f"{events} records",
        ),
        Figure("the same, processor time", median(_column(found, 1)), COMMAND_SECONDS_MAX, "s"),
        Figure(
            f"advice from {NODES} nodes' journals of {NODE_PODS} pods", median(_column(advised, 0)), None, "s"
        ),
    ]


def _column(found: Sequence[tuple[float, float, bytes]], at: int) -> list[float]:
    return [float(each[at]) for each in found]  # type: ignore[arg-type]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=9, help="runs of the command (default 9)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = measure(Path(folder), arguments.rounds)
    return conclude("what_if", arguments, figures, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
