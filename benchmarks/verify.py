"""Verified replay: every record's hash checked, every fact stepped again, every decision compared.

Three journals: a hundred shutdowns of 100 pods, twenty of 1 000 (the cost of an event must not grow with the
pods), and a month of idle days. Reading from the disk's cache is part of it. The loop that only hashes and
decodes takes its turn after each, and what a replay comes to beside it is a ratio of medians.

    python -m benchmarks.verify --rounds 5
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path

import trio

from benchmarks import episodes, idle_month
from benchmarks.bare_read import bare_read
from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer

EVENTS_PER_SECOND = 100_000
#: Of the floor's rate, for the journal of large shutdowns.
OF_FLOOR_MIN = 0.2
BUSY, LARGE, MONTH = "100 shutdowns of 100 pods", "20 shutdowns of 1 000 pods", "a month of idle days"


def verify(folder: Path) -> float:
    """Events a second, by the processor time of this process: nobody else's load is in it."""
    began = time.process_time()
    history, replayer = History([DirectorySource(folder)]), Replayer()
    for batch in history.batches():  # as `replay verify` does
        replayer.feed(batch.records)
    divergence = replayer.finish()
    seconds = time.process_time() - began
    assert divergence is None, divergence
    assert history.verdict.state == "intact", history.verdict.banner
    return replayer.events / seconds


def read(folder: Path) -> float:
    """The same of a reader that verifies every hash, and executes nothing."""
    began = time.process_time()
    history = History([DirectorySource(folder)])
    count = sum(len(batch.records) for batch in history.batches())
    return count / (time.process_time() - began)


def bare(folder: Path) -> float:
    """The same of a loop that only hashes and decodes."""
    began = time.process_time()
    return bare_read(folder) / (time.process_time() - began)


def measure(folder: Path, rounds: int) -> list[Figure]:
    places = {name: folder / str(at) for at, name in enumerate((BUSY, LARGE, MONTH))}
    for place in places.values():
        place.mkdir()
    counts = {
        BUSY: episodes.lay_out(places[BUSY], 100, 100),
        LARGE: episodes.lay_out(places[LARGE], 1000, 20),
        MONTH: trio.run(idle_month.make, places[MONTH]),
    }
    rates: dict[str, list[float]] = {name: [] for name in places}
    floors: dict[str, list[float]] = {BUSY: [], LARGE: []}
    reading: list[float] = []
    for _ in range(rounds):
        for name, place in places.items():
            rates[name].append(verify(place))
            say(f"{name}: {rates[name][-1]:.0f} events/s")
            if name in floors:
                floors[name].append(bare(place))
        reading.append(read(places[BUSY]))
    peers = [Figure(f"verified reading alone, of {BUSY}", median(reading), None, "events/s")]
    for name, found in floors.items():
        floor = median(found)
        least = OF_FLOOR_MIN if name == LARGE else None
        peers += [
            Figure(f"a bare loop that hashes and decodes, of {name}", floor, None, "events/s"),
            Figure(
                f"verified replay of {name}, of what that loop does",
                median(rates[name]) / floor,
                least,
                "x",
                f"{min(rates[name]):.0f} to {max(rates[name]):.0f} of {min(found):.0f} to {max(found):.0f}",
                at_least=True,
            ),
        ]
    return [
        Figure(
            f"verified replay of {name}",
            median(found),
            EVENTS_PER_SECOND,
            "events/s",
            f"{counts[name]} events",
            at_least=True,
        )
        for name, found in rates.items()
    ] + peers


def main() -> int:
    gc.disable()  # as `replay verify` does
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5, help="readings of each journal (default 5)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = measure(Path(folder), arguments.rounds)
    return conclude("verify", arguments, figures, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
