"""``python -m otel.delivery``: the exporter's process, started by the daemon and told its job on standard
input.

It gives way to everybody: lowest priority, first to go when memory is short, a limit on its own.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio

from otel.delivery import cursor as cursors
from otel.delivery.control import DONE, KEPT, LINE_BYTES_MAX, WRONG, Asked, Job, Told, line
from otel.delivery.destination import BadDestination
from otel.delivery.exporter import LINGER_SECONDS, Exporter
from otel.delivery.surroundings import innermost

if TYPE_CHECKING:
    from otel.delivery.errand import Errand

NICE = 19
#: Five times what 4 096 waiting spans, a journal's chunks and the libraries have been seen to need.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
#: Where the kernel looks first when memory is short (proc(5)): the daemon itself asks for the opposite.
OOM_SCORE = "900"
#: An exporter of a daemon before may still be finishing.
LOCK_SECONDS_MAX = 2 * LINGER_SECONDS
LOCK_LOOK_SECONDS = 0.05
#: Once the daemon has gone, nobody lingers for a back end that does not answer.
UNWELL_LOOK_SECONDS = 0.1
CHUNK_BYTES = 4096


def give_way() -> None:
    """What is refused here (a system call filter) is no reason not to go on."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


class Lines:
    """Standard input, line by line; None at its end."""

    def __init__(self) -> None:
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


class Speaker:
    """Standard output; a daemon that has gone, or does not read, is not waited for."""

    def __init__(self) -> None:
        os.set_blocking(sys.stdout.fileno(), False)

    def log(self, level: int, text: str) -> None:
        self.say(Told(text=text, level=level))

    def well(self, reason: str) -> None:
        self.say(Told(well=not reason, text=reason))

    def say(self, told: Told) -> None:
        with suppress(OSError):
            os.write(sys.stdout.fileno(), line(told))


async def work() -> int:
    """Its exit code."""
    lines, voice = Lines(), Speaker()
    first = await lines.next()
    if first is None:
        return WRONG
    from otel.delivery.errand import Errand  # late: at the lowest priority

    try:
        errand = Errand(msgspec.json.decode(first, type=Job), voice)
    except BadDestination as error:
        voice.log(3, f"traces: {error}")
        return WRONG
    try:
        if not await _locked(errand.directory):
            voice.log(4, f"traces: another process exports the journal in {errand.directory}")
            return KEPT
        return await _do(errand, lines, voice)
    except* OSError as group:
        voice.log(4, f"traces: the journal cannot be read: {innermost(group)}")
    return KEPT


async def _do(errand: Errand, lines: Lines, voice: Speaker) -> int:
    """Raises OSError."""
    # Until the rest has gone, the daemon's words wait in the pipe.
    if await errand.finish_former():
        return KEPT
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, lines, voice, errand.exporters, nursery)
        went = await errand.run()
        nursery.cancel_scope.cancel()
    return DONE if went else KEPT


async def _locked(directory: str) -> bool:
    """The lock is given back with the process."""
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


async def _listen(lines: Lines, voice: Speaker, exporters: Sequence[Exporter], nursery: trio.Nursery) -> None:
    """What is durable concerns all of them, a flush the traces, the first one."""
    while (said := await lines.next()) is not None:
        asked = msgspec.json.decode(said, type=Asked)
        for exporter in exporters:
            exporter.learn(asked.durable)
        if asked.flush:
            nursery.start_soon(_flush, voice, exporters[0], asked)
    for exporter in exporters:
        exporter.leave()
    with trio.move_on_after(LINGER_SECONDS):
        while not exporters[0].unwell:
            await trio.sleep(UNWELL_LOOK_SECONDS)
    for exporter in exporters:
        exporter.stop()


async def _flush(voice: Speaker, exporter: Exporter, asked: Asked) -> None:
    text = await exporter.flush(asked.durable)
    voice.say(Told(text=text, flushed=True, number=asked.number))


def main() -> int:
    give_way()
    return trio.run(work)


if __name__ == "__main__":
    sys.exit(main())
