"""The journal against its disk: durable appends beside bare syncs, ten sources, and reading it all again.

Appends go through the real writer in a directory of your choice (it should be on the disk that counts); a
bare ``write`` and ``fdatasync`` of as many bytes into a file beside it alternates with them, so that both see
the same disk. Reading is measured in a process of its own, for the sake of its memory.

    python -m benchmarks.journal --directory /var/tmp
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from benchmarks.report import Figure, conclude, median, parser, percentile, say
from ebbtide.events.base import Checkpoint, Event, Record, Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodStopBegan, SendSignal
from ebbtide.events.disk import DirectoryStorage
from ebbtide.events.facts import ContainerExited
from ebbtide.events.reader import History
from ebbtide.events.segment import Chain, Identity, Link, WriterStart, segment_file_name
from ebbtide.events.writer import Writer

IDENTITY = Identity("node-1", "machine-1", "boot-1", "bench")
START = WriterStart(bytes(range(16)), Link(), 1)
UID = "8f2d6c1e-3b7a-4d52-9a55-0e7f6d1c2b3a"

DURABLE_MS, SOURCES, SOURCES_EVENTS_PER_SECOND = 5, 10, 10_000
READ_EVENTS_PER_SECOND, READ_MIB_MAX = 100_000, 200
#: Facts that one source reports before it waits: a wave's pods exit together.
FACTS_PER_WAIT = 10
STEP: tuple[Event, ...] = (
    ContainerExited(uid=UID, container="app", exit_code=0),
    PodStopBegan(uid=UID, wave=1, grace_ns=30_000_000_000, kill_by_ns=1_234_567_890_123),
    SendSignal(key=f"HookActor/SendSignal/{UID}/0", uid=UID, container="app", signal="SIGTERM"),
)


def step(first_seq: int) -> list[Record]:
    """A fact and two decisions, as a shutdown has them by the thousand."""
    now_ns = time.monotonic_ns()
    return [
        Record(
            seq=first_seq + at,
            mono_ns=now_ns,
            wall_ns=now_ns,
            episode=1,
            cause=first_seq if at else 0,
            actor=f"HookActor:{UID}" if at else "edge",
            last=at == len(STEP) - 1,
            event=event,
        )
        for at, event in enumerate(STEP)
    ]


def make_writer(directory: Path) -> Writer:
    def refuse(*what: object) -> None:
        raise RuntimeError(f"the disk failed: {what}")

    return Writer(
        [DirectoryStorage(directory)],
        IDENTITY,
        START,
        program="benchmark",
        on_failed=refuse,
        on_moved=refuse,
        on_lost=refuse,
        last_resort=refuse,
    )


async def one_source(directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of durable appends and of bare syncs, taken in turn."""
    durable, bare = [], []
    with _plain_file(directory) as plain:
        async with trio.open_nursery() as nursery:
            writer = await _begin(directory / "one", nursery)
            size = writer.segment_bytes
            for _ in range(rounds):
                began = time.perf_counter_ns()
                writer.append(step(writer.last_seq + 1))
                await writer.wait_synced(writer.last_seq)
                durable.append((time.perf_counter_ns() - began) / 1e6)
                size = writer.segment_bytes - size
                bare.append(_bare_sync(plain, size))
                size = writer.segment_bytes
            nursery.cancel_scope.cancel()
    return durable, bare


async def ten_sources(directory: Path, seconds: float) -> tuple[float, list[float]]:
    """Events a second when each source waits for its step to be durable; the waits in milliseconds."""
    waits: list[float] = []
    async with trio.open_nursery() as nursery:
        writer = await _begin(directory / "ten", nursery)
        began = time.perf_counter()

        async def source() -> None:
            while time.perf_counter() - began < seconds:
                asked = time.perf_counter_ns()
                for _ in range(FACTS_PER_WAIT):
                    writer.append(step(writer.last_seq + 1))
                await writer.wait_synced(writer.last_seq)
                waits.append((time.perf_counter_ns() - asked) / 1e6)

        async with trio.open_nursery() as sources:
            for _ in range(SOURCES):
                sources.start_soon(source)
        rate = writer.synced_seq / (time.perf_counter() - began)
        nursery.cancel_scope.cancel()
    return rate, waits


