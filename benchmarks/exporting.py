"""A shutdown of 300 process pods while its trace is exported to back ends that are no good, or its closed
segments are shipped to stores that are.

Each round shuts the same pods down once without export and once with each kind of back end, under one real
logind; the figures are ratios of the fastest rounds. What is measured runs from the request to logind to the
moment at which logind, its last lock released, starts the power-off.

    sudo python -m benchmarks.exporting --rounds 5
    sudo python -m benchmarks.exporting --ship --rounds 5
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from unittest.mock import patch

import trio

from benchmarks import bare_loop
from benchmarks.node import CONFIG, WAVE_SECONDS, Node, node
from benchmarks.quiet import quiet
from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.facts import OrderEnded
from ebbtide.events.reader import History
from tests.otel.delivery.collector import Collector, collecting, no_good
from tests.store.gateway import TAKEN, faking, reply

PODS, WAVES = bare_loop.WAVES * 100, bare_loop.WAVES
POD_SECONDS = 1.0
RATIO_MAX = 1.02
NS_PER_SECOND = 1_000_000_000
MS_PER_SECOND = 1000

OFF = "off"
#: What people call it, and the test server that is it.
KINDS = {"dead": "dead", "slow": "mute", "nonsense": "nonsense"}
GOOD = "good"
#: What a web server on the wrong port answers to anything.
WELCOME = reply(200, b"<html>welcome</html>", Content_Type="text/html")
Place = Callable[[str], contextlib.AbstractAsyncContextManager[str]]


@contextlib.asynccontextmanager
async def back_end(kind: str) -> AsyncIterator[str]:
    """Its endpoint; empty where nothing is exported."""
    if kind == OFF:
        yield ""
    elif kind == GOOD:
        async with collecting(Collector()) as collector:
            yield collector.endpoint
    else:
        async with no_good(KINDS[kind]) as endpoint:
            yield endpoint


@contextlib.asynccontextmanager
async def store(kind: str) -> AsyncIterator[str]:
    """The same for a store: its URL, with the client's variables set."""
    if kind == OFF:
        yield ""
        return
    answers: dict[str, bytes | None] = {"nonsense": WELCOME, GOOD: TAKEN, "slow": None, "dead": None}
    async with contextlib.AsyncExitStack() as stack:
        fake = await stack.enter_async_context(faking(lambda request: answers[kind]))
        if kind == "dead":
            # Its variables name a port where nobody listens any more.
            environ = fake.environ()
            await stack.aclose()
            stack.enter_context(patch.dict(os.environ, environ))
        yield "s3://bucket/prefix"


class Bench:
    def __init__(self, on: Node, pods: int, place: Place = back_end) -> None:
        self.place = place
        self.node, self.pods = on, pods
        self.taken: dict[str, list[float]] = {kind: [] for kind in (OFF, *KINDS, GOOD)}
        self.waited: dict[str, list[float]] = {kind: [] for kind in self.taken}
        self.runs = 0

    async def run(self, rounds: int) -> None:
        for at in range(rounds):
            for kind, taken in self.taken.items():
                async with self.place(kind) as endpoint:
                    taken.append(await self.shut_down(endpoint))
                    self.waited[kind].append(self._waited_seconds())
                say(f"round {at}, {kind}: {taken[-1]:.3f} s")

    async def shut_down(self, endpoint: str) -> float:
        """One daemon's life with one shutdown."""
        self._configure(endpoint)
        self.node.start()
        await self.node.until_said("armed: ")
        for pod, command in enumerate(bare_loop.programs(self.pods, POD_SECONDS)):
            self.node.pod(f"r{self.runs:04}-{pod:04}", command, pod % WAVES * 1000)
        self.runs += 1
        await self.node.until_said("armed: ")
        await self.node.until_running(self.pods)
        await quiet()
        asked_ns = await self.node.bed.power_off()
        await self.node.until_said("lock released")
        await self.node.until_said("armed: ", 2)
        starts = await self.node.bed.starts()
        for path in self.node.pods.iterdir():
            path.unlink()
        self.node.stop()
        return (starts[-1][1] - asked_ns) / NS_PER_SECOND

    def _waited_seconds(self) -> float:
        """How long the last shutdown's order to flush the traces took; 0 where there was none."""
        history = History([DirectorySource(self.node.folder / "journal")])
        ends = [each.event for each in history.records() if isinstance(each.event, OrderEnded)]
        flushes = [end for end in ends if end.key.startswith("NodeStatusActor/traces/")]
        return flushes[-1].elapsed_ns / NS_PER_SECOND if flushes else 0.0

    def _configure(self, endpoint: str) -> None:
        waves = range(WAVES)
        periods = [f"- {{priority: {at * 1000}, shutdownGracePeriodSeconds: {WAVE_SECONDS}}}" for at in waves]
        section = ""
        if endpoint:
            section = f"tracing: {{endpoint: '{endpoint}'}}\n"
        if endpoint and self.place is store:
            section = f"shipping: {{url: '{endpoint}', cluster: bench}}\n"
        self.node.config.write_text(CONFIG.format(periods="\n".join(periods)) + section)

    def figures(self) -> list[Figure]:
        """Of the fastest rounds: what other work adds to one of them is no cost of ours."""
        off = min(self.taken[OFF])
        ships = self.place is store
        name = "shipping" if ships else "export"
        found = [Figure(f"{self.pods} pods that need {POD_SECONDS:g} s, {name} off", off, None, "s")]
        for kind, taken in self.taken.items():
            if kind != OFF:
                what = f"the same, exported to a {kind} back end"
                if ships:
                    what = f"the same, shipped to a {kind} store"
                found.append(Figure(f"{what}, ratio", min(taken) / off, RATIO_MAX, "x"))
                if ships:
                    continue  # nobody ever waits for it
                waited_ms = median(self.waited[kind]) * MS_PER_SECOND
                found.append(Figure(f"{what}: what the end waited for it", waited_ms, None, "ms"))
        return found


async def measure(rounds: int, pods: int, place: Place) -> list[Figure]:
    async with node(WAVES) as on:
        await on.bed.start_unit("failed")
        bench = Bench(on, pods, place)
        await bench.run(rounds)
        return bench.figures()


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5, help="of all kinds each (default 5)")
    options.add_argument("--pods", type=int, default=PODS, help=f"pods (default {PODS})")
    options.add_argument("--ship", action="store_true", help="segments to stores, in place of traces")
    arguments = options.parse_args()
    began = time.perf_counter()
    place = store if arguments.ship else back_end
    found = trio.run(measure, arguments.rounds, arguments.pods, place)
    say(f"{time.perf_counter() - began:.0f} s")
    extra: dict[str, object] = {"rounds": arguments.rounds}
    if arguments.ship:
        return conclude("shipping", arguments, found, extra | {"command": "benchmarks.exporting --ship"})
    return conclude("exporting", arguments, found, extra)


if __name__ == "__main__":
    sys.exit(main())
