"""Many seeds in a row: start, progress, and breaches.

Used by the test world (`tests.world`) and the simulated node (`tests.replay.sim`): a seed is one run, a
breach is printed with its command, and irrelevant parts are removed automatically.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

#: The interval of progress lines.
PROGRESS_SECONDS = 5.0

#: A fresh range starts below this: collisions are rare, and it is short to type.
FRESH_BELOW = 1 << 40


class Tried(Protocol):
    """A finished run. As text: its command and the breaches."""

    @property
    def breaches(self) -> Collection[object]: ...


NameT = TypeVar("NameT")
TriedT = TypeVar("TriedT", bound=Tried)


def fewest(
    without: tuple[str, ...], parts: Sequence[str], breaks: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """Add parts to ``without`` while it still ``breaks``, until none can be added.

    Repeat from the start while that helps: parts may need each other.
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
    """Returns the number of breaches. ``what``: their name; ``seconds``: the time limit."""
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


#: More fresh seeds than any time allows.
SEEDS_WITHOUT_A_NUMBER = 10_000_000


def add_range(parser: argparse.ArgumentParser) -> None:
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
    """The requested range. A fresh one is printed, so that it can be repeated."""
    if options.fresh and not options.seeds:
        options.seeds = SEEDS_WITHOUT_A_NUMBER
    first = random.SystemRandom().randrange(FRESH_BELOW) if options.fresh else options.first
    if options.fresh:
        print(f"{options.seeds} seeds from {first}: --first {first} runs them again", flush=True)
    return range(first, first + options.seeds)
