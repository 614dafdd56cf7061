"""``python -m ebbtide.otel.delivery``: the exporter's process, its job on standard input.

It gives way to everybody: lowest priority, first to go when memory is short, a limit on its own.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import trio

from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery.destination import (
    EXIT_DONE,
    EXIT_KEPT,
    EXIT_WRONG,
    LINE_BYTES_MAX,
    BadDestination,
    DaemonRequest,
    ExporterReport,
    Job,
    encode_line,
)
from ebbtide.otel.delivery.exporter import LINGER_SECONDS, Exporter, innermost_error
from ebbtide.otel.delivery.priority import lower_priority

#: Five times what 4 096 waiting spans, a journal's chunks and the libraries have been seen to need.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
#: An exporter of a daemon before may still be finishing.
LOCK_SECONDS_MAX = 2 * LINGER_SECONDS
LOCK_LOOK_SECONDS = 0.05
#: Once the daemon has gone, nobody lingers for a back end that does not answer.
UNWELL_LOOK_SECONDS = 0.1
CHUNK_BYTES = 4096


class InputLines:
    """Standard input, line by line; None at its end."""

    def __init__(self) -> None:
        # A copy, because the stream closes what it was given, and the interpreter its own standard input.
        self._stream = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        self._buffer = b""

    async def next(self) -> bytes | None:
        while b"\n" not in self._buffer:
            chunk = await self._stream.receive_some(CHUNK_BYTES)
            if not chunk or len(self._buffer) > LINE_BYTES_MAX:
                return None
            self._buffer += chunk
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found


class DaemonPipe:
    """Standard output; a daemon that has gone, or does not read, is not waited for."""

    def __init__(self) -> None:
        # A copy: what an exporter prints (`console`) belongs to the log, and not between two reports.
        self._descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        # In a shutdown the daemon has better to do than to read: a full pipe loses a line of the log, and
        # must not hold the delivery up.
        os.set_blocking(self._descriptor, False)

    def log(self, level: int, text: str) -> None:
        self.send(ExporterReport(text=text, level=level))

    def well(self, reason: str) -> None:
        self.send(ExporterReport(well=not reason, text=reason))

    def send(self, report: ExporterReport) -> None:
        with suppress(OSError):
            os.write(self._descriptor, encode_line(report))


async def run_exporter() -> int:
    """Its exit code."""
    requests, pipe = InputLines(), DaemonPipe()
    first = await requests.next()
    if first is None:
        return EXIT_WRONG
    from ebbtide.otel.delivery.export_run import ExportRun  # late: at the lowest priority

    try:
        run = ExportRun(msgspec.json.decode(first, type=Job), pipe)
    except BadDestination as error:
        pipe.log(3, f"traces: {error}")
        return EXIT_WRONG
    try:
        if not await _locked(run.directory):
            pipe.log(4, f"traces: another process exports the journal in {run.directory}")
            return EXIT_KEPT
        # Until the rest of an older journal has been sent, the daemon's requests wait in the pipe.
        if await run.finish_former():
            return EXIT_KEPT
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_listen, requests, pipe, run.exporters, nursery)
            delivered = await run.run()
            nursery.cancel_scope.cancel()
        return EXIT_DONE if delivered else EXIT_KEPT
    except* OSError as group:
        pipe.log(4, f"traces: the journal cannot be read: {innermost_error(group)}")
    return EXIT_KEPT


async def _locked(directory: str) -> bool:
    # Never closed: the lock is given back with the process, however that ends. Two exporters on one cursor
    # would each put it back to what they know, and send the same spans again at every start.
    descriptor = os.open(
        os.path.join(directory, cursors.LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    with trio.move_on_after(LOCK_SECONDS_MAX):
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                await trio.sleep(LOCK_LOOK_SECONDS)
    return False


async def _listen(
    requests: InputLines, pipe: DaemonPipe, exporters: Sequence[Exporter], nursery: trio.Nursery
) -> None:
    # What is durable concerns all of them; a flush, that somebody waits for, the traces alone.
    while (line := await requests.next()) is not None:
        request = msgspec.json.decode(line, type=DaemonRequest)
        for exporter in exporters:
            exporter.learn(request.durable)
        if request.flush:
            nursery.start_soon(_flush, pipe, exporters[0], request)
    # The daemon has gone, so the machine may be about to go: what is here is sent if it goes quickly.
    for exporter in exporters:
        exporter.leave()
    with trio.move_on_after(LINGER_SECONDS):
        while not exporters[0].unwell:
            await trio.sleep(UNWELL_LOOK_SECONDS)
    for exporter in exporters:
        exporter.stop()


async def _flush(pipe: DaemonPipe, exporter: Exporter, request: DaemonRequest) -> None:
    text = await exporter.flush(request.durable)
    pipe.send(ExporterReport(text=text, flushed=True, number=request.number))


def main() -> int:
    lower_priority(MEMORY_BYTES_MAX)
    return trio.run(run_exporter)


if __name__ == "__main__":
    sys.exit(main())
