"""Many seeds, one after the other: where they begin, how far they are, and what to do with one that breaks.

The test world (`tests.world`) and the simulated Kubernetes node (`tests.replay.sim`) are run by the same
rules: a seed is one run, a breach is printed with the command that shows it again, and the parts of it that
do not matter are left out by themselves.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

#: How often a long run says where it is.
PROGRESS_SECONDS = 5.0

#: A fresh range begins somewhere below this: far enough that two of them hardly ever meet, and short to type.
FRESH_BELOW = 1 << 40


class Tried(Protocol):
    """A run that is over. As text: the command that shows it again, and what broke."""

    @property
    def breaches(self) -> Collection[object]: ...


NameT = TypeVar("NameT")
TriedT = TypeVar("TriedT", bound=Tried)


def fewest(
    without: tuple[str, ...], parts: Sequence[str], breaks: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """What can be left out beside ``without`` so that it still ``breaks``: of the rest nothing can.

    One part after the other, and again from the start as long as that helps: parts may need each other.
    """
    again = True
    while again:
        again = False
        for part in parts:
            if part not in without and breaks((*without, part)):
                without, again = (*without, part), True
    return without


def run_many(
    names: Iterable[NameT],
    try_out: Callable[[NameT], TriedT],
    shrink: Callable[[TriedT], TriedT],
    what: str,
    seconds: float = float("inf"),
) -> int:
    """Returns how many broke. ``what`` they are called; ``seconds`` until it stops by itself."""
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
    return broken


#: Of fresh ones without a number: more than any time allows.
SEEDS_WITHOUT_A_NUMBER = 10_000_000


def add_range(parser: argparse.ArgumentParser) -> None:
    """The options that say which seeds."""
    parser.add_argument(
        "--seeds", type=int, default=0, metavar="N", help="run so many seeds (as many as the seconds allow)"
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--first", type=int, default=0, metavar="SEED", help="beginning with this one (0)")
    begin.add_argument(
        "--fresh", action="store_true", help="beginning with one that nobody has chosen; it is printed"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")


def seeds_of(options: argparse.Namespace) -> range:
    """The range that was asked for, if any. A fresh one is printed: nothing else tells it afterwards."""
    if options.fresh and not options.seeds:
        options.seeds = SEEDS_WITHOUT_A_NUMBER
    first = random.SystemRandom().randrange(FRESH_BELOW) if options.fresh else options.first
    if options.fresh:
        print(f"{options.seeds} seeds from {first}: --first {first} runs them again", flush=True)
    return range(first, first + options.seeds)
