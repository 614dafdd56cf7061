"""The promises beside the kubelet that are no matter of speed, each measured on the same node in turn.

python -m benchmarks.node_figures requests --runs 3       # 1 250 requests to four pods on two nodes
python -m benchmarks.node_figures daemonset grant killed start
python -m benchmarks.node_figures runtime_killed runtime_hung --runs 1
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import trio

from benchmarks.report import Figure, conclude, median, parser, say
from tests.node import incidents
from tests.node.bed import Bed
from tests.node.bringing_up import node_bed
from tests.node.contenders import ALL, Contender
from tests.node.incidents import Incident
from tests.node.shutdowns import PRIORITIES, make_priorities

#: One run, on a bed, of one contender, with a folder for what it writes.
Measured = Callable[[Bed, Contender, Path], Awaitable[Incident]]
PODS = float(len(PRIORITIES))


class Limit(NamedTuple):
    """Of one of the counts of an incident; it holds for Ebbtide, in every run. ``at_least``: a lower one."""

    count: str
    what: str
    unit: str
    limit: float | None
    at_least: bool = False


class Measure(NamedTuple):
    """``contenders`` in turn; ``nodes`` of the bed."""

    runs_once: Measured
    contenders: tuple[str, ...]
    limits: tuple[Limit, ...]
    nodes: int = 1


def _stop_signals(runs_once: Measured, what: str) -> Measure:
    """Of a runtime that is not there when the pods are stopped."""
    limits = (
        Limit("without", f"{what}: pods without a stop signal, of 42", "pods", 0),
        Limit("twice", "the same: pods with two", "pods", None),
        Limit("seconds", "the same: PowerOff until logind goes on", "s", None),
    )
    return Measure(runs_once, ("kubelet", "cri", "api"), limits)


MEASURES = {
    "requests": Measure(
        incidents.lost_requests,
        ("kubelet", "cri", "api"),
        (Limit("lost", "requests lost of 1 250 through a Service", "requests", 0),),
        nodes=2,
    ),
    "daemonset": Measure(
        incidents.newcomers,
        ("kubelet", "cri", "api"),
        (
            Limit("created", "pods that two DaemonSets made on the node in a 30 s shutdown", "pods", None),
            Limit("rejected", "of them rejected there", "pods", 0),
        ),
    ),
    "grant": Measure(
        incidents.small_grant,
        ("kubelet", "cri", "api"),
        (
            Limit(
                "signalled", "10 s granted of 30 s: pods signalled before logind went on", "pods", PODS, True
            ),
            Limit("in order", "the same: in the order of their priorities (1: yes)", "", 1, True),
            Limit("seconds", "the same: PowerOff until logind goes on", "s", incidents.LIMIT_SECONDS),
        ),
    ),
    "killed": Measure(
        incidents.killed,
        ("kubelet", "cri", "api"),
        (
            Limit("cut off", "killed in mid-shutdown: pods that still ran when logind went on", "pods", 0),
            Limit("started again", "the same: containers that were started again", "containers", 0),
            Limit("hooks twice", "the same: hooks that ran twice", "hooks", 0),
        ),
    ),
    "runtime_killed": _stop_signals(incidents.runtime_killed, "containerd killed three times"),
    "runtime_hung": _stop_signals(incidents.runtime_hung, "containerd hangs in wave 1"),
    "start": Measure(
        incidents.armed, ("auto",), (Limit("seconds", "from the start of the process to armed", "s", 0.5),)
    ),
}


async def measure(wanted: Measure, runs: int) -> dict[str, list[Incident]]:
    """In turn, so that all see the same machine."""
    found: dict[str, list[Incident]] = {name: [] for name in wanted.contenders}
    names = [f"node-{number}" for number in range(1, wanted.nodes + 1)]
    async with node_bed(names) as bed:
        await make_priorities(bed)
        for number in range(runs):
            for name in wanted.contenders:
                with tempfile.TemporaryDirectory(prefix="ebbtide-run.") as folder:
                    found[name].append(await wanted.runs_once(bed, ALL[name], Path(folder)))
                say(f"run {number + 1}, {ALL[name].label}: {found[name][-1].figures}")
    return found


def figures(wanted: Measure, found: dict[str, list[Incident]]) -> list[Figure]:
    """Each count's median, and for Ebbtide the limit."""
    rows = []
    for limit in wanted.limits:
        for name, incidents_of in found.items():
            values = [each.figures[limit.count] for each in incidents_of]
            ours = None if ALL[name].graceful_kubelet else limit.limit
            spread = f"{len(values)} runs, {min(values):.3g} to {max(values):.3g}"
            what = f"{limit.what}, {ALL[name].label}"
            rows.append(Figure(what, median(values), ours, limit.unit, spread, limit.at_least))
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("names", nargs="+", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    options.add_argument("--runs", type=int, default=3, help="how often each (3)")
    options.add_argument("--contender", action="append", choices=ALL, help="default: those of the measure")
    asked = options.parse_args()
    worst = 0
    for name in asked.names:
        wanted = MEASURES[name]
        if asked.contender:
            wanted = wanted._replace(contenders=tuple(asked.contender))
        found = trio.run(measure, wanted, asked.runs)
        plain = {contender: [each.figures for each in runs] for contender, runs in found.items()}
        extra = {"command": f"benchmarks.node_figures {name}", "runs": plain}
        worst = max(worst, conclude(f"node_{name}", asked, figures(wanted, found), extra))
    return worst


if __name__ == "__main__":
    sys.exit(main())
