"""The README's demo, from its start to its first line on the screen (a terminal of its own).

The package is installed as the README says, by pip, from this checkout into an environment of its own; the
first run after that is one figure, those that follow another. Beside them stand runs without any byte code,
as after an installer that compiles none, and what of it is the processor's time.

    python -m benchmarks.first_line --rounds 10
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio

from benchmarks.node import ROOT
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say

LIMIT_SECONDS = 1.0
READ_BYTES = 65_536
#: What moves a cursor or sets a colour is nothing that anybody reads.
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Start(NamedTuple):
    """``cpu_seconds``: of them, the processor's for this process."""

    seconds: float
    cpu_seconds: float


def install(folder: Path) -> Path:
    """The program, after the README's first two commands."""
    environment = folder / "venv"
    # From a copy of what is committed: a build in the checkout would leave files there.
    source = folder / "source"
    source.mkdir()
    packed = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = (environment / "bin" / "pip", "install", "-q", "--disable-pip-version-check", ".")
    subprocess.run(pip, check=True, cwd=source, env=_environ())
    return environment / "bin" / "ebbtide"


def _environ(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return inherited | {"TERM": "xterm"} | more


def first_line(program: Path, **environ: str) -> Start:
    """Start the demo on a terminal, wait until it shows something, and end it."""
    ours, its = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(
        [program, "demo"], stdin=its, stdout=its, stderr=its, env=_environ(**environ), start_new_session=True
    )
    os.close(its)
    shown = b""
    while not CONTROL.sub(b"", shown).strip():
        shown += os.read(ours, READ_BYTES)
    seconds = time.perf_counter() - began
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    process.send_signal(signal.SIGINT)
    # The other end of a terminal is gone with its process: that is an error, not an end.
    with suppress(OSError):
        while os.read(ours, READ_BYTES):
            pass
    process.wait()
    os.close(ours)
    return Start(seconds, cpu_seconds)


async def measure(rounds: int) -> dict[str, list[Start]]:
    found: dict[str, list[Start]] = {"first": [], "later": [], "uncompiled": []}
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        program = install(Path(folder))
        found["first"].append(first_line(program))
        for _ in range(rounds):
            await quiet()
            found["later"].append(first_line(program))
            with tempfile.TemporaryDirectory(dir=folder) as cache:
                await quiet()
                found["uncompiled"].append(first_line(program, PYTHONPYCACHEPREFIX=cache))
            say(", ".join(f"{kind} {starts[-1].seconds:.3f} s" for kind, starts in found.items()))
    return found


def figures(found: dict[str, list[Start]]) -> list[Figure]:
    labels = {
        "first": "first line of the demo, first run after pip",
        "later": "first line of the demo, later runs, p50",
        "uncompiled": "first line of the demo, no byte code at all, p50",
    }
    rows = []
    for kind, label in labels.items():
        starts = found[kind]
        seconds = [each.seconds for each in starts]
        spread = f"{len(seconds)} runs, {min(seconds):.2f} to {max(seconds):.2f} s"
        rows.append(Figure(label, median(seconds), LIMIT_SECONDS, "s", spread))
        cpu = median([each.cpu_seconds for each in starts])
        rows.append(Figure("of it, processor time", cpu, None, "s"))
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10, help="later runs of each kind (default 10)")
    arguments = options.parse_args()
    found = trio.run(measure, arguments.rounds)
    return conclude("first_line", arguments, figures(found), {"starts": found})


if __name__ == "__main__":
    sys.exit(main())
