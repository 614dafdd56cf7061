"""``python -m ebbtide.follower``: sends the journal to one place. Its job is on standard input.

The daemon starts one process for a tracing back end, and one for an object store: a shutdown kills only the
second. Each may be killed at any moment: it resumes from the journal and the cursor.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

import msgspec
import trio

from ebbtide import side_process
from ebbtide.events.catalog import DirectorySource, is_own
from ebbtide.events.codec import BadPayload
from ebbtide.events.files import own_directory
from ebbtide.otel import cursor as cursors
from ebbtide.otel.destination import BadDestination
from ebbtide.otel.metric_table import ShippingState
from ebbtide.otel.sending import GaveUp, Sink
from ebbtide.shipping.shipping_destination import LOCK_NAME, BadStore, load_shipped_first, save_shipped

#: Several times the measured need of a journal's chunks and the libraries, or of the largest segment.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
#: The store's client keeps the whole body of an error. The largest segment needs three quarters of it.
SHIPPING_BYTES_MAX = 240 * 1024 * 1024
#: Between two looks: in a shutdown, where the daemon may wait, and otherwise.
LOOK_SECONDS, LOOK_IDLE_SECONDS = 0.02, 0.25
#: Without the daemon, the machine may go too.
LINGER_SECONDS = 5.0
UNWELL_LOOK_SECONDS = 0.1
CLOSE_SECONDS_MAX = 1.0
#: A former daemon's process may still linger.
LOCK_SECONDS_MAX, LOCK_LOOK_SECONDS = 2 * LINGER_SECONDS, 0.05
IN_MEMORY = ("tmpfs", "ramfs")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    """A disk that hangs must not stop the answers to the daemon."""
    return await trio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


async def follow(
    sink: Sink,
    log: Callable[[int, str], None],
    blocking: Callable[..., Awaitable[Any]] = in_thread,
) -> str:
    """Sends what the journal has behind the sink's cursor, until nothing is left. Returns why something is
    left.
    """
    reason = ""
    begun = saved_at = trio.current_time()
    try:
        while True:
            # Before the look, which may miss later records.
            sink.news, leaving = trio.Event(), sink.leaving
            items = await blocking(sink.read)
            if items:
                await sink.take(items)
                begun = trio.current_time()
                if begun - saved_at >= sink.save_seconds:
                    saved_at = begun
                    with suppress(OSError):
                        await blocking(sink.save)
                continue
            if leaving or (not sink.expects_more and trio.current_time() - begun >= sink.idle_seconds):
                break
            with trio.move_on_after(LOOK_SECONDS if sink.expects_more else LOOK_IDLE_SECONDS):
                await sink.news.wait()
    except GaveUp as error:
        reason = str(error)
    except (BadPayload, OSError) as error:
        reason = f"the journal cannot be read: {error}"
        log(3, f"{sink.name}: {reason}")
    finally:
        with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
            await sink.close()
        with trio.move_on_after(LINGER_SECONDS, shield=True), suppress(OSError):
            await blocking(sink.save)
    return reason or sink.left


class Input:
    """None at the end of standard input."""

    def __init__(self) -> None:
        # A copy: the stream closes its descriptor, and the interpreter its own.
        self._stream = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        self._buffer = b""

    async def next(self) -> bytes | None:
        while b"\n" not in self._buffer:
            chunk = await self._stream.receive_some(4096)
            if not chunk or len(self._buffer) > side_process.LINE_BYTES_MAX:
                return None
            self._buffer += chunk
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found


class Daemon:
    """On standard output. A daemon that does not read loses reports: it has more urgent work."""

    def __init__(self) -> None:
        # A copy: a library's prints go to the log.
        self._descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os.set_blocking(self._descriptor, False)

    def send(self, **report: Any) -> None:
        with suppress(OSError):
            os.write(self._descriptor, side_process.encode_line(side_process.Report(**report)))

    def log(self, level: int, text: str) -> None:
        self.send(level=level, text=text)

    def well(self, reason: str) -> None:
        self.send(well=not reason, text=reason)

    def shipping(self, state: ShippingState) -> None:
        self.send(shipping=state)


async def run() -> int:
    requests, daemon = Input(), Daemon()
    first = await requests.next()
    if first is None:
        return side_process.EXIT_WRONG
    job = msgspec.json.decode(first, type=side_process.OtlpJob | side_process.StoreJob)
    writable = (path for path in job.locations if os.access(path, os.W_OK) and is_own(path))
    directory = next(writable, job.locations[0])
    try:
        if isinstance(job, side_process.StoreJob):
            return await _ship(job, directory, requests, daemon)
        return await _export(job, directory, requests, daemon)
    except* OSError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        name = "shipping" if isinstance(job, side_process.StoreJob) else "traces"
        daemon.log(4, f"{name}: the journal cannot be read: {error}")
    return side_process.EXIT_KEPT


async def _locked(directory: str, name: str, daemon: Daemon) -> bool:
    """Whether no other process has that cursor. Raises OSError."""
    # Never closed: the lock ends with the process.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with own_directory(directory) as folder:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    with trio.move_on_after(LOCK_SECONDS_MAX):
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            await trio.sleep(LOCK_LOOK_SECONDS)
    daemon.log(4, f"{name.partition('.')[0]}: another process follows the journal in {directory}")
    return False


async def _ship(job: side_process.StoreJob, directory: str, requests: Input, daemon: Daemon) -> int:
    from ebbtide.shipping.store_sink import ObjectStore, StoreSink, look, state_of

    side_process.lower_priority(SHIPPING_BYTES_MAX)
    sources = [DirectorySource(path, own=True) for path in job.locations]
    try:
        store = ObjectStore(job.store)
    except BadStore as error:
        daemon.log(3, f"shipping: {error}")
        found = look(sources, load_shipped_first(job.locations, job.store))
        daemon.shipping(state_of(*found, str(error)))
        return side_process.EXIT_WRONG
    if not await _locked(directory, LOCK_NAME, daemon):
        return side_process.EXIT_KEPT
    shipped = load_shipped_first(job.locations, job.store)
    keep = partial(save_shipped, directory)
    sink = StoreSink(sources, job.store, store, daemon, keep, shipped)
    return await _until_done(sink, requests, daemon)


async def _export(job: side_process.OtlpJob, directory: str, requests: Input, daemon: Daemon) -> int:
    # Late: at the lowest priority.
    from ebbtide.otel.otlp import sender_for
    from ebbtide.otel.otlp_sink import OtlpSink, Tail

    sources = [DirectorySource(path, own=True) for path in job.locations]
    try:
        # With its libraries now: nothing is imported while the machine goes down.
        sender = sender_for(job.destination)
    except BadDestination as error:
        daemon.log(3, f"traces: {error}")
        return side_process.EXIT_WRONG
    if not await _locked(directory, cursors.LOCK_NAME, daemon):
        return side_process.EXIT_KEPT
    tail = Tail(sources, volatile=_volatile(job.locations))
    keep, load = partial(cursors.save, directory), partial(cursors.load_first, job.locations)
    sink = OtlpSink(tail, sender, daemon, keep, load)
    return await _until_done(sink, requests, daemon)


async def _until_done(sink: Sink, requests: Input, daemon: Daemon) -> int:

    async def flush(request: side_process.Request) -> None:
        # The daemon bounds the time.
        unsent = ""
        while sink.settled_seq < request.durable and not unsent:
            await trio.sleep(LOOK_SECONDS)
            unsent = sink.sending.unwell or sink.left
        daemon.send(flushed=True, number=request.number, text=unsent)

    async def listen() -> None:
        while (line := await requests.next()) is not None:
            request = msgspec.json.decode(line, type=side_process.Request)
            sink.learn(request.durable)
            if request.flush:
                nursery.start_soon(flush, request)
        sink.leave()
        with trio.move_on_after(LINGER_SECONDS):
            while not sink.sending.unwell:
                await trio.sleep(UNWELL_LOOK_SECONDS)
        nursery.cancel_scope.cancel()

    reason = "the daemon has gone"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        reason = await follow(sink, daemon.log)
        nursery.cancel_scope.cancel()
    return side_process.EXIT_KEPT if reason else side_process.EXIT_DONE


def _volatile(locations: Sequence[str]) -> tuple[str, ...]:
    """A sync to a fallback in memory is not durable."""
    mounts = []
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split()[1:3] for line in file]
    found = []
    for location in locations[1:]:
        path = os.path.realpath(location)
        # Of the longest mount points above it, the last one counts.
        above = [each for each in mounts if os.path.commonpath((path, each[0])) == each[0]]
        if above and max(reversed(above), key=lambda each: len(each[0]))[1] in IN_MEMORY:
            found.append(location)
    return tuple(found)


def main() -> None:
    side_process.lower_priority(MEMORY_BYTES_MAX)
    code = trio.run(run)
    # Not by the interpreter's own end: a thread may still have an abandoned request.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
