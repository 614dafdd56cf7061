"""From logind's signal on the bus to the first SIGTERM inside a pod.

100 pods as processes under the real daemon and the real logind. The first pod notes the monotonic clock when
SIGTERM reaches it; a second program on the bus notes when logind's signal came. Each round has fresh pods:
logind's own shutdown job is made to fail, so that the daemon restores, arms again, and goes on. Rounds with a
healthy disk and with one that does not answer (`benchmarks.stalled`) alternate.

    sudo python -m benchmarks.first_signal --rounds 100
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trio

from benchmarks.node import POLL_SECONDS, WAIT_SECONDS_MAX, Node, node
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, parser, percentile, say
from ebbtide.events.base import BARRIER_NS_MAX

PODS = 100
WAVES = 3
NS_PER_MS = 1_000_000
P50_MS, P99_MS = 10, 25

#: Blocks SIGTERM and waits for it, so that nothing stands between the signal and the clock.
PROBE = """
import pathlib, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
place = pathlib.Path(sys.argv[1])
place.with_suffix(".ready").touch()
signal.sigwait([signal.SIGTERM])
now = time.monotonic_ns()
place.with_suffix(".new").write_text(str(now))
place.with_suffix(".new").rename(place)
"""


class Round:
    """Latencies in milliseconds: from the request to logind, and from its signal on the bus."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.seen: list[float] = []


class Bench:
    def __init__(self, on: Node, observer: subprocess.Popen[str], pods: int) -> None:
        self.node, self.observer, self.pods = on, observer, pods
        self.gate = on.folder / "gate"
        self.gate.touch()
        self.hits = on.folder / "hits"
        self.hits.mkdir()
        self.healthy, self.stalled = Round(), Round()
        on.program = (sys.executable, "-m", "benchmarks.stalled", str(self.gate))

    async def run(self, rounds: int) -> None:
        self.node.start()
        await self.node.until_said("armed: ")
        for at in range(rounds):
            await self.shut_down(2 * at, self.healthy, contextlib.nullcontext())
            await self.shut_down(2 * at + 1, self.stalled, held(self.gate))
            say(f"round {at + 1}: {self.healthy.seen[-1]:.2f} ms, disk hung {self.stalled.seen[-1]:.2f} ms")

    async def shut_down(self, at: int, to: Round, disk: contextlib.AbstractContextManager[None]) -> None:
        hit = self.hits / str(at)
        for pod in range(self.pods):
            probe = [sys.executable, "-S", "-E", "-c", PROBE, str(hit)]
            self.node.pod(f"r{at:04}-{pod:04}", ["sleep", "3600"] if pod else probe, pod % WAVES * 1000)
        await until_there(hit.with_suffix(".ready"))
        await self.node.until_running(self.pods)
        await quiet()
        with disk:
            asked_ns = await self.node.bed.power_off()
            await until_there(hit)
        signalled_ns = int(hit.read_text())
        assert self.observer.stdout is not None
        seen_ns = int(self.observer.stdout.readline())
        to.asked.append((signalled_ns - asked_ns) / NS_PER_MS)
        to.seen.append((signalled_ns - seen_ns) / NS_PER_MS)
        await self.node.until_said("armed: ", at + 2)
        for path in self.node.pods.iterdir():
            path.unlink()


@contextlib.contextmanager
def held(gate: Path) -> Iterator[None]:
    """The disk hangs inside this block."""
    descriptor = os.open(gate, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


async def until_there(path: Path) -> None:
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not path.exists():
            await trio.sleep(POLL_SECONDS)


def figures(healthy: Round, stalled: Round) -> list[Figure]:
    late_ms = BARRIER_NS_MAX / NS_PER_MS
    rows = []
    for word, found, extra_ms in (("", healthy, 0.0), (", disk hung", stalled, late_ms)):
        for share, limit_ms in ((0.5, P50_MS), (0.99, P99_MS)):
            what = f"signal on the bus to first SIGTERM{word}, p{int(share * 100)}"
            rows.append(Figure(what, percentile(found.seen, share), limit_ms + extra_ms, "ms"))
            what = f"request to logind to first SIGTERM{word}, p{int(share * 100)}"
            rows.append(Figure(what, percentile(found.asked, share), None, "ms"))
    return rows


async def measure(rounds: int, pods: int) -> tuple[Round, Round]:
    async with node(WAVES) as on:
        await on.bed.start_unit("failed")
        argv = [sys.executable, "-m", "benchmarks.observer", on.bed.address]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as observer:
            assert observer.stdout is not None
            observer.stdout.readline()
            bench = Bench(on, observer, pods)
            try:
                await bench.run(rounds)
            finally:
                observer.kill()
    return bench.healthy, bench.stalled


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=100, help="shutdowns of each kind (default 100)")
    options.add_argument("--pods", type=int, default=PODS, help=f"pods (default {PODS})")
    arguments = options.parse_args()
    healthy, stalled = trio.run(measure, arguments.rounds, arguments.pods)
    samples: dict[str, object] = {"rounds": arguments.rounds, "pods": arguments.pods}
    return conclude("first_signal", arguments, figures(healthy, stalled), samples)


if __name__ == "__main__":
    sys.exit(main())
