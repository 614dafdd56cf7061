"""The measurements: a sync where the journal lives, a call to logind, a process, a connection to each hook.

Nothing is signalled, no hook is run, and the one file that is written is taken away again.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import trio

from actors.edges.bus import Bus, BusError, ask_once, system_bus_address
from actors.edges.logind.reader import preparing
from actors.edges.process.spawn import CannotStart, spawn
from ebbtide.doctor.pods import Pods
from ebbtide.doctor.targets import Target
from events.base import BARRIER_NS_MAX

#: Enough for a median and a bad case, few enough for a second in all.
SAMPLES = 20
#: What one step writes: an order and its outcome of some hundred bytes, rounded up to a page.
WRITE_BYTES = 4096
#: A hook's connection that is not there after this is as good as refused.
CONNECT_SECONDS_MAX = 1.0
#: A local bus that needs longer than this makes arming and release slow.
BUS_NS_MAX = 50_000_000
#: Starting the smallest process; more is taken from every exec hook's grace.
EXEC_NS_MAX = 100_000_000
CONNECT_NS_MAX = 100_000_000

NO_OP = ("true",)


class Measured(NamedTuple):
    """``samples_ns`` are sorted; empty with ``error`` where it could not be measured. Over ``limit_ns``
    a shutdown would suffer. ``needed`` False: the mode has another way.
    """

    what: str
    target: str
    samples_ns: tuple[int, ...]
    limit_ns: int
    error: str = ""
    needed: bool = True

    @property
    def median_ns(self) -> int:
        return self.samples_ns[len(self.samples_ns) // 2] if self.samples_ns else 0

    @property
    def worst_ns(self) -> int:
        return self.samples_ns[-1] if self.samples_ns else 0

    @property
    def good(self) -> bool:
        return not self.error and self.median_ns <= self.limit_ns


def measure(journal: Path, pods: Pods) -> Iterator[Measured]:
    """Each measurement as it is made."""
    yield sync(journal)
    yield bus()
    yield process()
    if pods.places is not None:
        from ebbtide.drill.node import measure_node

        yield from measure_node(pods.mode, pods.places, pods.known)
    yield from map(connection, pods.targets)


def sampled(once: Callable[[], object], samples: int = SAMPLES) -> tuple[int, ...]:
    taken = []
    for _ in range(samples):
        began_ns = time.monotonic_ns()
        once()
        taken.append(time.monotonic_ns() - began_ns)
    return tuple(sorted(taken))


def sync(journal: Path) -> Measured:
    """A page appended and synced, as orders that outlive the boot wait for it."""
    place = next(folder for folder in (journal.absolute(), *journal.absolute().parents) if folder.is_dir())
    made = Measured("journal sync", str(place), (), BARRIER_NS_MAX)
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".drill-", buffering=0) as file:
            return made._replace(samples_ns=sampled(lambda: _append(file.fileno())))
    except OSError as error:
        return made._replace(error=f"cannot write: {error.strerror}")


def _append(descriptor: int) -> None:
    os.write(descriptor, bytes(WRITE_BYTES))
    os.fdatasync(descriptor)


def bus() -> Measured:
    """A property of logind, read over one connection."""
    address = system_bus_address()
    made = Measured("logind call", address, (), BUS_NS_MAX)

    async def ask(connection: Bus) -> tuple[int, ...]:
        taken = []
        for _ in range(SAMPLES):
            began_ns = time.monotonic_ns()
            await preparing(connection)
            taken.append(time.monotonic_ns() - began_ns)
        return tuple(sorted(taken))

    try:
        return made._replace(samples_ns=trio.run(ask_once, address, ask))
    except BusError as error:
        return made._replace(error=str(error))


def process() -> Measured:
    """A hook that does nothing, started as hooks are, and waited for."""
    made = Measured("exec", NO_OP[0], (), EXEC_NS_MAX)
    try:
        with open(os.devnull, "wb") as output:
            return made._replace(samples_ns=sampled(lambda: _run(output.fileno())))
    except CannotStart as error:
        return made._replace(error=str(error))


def _run(output: int) -> None:
    child = spawn(NO_OP, os.environ, "", output)
    os.close(child.pidfd)
    os.waitpid(child.pid, 0)


def connection(target: Target) -> Measured:
    """Only a connection, no request: a hook would begin to drain the pod."""
    made = Measured("httpGet target", target.name, (), CONNECT_NS_MAX, target.error)
    if target.error:
        return made
    try:
        return made._replace(samples_ns=sampled(lambda: _connect((target.host, target.port)), 1))
    except OSError as error:
        return made._replace(error=error.strerror or str(error))


def _connect(place: tuple[str, int]) -> None:
    socket.create_connection(place, CONNECT_SECONDS_MAX).close()
