"""Simulated shutdowns: the command from its start to its end, and how many a minute on one processor.

A thousand synthetic pods as somebody types it, checks and summary included; then 30-pod shutdowns one after
the other in one process, each run, checked (its journal replayed from the written bytes, every invariant), as
in a test of an unreleased change.

    python -m benchmarks.simulate --rounds 15
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import trio

from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, percentile, say
from ebbtide.replay.sim.simulate import SimulationRequest, simulate

PODS, COMMAND_SECONDS_MAX = 1000, 1.0
NODE_PODS, RUNS_A_MINUTE = 30, 1000
COMMAND = [sys.executable, "-c", "from ebbtide.cli import main; main()", "simulate", "--synthetic", str(PODS)]


def command() -> tuple[float, float]:
    """Seconds by the clock and by the processor, from the start of the process to its end."""
    trio.run(quiet)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(COMMAND, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    say(f"{PODS} pods: {seconds:.2f} s, {busy:.2f} s of them computing")
    return seconds, busy


def runs_a_minute(first_seed: int, count: int) -> float:
    """Checked runs a minute of processor time."""
    began = time.process_time()
    for seed in range(first_seed, first_seed + count):
        run = simulate(SimulationRequest(synthetic=NODE_PODS), seed)
        assert not run.breaches, run.breaches
    rate = count * 60 / (time.process_time() - began)
    say(f"{rate:.0f} runs a minute")
    return rate


def measure(rounds: int, runs: int) -> list[Figure]:
    times = [command() for _ in range(rounds)]
    walls, busy = [wall for wall, _ in times], [each for _, each in times]
    rates = [runs_a_minute(index * runs, runs) for index in range(rounds)]
    what = f"simulate --synthetic {PODS}, start to finish"
    return [
        Figure(f"{what}, p50", median(walls), COMMAND_SECONDS_MAX, "s"),
        Figure(f"{what}, p99", percentile(walls, 0.99), None, "s"),
        Figure(f"{what}, processor time, p50", median(busy), None, "s"),
        Figure(
            f"checked shutdowns of {NODE_PODS} pods, one processor",
            median(rates),
            RUNS_A_MINUTE,
            "a minute",
            at_least=True,
        ),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15, help="commands, and series of runs (default 15)")
    options.add_argument("--runs", type=int, default=100, help="runs of a series (default 100)")
    arguments = options.parse_args()
    figures = measure(arguments.rounds, arguments.runs)
    return conclude("simulate", arguments, figures, {"rounds": arguments.rounds, "runs": arguments.runs})


if __name__ == "__main__":
    sys.exit(main())
