"""``ebbtide replay verify`` as it is typed: from the start of the process to its end, and its memory.

Bytecode is there, as after any installation; nothing else is warm but the disk's cache. Beside it what the
digests of a wave's end cost a running daemon.

    python -m benchmarks.command --rounds 20
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from benchmarks import episodes
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.actors.system import System

#: One shutdown of 10 000 events, and enough of 100 pods for a million.
LARGE_PODS, MANY_PODS, MANY_SHUTDOWNS = 1656, 100, 1560
DIGEST_PODS = 110

COMMAND_SECONDS, MEMORY_MIB, DIGEST_MS = 0.2, 200, 1.0
MS = 1000


def environment(folder: Path) -> dict[str, str]:
    """With a place for bytecode, whatever the caller's environment says about that."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


class Run(NamedTuple):
    """A process from its start to its end; ``processor_seconds`` are those in which it ran."""

    seconds: float
    processor_seconds: float
    memory_mib: float


def command(folder: Path, journal: Path) -> Run:
    program = str(Path(sys.executable).with_name("ebbtide"))
    return timed(folder, [program, "replay", "verify", "--journal", str(journal)])


def bare(folder: Path, journal: Path) -> Run:
    """A process that only hashes and decodes the same."""
    return timed(folder, [sys.executable, "-m", "benchmarks.bare_read", str(journal)])


def timed(folder: Path, argv: list[str]) -> Run:
    began = time.perf_counter()
    with subprocess.Popen(argv, env=environment(folder), stdout=subprocess.PIPE) as process:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"identical: ")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def digest_ms(rounds: int) -> float:
    """Of a whole shutdown of 110 pods: the time that its digests take, the best of some."""
    theatre = episodes.Theatre(DIGEST_PODS)
    theatre.begin()
    theatre.shut_down()
    found = []
    for _ in range(rounds):
        with _clocked() as spent:
            theatre.shut_down()
        found.append(sum(spent))
    return min(found) * MS


@contextmanager
def _clocked() -> Iterator[list[float]]:
    digest, spent = System._digest, list[float]()

    def clocked(*arguments: object) -> None:
        began = time.perf_counter()
        digest(*arguments)  # type: ignore[arg-type]  # handed on as they come
        spent.append(time.perf_counter() - began)

    System._digest = clocked  # type: ignore[method-assign, assignment]  # put back below
    try:
        yield spent
    finally:
        System._digest = digest  # type: ignore[method-assign]


def measure(folder: Path, rounds: int) -> list[Figure]:
    places = {name: folder / name for name in ("small", "large", "many")}
    for place in places.values():
        place.mkdir()
    episodes.lay_out(places["small"], 3, 1)
    large = episodes.lay_out(places["large"], LARGE_PODS, 1)
    many = episodes.lay_out(places["many"], MANY_PODS, MANY_SHUTDOWNS)
    runs = {
        "small": (command, places["small"]),
        "large": (command, places["large"]),
        "bare": (bare, places["large"]),
    }
    taken: dict[str, list[Run]] = {name: [] for name in runs}
    for run, place in runs.values():
        run(folder, place)
    for _ in range(rounds):
        for name, (run, place) in runs.items():
            trio.run(quiet)
            taken[name].append(run(folder, place))
            say(f"{name}: {taken[name][-1]}")
    memory_mib = command(folder, places["many"]).memory_mib
    seconds = {name: [each.seconds for each in found] for name, found in taken.items()}
    processor = [each.processor_seconds for each in taken["large"]]
    basis = f"{large} events"
    return [
        Figure(
            "verify a shutdown of 10 000 events, from the command's start, p50",
            median(seconds["large"]),
            COMMAND_SECONDS,
            "s",
            basis,
        ),
        Figure("of it, processor time, p50", median(processor), COMMAND_SECONDS, "s", basis),
        Figure("of it, the start: a journal of a few events, p50", median(seconds["small"]), None, "s"),
        Figure(
            "a bare loop over the same that hashes and decodes, from its start, p50",
            median(seconds["bare"]),
            None,
            "s",
        ),
        Figure("peak memory of verifying a million events", memory_mib, MEMORY_MIB, "MiB", f"{many} events"),
        Figure("digests of a shutdown of 110 pods", digest_ms(rounds), DIGEST_MS, "ms"),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15, help="runs of each command (default 15)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = measure(Path(folder), arguments.rounds)
    return conclude("command", arguments, figures, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
