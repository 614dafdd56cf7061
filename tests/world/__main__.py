"""Run worlds by hand: inspect one, or search many for a failure.

python -m tests.world --seed 42 -v
python -m tests.world --seeds 1000 --seconds 600
python -m tests.world --seeds 100000 --fresh
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from ebbtide.events.base import NS_PER_SECOND, Order, Record
from ebbtide.events.facts import OrderEnded, Tick
from ebbtide.replay.sim.sim_node import Happening
from tests.long_run import options_of, run_many, seeds_of
from tests.world.clock import world_ns
from tests.world.daemon import Life
from tests.world.worlds import Name, Result, every_point, fewest, try_out

COLUMNS = "{at:>12.6f} {boot:>2} {life:>3} {where:<22.22} {what:<18.18} {rest}"


def show(seen: Happening) -> None:
    subject = "/".join(filter(None, (seen.uid, seen.container)))
    rest = " ".join(filter(None, (subject, seen.detail, "late" if seen.late else "")))
    at = seen.at_ns / NS_PER_SECOND
    print(COLUMNS.format(at=at, boot=seen.boot, life=seen.life, where="node", what=seen.what, rest=rest))


def show_step(life: Life, records: Sequence[Record]) -> None:
    """A daemon's step: one line per transition."""
    for record in records:
        event = record.event
        if isinstance(event, Tick):
            continue
        rest = event.key if isinstance(event, Order) else _fields(event)
        print(
            COLUMNS.format(
                at=world_ns() / NS_PER_SECOND,
                boot=life.node.log.boot,
                life=life.number,
                where=f"{record.seq} {record.actor}",
                what=type(event).__name__,
                rest=rest,
            )
        )


def _fields(event: object) -> str:
    """Short fields in full, long ones by their size."""
    names = (
        "key",
        "result",
        "uid",
        "container",
        "wave",
        "outcome",
        "reason",
        "action",
        "active",
        "preparing",
    )
    shown = (f"{name}={value}" for name in names if (value := getattr(event, name, "")) not in ("", None))
    return (
        " ".join(shown) if not isinstance(event, OrderEnded) else f"{event.result} {event.key} {event.reason}"
    )


def names(options: argparse.Namespace) -> Iterator[Name]:
    if seeds := seeds_of(options):
        yield from map(Name, seeds)
        return
    one = Name(options.seed, options.crash_at, options.cut_at, tuple(options.without))
    yield from every_point(one, options.every) if options.every else (one,)


def main() -> int:
    options = _options()

    def one(name: Name) -> Result:
        return try_out(name, show, show_step) if options.verbose else try_out(name)

    return run_many(names(options), one, fewest, "worlds", options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--small", action="store_true", help="the small shutdown; so without any seed")
    parser.add_argument("--crash-at", type=int, default=0, metavar="POINT", help="kill the daemon there")
    parser.add_argument("--cut-at", type=int, default=0, metavar="POINT", help="cut the power there")
    parser.add_argument("--every", choices=("crash-at", "cut-at"), help="at every point, one after the other")
    return options_of(parser)


if __name__ == "__main__":
    sys.exit(main())
