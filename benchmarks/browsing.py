"""The report of 1 000 pods: how long it takes to make, what it weighs, and how it feels in Chromium.

The whole command is timed, from its start. In the browser: the first paint by the browser's own clock, and
what each gesture costs, from the event through the next frame, which comes up to 17 ms later anyway.

    python -m benchmarks.browsing --rounds 5
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

from benchmarks.node import ROOT
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say
from tests.replay.report import journals
from tests.replay.report.browser import Browser, browser

MAKE_SECONDS_MAX, MEGABYTES_MAX, PAINT_SECONDS_MAX = 3.0, 5.0, 1.0
#: Of the gestures after which all rows stand anew: what answers sooner than this feels like one's own hand.
GESTURE_MS_MAX = 100.0
LIMITS = dict.fromkeys(("sort", "order", "collapse", "open a group"), GESTURE_MS_MAX)
GESTURES = ROOT / "tests" / "replay" / "report" / "gestures.js"
PAINTS = (
    "performance.getEntriesByType('paint').find((each) => each.name === 'first-contentful-paint').startTime"
)
PROGRAM = "from ebbtide.cli import main; main()"


def command(*words: str, journal: Path, output: Path) -> tuple[float, float]:
    """Seconds of a whole command, and of processor time in it."""
    began, before = time.perf_counter(), _children_seconds()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "--journal", str(journal), "-o", str(output)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began, _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def look(chromium: Browser, page: Path) -> tuple[float, dict[str, list[float]]]:
    """Seconds to the first paint, and milliseconds of each gesture's steps."""
    chromium.open(page.as_uri())
    paint, script = chromium.run(PAINTS) / 1000, GESTURES.read_text()
    names = chromium.run(f"({script})()")
    return paint, {name: chromium.run(f"({script})('{name}')") for name in names}


def measure(folder: Path, rounds: int) -> list[Figure]:
    journal, page = folder / "journal", folder / "report.html"
    journal.mkdir()
    for name, data in journals.many().items():
        (journal / name).write_bytes(data)
    made: list[tuple[float, float]] = []
    paints: list[float] = []
    gestures: dict[str, list[float]] = {}
    with browser() as chromium:
        chromium.size(1200, 900)
        for _ in range(rounds):
            trio.run(quiet)
            made.append(command("replay", "report", journal=journal, output=page))
            paint, costs = look(chromium, page)
            paints.append(paint)
            for name, steps in costs.items():
                gestures.setdefault(name, []).extend(steps)
            say(f"made in {made[-1][0]:.2f} s, painted in {paints[-1]:.2f} s")
    account, lines = journals.told(journals.many())
    basis = f"{len(account.pods)} pods, {len(lines)} events"
    return [
        Figure("report, the whole command", median([wall for wall, _ in made]), MAKE_SECONDS_MAX, "s", basis),
        Figure("report, its processor time", median([cpu for _, cpu in made]), None, "s"),
        Figure("report, size", page.stat().st_size / 1e6, MEGABYTES_MAX, "MB", basis),
        Figure("report, first contentful paint in Chromium", median(paints), PAINT_SECONDS_MAX, "s", basis),
        *(
            Figure(f"in the report: {name}, median", median(steps), LIMITS.get(name), "ms")
            for name, steps in gestures.items()
        ),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5, help="pages made and opened (default 5)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = measure(Path(folder), arguments.rounds)
    return conclude("browsing", arguments, figures, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())
