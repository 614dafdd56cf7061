"""100 000 spans of many journals through the exporter's own process: its memory, and how fast it goes.

Each journal has an exporter of its own, as each node has; they run one after another against one back end on
loopback that reads every request. What is measured is the kernel's account of each process (``VmHWM``).

    python -m benchmarks.exporting_many
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

from benchmarks.episodes import lay_out
from benchmarks.report import Figure, conclude, parser, say
from ebbtide.otel.destination import Destination
from ebbtide.side_process import OtlpJob, encode_line
from tests.otel.delivery.collector import Collector, Got, Reply, collecting

SPANS, JOURNALS, PODS = 100_000, 5, 110
SPANS_A_SHUTDOWN = 2 * PODS + 14
MEMORY_MIB_MAX = 128
POLL_SECONDS = 0.02
KIB_A_MIB = 1024


class Counter:
    """Reads every request, and keeps none."""

    def __init__(self) -> None:
        self.spans = 0
        self.collector = Collector(self.answer)

    def answer(self, got: Got) -> Reply:
        self.spans += len(got.spans)
        self.collector.got.clear()
        return Reply(keeps=False)


async def export(journal: Path, endpoint: str) -> float:
    """One exporter from its start to its end; its largest resident memory in MiB."""
    job = OtlpJob(destination=Destination(endpoint=f"{endpoint}/v1/traces"), locations=(str(journal),))
    argv = [sys.executable, "-P", "-m", "ebbtide.follower"]
    peak_kib = 0
    process = await trio.lowlevel.open_process(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    async with process.stdin:
        await process.stdin.send_all(encode_line(job))
        while process.poll() is None:
            peak_kib = max(peak_kib, _peak_kib(process.pid))
            await trio.sleep(POLL_SECONDS)
    assert process.returncode == 0, process.returncode
    return peak_kib / KIB_A_MIB


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [entry for entry in status.splitlines() if entry.startswith("VmHWM:")]
    return int(found[0].split()[1]) if found else 0


async def measure(spans: int, journals: int) -> list[Figure]:
    counter, peaks, seconds = Counter(), [], 0.0
    shutdowns = -(-spans // journals // SPANS_A_SHUTDOWN)
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        async with collecting(counter.collector):
            for number in range(journals):
                journal = Path(folder) / str(number)
                journal.mkdir()
                lay_out(journal, PODS, shutdowns)
                began = time.perf_counter()
                peaks.append(await export(journal, counter.collector.endpoint))
                seconds += time.perf_counter() - began
                say(f"journal {number}: {counter.spans} spans so far, {peaks[-1]:.0f} MiB")
    return [
        Figure("spans sent", counter.spans, spans, "spans", at_least=True),
        Figure(f"largest memory of an exporter, {journals} journals", max(peaks), MEMORY_MIB_MAX, "MiB"),
        Figure("from journal to acknowledgement", counter.spans / seconds, None, "spans/s"),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--spans", type=int, default=SPANS, help=f"in all (default {SPANS})")
    options.add_argument("--journals", type=int, default=JOURNALS, help=f"default {JOURNALS}")
    arguments = options.parse_args()
    found = trio.run(measure, arguments.spans, arguments.journals)
    return conclude("exporting_many", arguments, found, {"journals": arguments.journals})


if __name__ == "__main__":
    sys.exit(main())
