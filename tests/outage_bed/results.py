"""The runs' results: a JSON line each, and the tables of docs/performance-outage.md.

The last run of each scenario and actor counts. Paired runs carry their pair's number and count only in the
comparison. `KEPT` stores the page's rows, so that a few new runs leave the others.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.outage_bed.scenarios import CONTROLLER, HAND, NOBODY, SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance-outage.md"
KEPT = ROOT / "benchmarks" / "results" / "outages.jsonl"
STORM_KEPT = KEPT.with_name("storm.json")
#: The storm's rates are of so long each.
STORM_STEP_SECONDS = 10
#: A row's fields on the page.
KEPT_FIELDS = (
    *("scenario", "actor", "pair", "moment", "kubernetes"),
    *("seconds", "collector", "decided_ms", "broken"),
)
COLUMNS = ("NotReady", "tainted", "pods gone", "detached", "ready elsewhere", "untainted")
HEADS = ("scenario", *COLUMNS, "taint after proof and NotReady, ms")
PAIR_HEADS = ("scenario", "pairs", "by", "tainted", "collector's wait", "ready elsewhere: median")

HEADING = """# Outages, measured

*Written by `python -m tests.outage_bed --page`; do not edit by hand.*

Kubernetes {version}, two nodes on one machine with two processors and other load; a strict CSI driver with
Kubernetes' own attacher and provisioner; an emulated management controller (sushy-tools) switches each node.
The controller-manager has a monitor grace of 15 s; `defaults` has 50 s.

Each run checks: no node wrote after it had lost the volume, and no call broke CSI's order (unless the
scenario is about that); the journal was read back from the API server and replays to the byte; Jaeger returns
its trace span by span; every pod's and volume's end is on record. The page names runs that broke one.

`sudo python -m tests.outage_bed --list` explains the scenarios; `--help` has the other commands.

## Each course

Seconds after the cut, of each scenario's last run: the taint by hand at NotReady; by the controller. `none`:
no action at first. In `api-away` both nodes look dead, so the storm brake delays the controller's taint; in
`paused` a person's pause does. Of a Node that is gone the timer of six minutes detaches (`node-deleted`).

"""
PAIRS = """
## By hand and by the controller in turn

The collector removes pods every 20 s, so a recovery depends on the taint's moment in this round. Both runs of
a pair are cut at the same moment of the round and of the lease's renewals. The other node's kubelet reports
its status every second, because it mounts a volume only once its status names it.

"""

STORM_HEAD = "\n## A hundred nodes at once\n"
STORM = """
`sudo python -m benchmarks.storm`: a real API server, {nodes} nodes that renew their leases every 10 s,
{pods} pods, one controller that may have 5 nodes out of service. After a quiet minute {out} nodes die
within seconds, a person declares all of them off, and the run continues for {seconds} s.

