"""A process of the daemon's that is not its work: its pipes to the daemon, its lock, what ended it."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress

import msgspec
import trio

from ebbtide.otel.delivery.destination import LINE_BYTES_MAX, ExporterReport, encode_line

CHUNK_BYTES = 4096
LOCK_LOOK_SECONDS = 0.05


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

    def send(self, report: msgspec.Struct) -> None:
        with suppress(OSError):
            os.write(self._descriptor, encode_line(report))


async def locked(directory: str, name: str, seconds_max: float) -> bool:
    """Whether this process is now the only one with that lock. Raises OSError."""
    # Never closed: the lock is given back with the process, however that ends. Two exporters on one cursor
    # would each put it back to what they know, and send the same spans again at every start.
    descriptor = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with trio.move_on_after(seconds_max):
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                await trio.sleep(LOCK_LOOK_SECONDS)
    return False


def innermost_error(error: BaseException) -> BaseException:
    """The first error out of the groups of nurseries."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
