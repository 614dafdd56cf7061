"""Many seeds in a row: start, progress, and breaches.

Used by the test world (`tests.world`) and the simulated node (`tests.replay.sim`): a seed is one run, a
breach is printed with its command, and irrelevant parts are removed automatically.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ebbtide.actors.system import System
from ebbtide.replay.sim.invariants import Breach

#: The interval of progress lines.
PROGRESS_SECONDS = 5.0

#: A fresh range starts below this: collisions are rare, and it is short to type.
FRESH_BELOW = 1 << 40


#: Names have ``without``, the parts that are left out.
NameT = TypeVar("NameT", bound=Any)
RunT = TypeVar("RunT")


class Tried(NamedTuple, Generic[NameT, RunT]):
    """A finished run. Empty ``breaches``: everything held. As text: its command and the breaches."""

    name: NameT
    run: RunT
    breaches: Sequence[Breach]

    def __str__(self) -> str:
        lines = [f"{breach.invariant}: {breach.sentence}" for breach in self.breaches]
        return "\n".join([f"{self.name}", *lines])


def refuse_unknown(without: Sequence[str], parts: Sequence[str]) -> None:
    """Exits with the parts that there are."""
    if unknown := [part for part in without if part not in parts]:
        sys.exit(f"it has no {', '.join(unknown)}; it has {', '.join(parts)}")


def shrink(
    broken: Tried[NameT, RunT], parts: Sequence[str], try_out: Callable[[NameT], Tried[NameT, RunT]]
) -> Tried[NameT, RunT]:
    """The same breach without any part that can be left out.

    Repeats from the start while that helps: parts may need each other.
    """
    rules, again = {breach.invariant for breach in broken.breaches}, True
    while again:
        again = False
        for part in parts:
            if part in broken.name.without:
                continue
            less = try_out(broken.name._replace(without=(*broken.name.without, part)))
            if rules & {breach.invariant for breach in less.breaches}:
                broken, again = less, True
    return broken


def run_many(
    names: Iterable[NameT],
    try_out: Callable[[NameT], Tried[NameT, RunT]],
    shrink: Callable[[Tried[NameT, RunT]], Tried[NameT, RunT]],
    what: str,
    seconds: float = float("inf"),
) -> int:
    """0 when everything held, else 1. ``what``: the runs' name; ``seconds``: the time limit."""
    System.checked = True
    began = shown = time.monotonic()
    tried = broken = 0
    for name in names:
        result = try_out(name)
        tried += 1
        if result.breaches:
            broken += 1
            print(result, flush=True)
            print(f"the fewest misfortunes that still break it:\n{shrink(result)}\n", flush=True)
        now = time.monotonic()
        if now - shown > PROGRESS_SECONDS:
            shown = now
            print(f"{tried} {what} in {now - began:.0f} s, {broken} broken; at {name}", file=sys.stderr)
        if now - began > seconds:
            break
    print(f"{tried} {what} in {time.monotonic() - began:.0f} s, {broken} broken", file=sys.stderr)
    return 1 if broken else 0


#: More fresh seeds than any time allows.
SEEDS_WITHOUT_A_NUMBER = 10_000_000


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """With those that every long run has."""
    parser.add_argument(
        "--without", nargs="+", default=(), metavar="PART", help="leave these out, as a breach names them"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="one line for each transition")
    parser.add_argument(
        "--seeds", type=int, default=0, metavar="N", help="run so many seeds (as many as the seconds allow)"
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--first", type=int, default=0, metavar="SEED", help="beginning with this one (0)")
    begin.add_argument(
        "--fresh", action="store_true", help="beginning with one that nobody has chosen; it is printed"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    return parser.parse_args()


def seeds_of(options: argparse.Namespace) -> range:
    """The requested range. A fresh one is printed, so that it can be repeated."""
    if options.fresh and not options.seeds:
        options.seeds = SEEDS_WITHOUT_A_NUMBER
    first = random.SystemRandom().randrange(FRESH_BELOW) if options.fresh else options.first
    if options.fresh:
        print(f"{options.seeds} seeds from {first}: --first {first} runs them again", flush=True)
    return range(first, first + options.seeds)