* processor at rest: {idle_percent:.1f} % (at most 2)
* resident memory at rest: {idle_mib:.0f} MiB, at most {peak_mib:.0f} (limit 150)
* in the storm: at most {storm_peak_mib:.0f} MiB (limit 150)
* requests a second, the most in any 10 s of the storm: {most:.1f} (at most 20)
* nodes out of service at any moment: {tainted} (at most 5)
* nodes that died without an outage on record: {missing}
"""

Row = dict[str, Any]


class Results:
    """The rows of ``file`` in order."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.all: list[Row] = [json.loads(line) for line in lines]

    @property
    def rows(self) -> dict[tuple[str, str], Row]:
        return {(each["scenario"], each["actor"]): each for each in self.all if "pair" not in each}

    def has(self, name: str, actor: str) -> bool:
        return (name, actor) in self.rows

    def pairs(self, name: str) -> list[tuple[Row, Row]]:
        """By hand and by the controller, where both hold."""
        found: dict[int, Row] = {}
        made = []
        for each in self.all:
            if each["scenario"] == name and "pair" in each and not each["broken"]:
                if each["actor"] == HAND:
                    found[each["pair"]] = each
                elif each["pair"] in found:
                    made.append((found.pop(each["pair"]), each))
        return made

    def next_pair(self) -> int:
        return max((each["pair"] for each in self.all if "pair" in each), default=-1) + 1

    def kept(self, name: str, actor: str) -> Path:
        return self.file.with_suffix("") / f"{name}-{actor}"

    def keep(self, rows: Iterable[Row]) -> None:
        """Replace the rows of the same scenario, actor and pair."""
        found = {(row["scenario"], row["actor"], row.get("pair")): row for row in (*self.all, *rows)}
        self.all = [{name: row[name] for name in KEPT_FIELDS if name in row} for row in found.values()]
        self.file.write_text("".join(json.dumps(row) + "\n" for row in self.all))

    def write(self, row: Row) -> None:
        self.all.append(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table(results: Results) -> str:
    """In the order of the scenarios, a row each."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for name, scenario in SCENARIOS.items():
        if rows := {actor: row for actor in scenario.actors if (row := results.rows.get((name, actor)))}:
            by = ", ".join("none" if actor == NOBODY else actor for actor in rows)
            label = f"`{name}`" if by == f"{HAND}, {CONTROLLER}" else f"`{name}` ({by})"
            seconds = (
                "; ".join(str(row["seconds"].get(mark, "–")) for row in rows.values()) for mark in COLUMNS
            )
            decided = (str(row["decided_ms"]) for row in rows.values() if "decided_ms" in row)
            lines.append(f"| {' | '.join([label, *seconds, '; '.join(decided) or '–'])} |")
    return "\n".join(lines)


def comparison(results: Results) -> str:
    lines = [f"| {' | '.join(PAIR_HEADS)} |", "|---" * len(PAIR_HEADS) + "|"]
    for name in SCENARIOS:
        if pairs := results.pairs(name):
            for actor, rows in zip((HAND, CONTROLLER), zip(*pairs, strict=True), strict=True):
                tainted, ready = (
                    [row["seconds"][mark] for row in rows] for mark in ("tainted", "ready elsewhere")
                )
                waits = statistics.median(row["collector"] for row in rows)
                cells = [f"`{name}`", len(pairs), actor, f"{statistics.median(tainted):.1f}", f"{waits:.1f}"]
                cells += [f"{statistics.median(ready):.1f}"]
                lines.append(f"| {' | '.join(map(str, cells))} |")
            later = [
                two["seconds"]["ready elsewhere"] - one["seconds"]["ready elsewhere"] for one, two in pairs
            ]
            lines.append(f"| `{name}` | {len(pairs)} | difference | | | {statistics.median(later):+.1f} |")
    return "\n".join(lines)


def storm(figures: Row) -> str:
    """Of `benchmarks.storm`, each beside its limit."""
    worst = {
        "most": max(figures["requests_a_second"]),
        "tainted": max(figures["out_of_service"]),
        "missing": figures["out"] - figures["journals"],
        "seconds": len(figures["requests_a_second"]) * STORM_STEP_SECONDS,
    }
    return STORM_HEAD + STORM.format(**figures, **worst)


def page(results: Results, former: str = "", figures: Row | None = None) -> str:
    """``former``: the old page, which keeps its pairs if there are no new ones. ``figures``: of a storm."""
    version = next((each["kubernetes"] for each in reversed(results.all)), "")
    if any(results.pairs(name) for name in SCENARIOS):
        pairs = PAIRS + comparison(results) + "\n"
    else:
        pairs = "".join(former.partition(STORM_HEAD)[0].partition(PAIRS)[1:])
    broken = [
        f"Broken: `{name}` by {actor}: {'; '.join(row['broken'])}"
        for (name, actor), row in results.rows.items()
        if row["broken"]
    ]
    listed = "".join(f"\n{line}\n" for line in broken)
    return (
        HEADING.format(version=version)
        + f"{table(results)}\n{listed}{pairs}"
        + (storm(figures) if figures else "")
    )
