"""All figures, one script after another, and the page that shows them.

    sudo python -m benchmarks [NAME...]

Each runs in a process of its own and keeps its result in ``benchmarks/results``; then the tables of
``docs/performance.md`` are made anew from what is there. The exit code is 1 when a figure is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.page import write
from benchmarks.report import say

NAMES = (
    "first_signal",
    "start",
    "first_line",
    "idle",
    "waves",
    "journal",
    "verify",
    "command",
    "proofs",
    "browsing",
    "simulate",
    "what_if",
    "traces",
    "exporting",
    "exporting_many",
    "exporting_cut",
    "scale",
    "fleet",
)


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*", metavar="NAME", help=f"which; all if none: {', '.join(NAMES)}")
    wanted = options.parse_args().names or NAMES
    if unknown := set(wanted) - set(NAMES):
        options.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    worst = 0
    for name in wanted:
        say(f"== {name}")
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", "--keep"], check=False)
        worst = max(worst, done.returncode)
    write()
    return worst


if __name__ == "__main__":
    sys.exit(main())
