"""Run simulated Kubernetes nodes by hand: inspect one, or search many for a failure.

python -m tests.replay.sim --mode api --seed 42 -v
python -m tests.replay.sim --seeds 100000 --fresh
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from ebbtide.events.base import NS_PER_SECOND, Order, Record
from ebbtide.events.facts import Tick
from ebbtide.replay.sim.sim_node import Happening
from tests.long_run import options_of, run_many, seeds_of
from tests.replay.sim.nodes import MODES, PODS, Name, Node, fewest, try_out

COLUMNS = "{at:>12.6f} {boot:>2} {who:<22.22} {what:<20.20} {rest}"


def show(tried: Node) -> None:
    """Node events and decisions in world time."""
    lines: list[tuple[int, int, str]] = []
    for at, seen in enumerate(tried.run.log.seen):
        lines.append((seen.at_ns, at, _happening(seen)))
    for boot, booted in enumerate(tried.run.boots, 1):
        for at, record in enumerate(booted.records):
            if not isinstance(record.event, Tick):
                at_ns = booted.since_ns + record.mono_ns
                lines.append((at_ns, at, _record(at_ns, boot, record)))
    print("\n".join(line for *_, line in sorted(lines, key=lambda each: each[0])))


def _happening(seen: Happening) -> str:
    rest = " ".join(
        filter(None, (seen.uid, seen.container, seen.detail, f"by {seen.life}" if seen.life else ""))
    )
    return COLUMNS.format(
        at=seen.at_ns / NS_PER_SECOND, boot=seen.boot, who="node", what=seen.what, rest=rest
    )


def _record(at_ns: int, boot: int, record: Record) -> str:
    event = record.event
    rest = event.key if isinstance(event, Order) else repr(event).partition("(")[2][:-1][:160]
    who = f"{record.seq} {record.actor}"
    return COLUMNS.format(at=at_ns / NS_PER_SECOND, boot=boot, who=who, what=type(event).__name__, rest=rest)


def names(options: argparse.Namespace) -> Iterator[Name]:
    """The chosen nodes; many seeds are spread over all modes."""
    if seeds := seeds_of(options):
        for seed in seeds:
            yield Name(seed, options.mode or MODES[seed % len(MODES)], options.pods)
    else:
        yield Name(options.seed, options.mode or MODES[0], options.pods, tuple(options.without))


def main() -> int:
    options = _options()

    def one(name: Name) -> Node:
        tried = try_out(name)
        if options.verbose:
            show(tried)
        return tried

    return run_many(names(options), one, fewest, "nodes", options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.replay.sim", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="run this one (0)")
    parser.add_argument(
        "--mode", choices=MODES, help="the daemon's; of many seeds they take turns without it"
    )
    parser.add_argument("--pods", type=int, default=PODS, metavar="N", help=f"on the node ({PODS})")
    return options_of(parser)


if __name__ == "__main__":
    sys.exit(main())
