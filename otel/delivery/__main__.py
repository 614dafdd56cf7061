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
from functools import partial

import msgspec
import trio

from events.catalog import find_path
from events.storage import DirectorySource
from otel.delivery import cursor as cursors
from otel.delivery.control import LINE_BYTES_MAX, Asked, Job, Told, line
from otel.delivery.cursor import Cursor
from otel.delivery.destination import BadDestination
from otel.delivery.exporter import LINGER_SECONDS, Exporter
from otel.delivery.senders import sender_for
from otel.delivery.tail import Tail

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

IN_MEMORY = ("tmpfs", "ramfs")

ALL = 2**63

DONE, KEPT, WRONG = range(3)


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
    lines, voice = Lines(), Speaker()
    first = await lines.next()
    if first is None:
        return WRONG
    job = msgspec.json.decode(first, type=Job)
    from otel.encode import encode_traces

    directory = _directory(job)

    def exporter_of(journal: str) -> Exporter:
        sources = [DirectorySource(path) for path in job.locations]
        tail = Tail(sources, journal, volatile=_volatile(job.locations))
        keep = partial(cursors.save, directory)
        return Exporter(tail, sender_for(job.destination), encode_traces, voice, keep)

    try:
        exporter = exporter_of("")
    except BadDestination as error:
        voice.log(3, f"traces: {error}")
        return WRONG
    if not await _locked(directory):
        voice.log(4, f"traces: another process exports the journal in {directory}")
        return KEPT
    found = cursors.load_first(job.locations)
    others = find_path([DirectorySource(path) for path in job.locations]).others
    # Until the rest has gone, the daemon's words wait in the pipe.
    left = found is not None and found.journal[:8] in others
    if found is not None and left and await _rest_of(exporter_of(found.journal), found):
        return KEPT
    reason = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, lines, voice, exporter, nursery)
        reason = await exporter.run(found)
        nursery.cancel_scope.cancel()
    return KEPT if reason else DONE


async def _rest_of(exporter: Exporter, found: Cursor) -> str:
    """A journal that could not be gone on with, beside which another was begun: nothing of it is still to
    become durable.
    """
    exporter.learn(ALL)
    exporter.leave()
    return await exporter.run(found)


def _directory(job: Job) -> str:
    """The first location that is there and can be written."""
    usable = (path for path in job.locations if os.access(path, os.W_OK))
    return next(usable, job.locations[0])


def _volatile(locations: Sequence[str]) -> tuple[str, ...]:
    """The fallbacks that go with the boot: what stands there only is not durable, whatever was synced."""
    mounts = []
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split()[1:3] for line in file]
    return tuple(path for path in locations[1:] if _kind(os.path.realpath(path), mounts) in IN_MEMORY)


def _kind(path: str, mounts: Sequence[Sequence[str]]) -> str:
    """The file system that a path is on: that of the longest mount point before it, the last one of these."""
    found = [each for each in mounts if os.path.commonpath((path, each[0])) == each[0]]
    return max(reversed(found), key=lambda each: len(each[0]), default=("", ""))[1]


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


async def _listen(lines: Lines, voice: Speaker, exporter: Exporter, nursery: trio.Nursery) -> None:
    while (said := await lines.next()) is not None:
        asked = msgspec.json.decode(said, type=Asked)
        exporter.learn(asked.durable)
        if asked.flush:
            nursery.start_soon(_flush, voice, exporter, asked.durable)
    exporter.leave()
    with trio.move_on_after(LINGER_SECONDS):
        while not exporter.unwell:
            await trio.sleep(UNWELL_LOOK_SECONDS)
    exporter.stop()


async def _flush(voice: Speaker, exporter: Exporter, seq: int) -> None:
    voice.say(Told(text=await exporter.flush(seq), flushed=True))


def main() -> int:
    give_way()
    return trio.run(work)


if __name__ == "__main__":
    sys.exit(main())