async def _begin(directory: Path, nursery: trio.Nursery) -> Writer:
    writer = make_writer(directory)
    await writer.open()
    nursery.start_soon(writer.run)
    writer.begin_segment(Stamp(0, 0), Checkpoint(episode=0))
    await writer.wait_synced(writer.last_seq)
    return writer


@contextmanager
def _plain_file(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory / "plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def _bare_sync(descriptor: int, size_bytes: int) -> float:
    data = bytes(size_bytes)
    began = time.perf_counter_ns()
    os.write(descriptor, data)
    os.fdatasync(descriptor)
    return (time.perf_counter_ns() - began) / 1e6


def lay_out(directory: Path, events: int) -> None:
    """A journal of so many events, as fast as it can be encoded."""
    chain = Chain(IDENTITY, START)
    with (directory / segment_file_name(1, START.journal_id)).open("wb") as file:
        file.write(b"".join(item.data for item in chain.begin_segment(Stamp(0, 0))))
        while chain.end.seq < events:
            for record in step(chain.end.seq + 1):
                file.write(chain.append(record, chain.end.seq).data)


def read_all(directory: Path) -> None:
    """What the child process does: prints events a second, and its peak memory in MiB above the start's."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    history, count, began = History([DirectorySource(directory)]), 0, time.perf_counter()
    for batch in history.batches():
        count += len(batch.records)
    seconds = time.perf_counter() - began
    assert history.verdict.state == "intact", history.verdict.banner
    after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(count / seconds, after_kib / 1024, (after_kib - before_kib) / 1024)


def read_in_child(directory: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.journal", "--read", str(directory)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(printed[0]), float(printed[1])


def measure(directory: Path, arguments: argparse.Namespace) -> list[Figure]:
    say(f"{arguments.rounds} durable appends in {directory}")
    durable, bare = trio.run(one_source, directory, arguments.rounds)
    bare_p99 = percentile(bare, 0.99)
    say(f"{SOURCES} sources for {arguments.seconds:g} s")
    rate, waits = trio.run(ten_sources, directory, arguments.seconds)
    say(f"reading {arguments.events} events")
    (directory / "read").mkdir()
    lay_out(directory / "read", arguments.events)
    speeds = [read_in_child(directory / "read") for _ in range(3)]
    speed, memory_mib = sorted(speeds)[1]
    limit = max(DURABLE_MS, 2 * bare_p99)
    basis = f"5 ms or twice a bare fdatasync, whose p99 is {bare_p99:.2f} ms"
    return [
        Figure("durable append, one source, p99", percentile(durable, 0.99), limit, "ms", basis),
        Figure("durable append, one source, p50", median(durable), None, "ms"),
        Figure("bare write and fdatasync, p50", median(bare), None, "ms"),
        Figure("bare write and fdatasync, p99", bare_p99, None, "ms"),
        Figure("ten sources, all durable", rate, SOURCES_EVENTS_PER_SECOND, "events/s", at_least=True),
        Figure("ten sources, wait for ten facts to be durable, p99", percentile(waits, 0.99), None, "ms"),
        Figure("verified reading", speed, READ_EVENTS_PER_SECOND, "events/s", at_least=True),
        Figure("peak memory of reading", memory_mib, READ_MIB_MAX, "MiB", f"{arguments.events} events"),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on the disk to measure")
    options.add_argument("--rounds", type=int, default=2000, help="durable appends")
    options.add_argument("--seconds", type=float, default=5, help="how long the ten sources go on")
    options.add_argument("--events", type=int, default=1_000_000, help="to read")
    options.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.read:
        read_all(arguments.read)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="ebbtide-bench-") as directory:
        return conclude("journal", arguments, measure(Path(directory), arguments))


if __name__ == "__main__":
    sys.exit(main())
