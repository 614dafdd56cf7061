"""A fleet's journals by a pool of processes, beside the same calls in one process without it, in turns.

Processor time of all processes that take part, so that what is handed to and fro is counted: journals a
second of it. What the workers' start costs is the same for any fleet, and stands by itself.

    python -m benchmarks.fleet --nodes 600 --rounds 5
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.cli.common.saving import write_journal
from ebbtide.events.values import Period, Settings
from ebbtide.fleet.fleet_journals import Ref, journals
from ebbtide.fleet.fleet_rows import table_batches
from ebbtide.fleet.fleet_verbs import VERIFY, ask_journals, evidence_of, what_if_verb
from ebbtide.fleet.pool import over_bins, processors
from ebbtide.replay.sim.simulate import SimulationRequest, simulate

NODE_PODS = 30
SHORTER = Settings(
    by_pod_priority=tuple(
        Period(priority=priority, seconds=seconds)
        for priority, seconds in ((0, 20), (10_000, 15), (2_000_000_000, 10))
    )
)
#: Of the rate without the pool.
SHARES_MIN = {"tables": 0.85, "verify": 0.8, "what-if": 0.9, "advise": 0.85}
WORK: dict[str, Callable[[Sequence[Ref]], Any]] = {
    "tables": table_batches,
    "verify": partial(ask_journals, VERIFY),
    "what-if": partial(ask_journals, what_if_verb(SHORTER)),
    "advise": evidence_of,
}


class Took(NamedTuple):
    """Seconds of the processors, and by the clock."""

    busy: float
    clock: float


def took(work: Callable[[Sequence[Ref]], Any], refs: Sequence[Ref], jobs: int) -> Took:
    before, began = _busy(), time.perf_counter()
    for _ in over_bins(work, refs, jobs):
        pass
    return Took(_busy() - before, time.perf_counter() - began)


def _busy() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(folder: Path, nodes: int, rounds: int) -> list[Figure]:
    for seed in range(nodes):
        asked = SimulationRequest(synthetic=NODE_PODS, calm=True)
        write_journal(folder / f"node-{seed}", simulate(asked, seed).files())
    refs, jobs = journals(str(folder)), processors()
    say(f"{nodes} nodes of {NODE_PODS} pods, {sum(ref.bytes for ref in refs) / 2**20:.0f} MiB")
    began = time.process_time()
    journals(str(folder))
    figures = [Figure(f"planning {nodes} journals of a folder", time.process_time() - began, None, "s")]
    for name, work in WORK.items():
        few = refs[: jobs * 4]
        took(work, few, 1)
        start = median([took(work, few, jobs).busy - took(work, few, 1).busy for _ in range(rounds)])
        pairs = []
        for _ in range(rounds):
            pairs.append((took(work, refs, 1), took(work, refs, jobs)))
            say(f"{name}: {pairs[-1][0].busy:.2f} s alone, {pairs[-1][1].busy:.2f} s by {jobs}")
        alone = nodes / median([one.busy for one, _ in pairs])
        pooled = nodes / (median([many.busy for _, many in pairs]) - start)
        figures += [
            Figure(f"{name}, a worker's start, processor time", start / jobs, None, "s"),
            Figure(f"{name}, one process without the pool", alone, None, "journals/s"),
            Figure(
                f"{name}, a pool of {jobs}, a core",
                pooled,
                alone * SHARES_MIN[name],
                "journals/s",
                f"{SHARES_MIN[name]} × that, without the workers' start",
                at_least=True,
            ),
            Figure(
                f"{name}, by the clock, with the workers' start",
                median([one.clock / many.clock for one, many in pairs]),
                None,
                f"× with {jobs}",
            ),
        ]
    return figures


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, default=600, help="simulated nodes (default 600)")
    options.add_argument("--rounds", type=int, default=5, help="of each (default 5)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-fleet.") as folder:
        figures = measure(Path(folder), arguments.nodes, arguments.rounds)
    return conclude("fleet", arguments, figures, {"nodes": arguments.nodes, "rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
