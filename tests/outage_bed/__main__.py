"""Outages on two nodes with real storage and cut power: by hand, or by the controller.

Exit codes: 0 every run holds, 1 one is broken or missing, 2 no bed available.

python -m tests.outage_bed --list
python -m tests.outage_bed plain finalizer           # each by all who can act in it; about two minutes a run
python -m tests.outage_bed plain --actor hand
python -m tests.outage_bed --all --seconds 300       # what the results do not have yet, in so long
python -m tests.outage_bed --pairs 3                 # by hand and by the controller in turn, more of them
python -m tests.outage_bed --table                   # what the results come to
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.beds.rootfs import Unavailable, cache_folder
from tests.node.csi.programs import Programs, csi
from tests.outage_bed.results import KEPT, PAGE, STORM_KEPT, Results, comparison, page, table
from tests.outage_bed.runs import run
from tests.outage_bed.scenarios import BOTH, SCENARIOS
from tests.outage_bed.stage import ROUND_SECONDS, NotMade

RESULTS = "outages.jsonl"
#: A bed that fails to start is no proof about the actor.
TRIES = 2
#: Each pair cuts later by this part of the round, so that any number of pairs spreads evenly.
STEP = 0.382


def chosen(asked: argparse.Namespace, results: Results) -> list[tuple[str, str]]:
    found = [
        (name, actor)
        for name in asked.names or SCENARIOS
        for actor in SCENARIOS[name].actors
        if not asked.actor or actor in asked.actor
    ]
    return [each for each in found if asked.names or not results.has(*each)]


def run_all(asked: argparse.Namespace, results: Results, programs: Programs) -> int:
    """How many are broken or were not made."""
    began = time.monotonic()
    failed = 0
    for name, actor in chosen(asked, results):
        if time.monotonic() - began + SCENARIOS[name].seconds <= asked.seconds:
            failed += not run_one(results, programs, name, actor)
    return failed


def run_pairs(asked: argparse.Namespace, results: Results, programs: Programs) -> int:
    """The same for pairs; if the first run fails, skip the second."""
    began = time.monotonic()
    failed = 0
    for name in asked.names or ["plain"]:
        for pair in range(results.next_pair(), results.next_pair() + asked.pairs):
            if time.monotonic() - began + 2 * SCENARIOS[name].seconds > asked.seconds:
                break
            failed += not all(run_one(results, programs, name, actor, pair) for actor in BOTH)
    return failed


def run_one(results: Results, programs: Programs, name: str, actor: str, pair: int | None = None) -> bool:
    """Does it hold?"""
    moment_seconds = None if pair is None else round(pair * STEP % 1 * ROUND_SECONDS, 1)
    for _ in range(TRIES):
        try:
            row = run(name, actor, programs, results.kept(name, actor), moment_seconds)
            break
        except NotMade as error:
            print(f"{name} by {actor}: not made: {error}", flush=True)
    else:
        return False
    if pair is not None:
        row |= {"pair": pair, "moment": moment_seconds}
    results.write(row)
    marks = ", ".join(f"{mark} {at}" for mark, at in row["seconds"].items())
    verdict = "BROKEN" if row["broken"] else "holds"
    print(f"{name} by {actor}: {verdict} ({row['took']} s): {marks}", flush=True)
    for line in row["broken"]:
        print(f"    {line}", flush=True)
    return not row["broken"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.outage_bed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="SCENARIO", help="one run of each, also where the results have it"
    )
    parser.add_argument("--all", action="store_true", help="all that the results do not have")
    parser.add_argument("--actor", action="append", help="only runs in which this one acts")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin none that would take longer"
    )
    parser.add_argument(
        "--results", type=Path, default=cache_folder() / RESULTS, help="one JSON line a run (%(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="the scenarios")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="so many more pairs of runs")
    parser.add_argument("--table", action="store_true", help="what the results come to")
    parser.add_argument("--page", action="store_true", help="keep it, and write docs/performance-outage.md")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in SCENARIOS]:
        parser.error(f"there is no scenario {', '.join(unknown)}: see --list")
    results = Results(asked.results)
    if asked.table:
        print(f"{table(results)}\n\n{comparison(results)}")
        return 0
    if asked.page:
        kept = Results(KEPT)
        kept.keep(results.all)
        figures = json.loads(STORM_KEPT.read_text()) if STORM_KEPT.exists() else None
        PAGE.write_text(page(kept, PAGE.read_text(), figures))
        return 0
    if asked.list or not (asked.names or asked.all or asked.pairs):
        for name, scenario in SCENARIOS.items():
            print(f"{name:22} {'/'.join(scenario.actors):16} {scenario.seconds:4} s  {scenario.run.__doc__}")
        return 0
    try:
        return 1 if (run_pairs if asked.pairs else run_all)(asked, results, csi()) else 0
    except Unavailable as error:
        print(f"no bed can be had here: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
