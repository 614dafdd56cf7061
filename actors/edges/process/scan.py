"""One look at all processes, with the marks of ours, that cannot hold the event loop.

Reading the environment of a process that hangs in its own memory lock hangs the reader, and a node that
goes down is where that happens. So a look is taken in a worker thread and given up after
`SCAN_SECONDS_MAX`; for a while looks then do without marks (groups, sessions and parents still count).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio

from actors.edges.process import proc
from actors.edges.process.marks import Mark, Marker

#: 1000 processes take about 20 ms; a second means that one of them holds us.
SCAN_SECONDS_MAX = 1.0
#: After a look was given up, how long the next ones do without marks.
BLIND_NS = 5_000_000_000
#: How old a shared look may be.
SHARED_NS = 50_000_000
#: Half of an autopsy's time.
BRIEF_SECONDS_MAX = 0.05

#: A process that is just becoming another program shows an empty environment for less than this in all;
#: a process that really has none costs every look so much, once.
EMPTY_READS_MAX = 4
EMPTY_SECONDS = 0.0005


class Process(NamedTuple):
    """One process in a look. ``mark`` None: not ours, or not readable."""

    stat: proc.Stat
    mark: Mark | None

    @property
    def pid(self) -> int:
        return self.stat.pid


class Scanner:
    """Looks at ``/proc`` for one state directory."""

    def __init__(self, marker: Marker, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._marker = marker
        self._mono_ns = mono_ns
        self._blind_until_ns = 0
        self._sharing = trio.Lock()
        self._shared: list[Process] = []
        self._shared_ns = mono_ns() - SHARED_NS - 1
        self._limiter = trio.CapacityLimiter(1)

    async def look(self, seconds: float = SCAN_SECONDS_MAX) -> list[Process]:
        """All processes, marks included unless a process holds us for so long, or has just done so."""
        if self._mono_ns() >= self._blind_until_ns:
            with trio.move_on_after(seconds):
                return await trio.to_thread.run_sync(
                    self.look_now, abandon_on_cancel=True, limiter=self._limiter
                )
            self._blind_until_ns = self._mono_ns() + BLIND_NS
            # The thread that hangs keeps its token; the next look needs another.
            self._limiter = trio.CapacityLimiter(1)
        return self.look_without_marks()

    async def look_shared(self) -> list[Process]:
        """A look that is at most `SHARED_NS` old, however many ask for one at the same time."""
        async with self._sharing:
            if self._mono_ns() - self._shared_ns > SHARED_NS:
                self._shared = await self.look()
                self._shared_ns = self._mono_ns()
            return self._shared

    async def look_briefly(self) -> list[Process]:
        """The same for evidence only: without marks when it would take longer than `BRIEF_SECONDS_MAX`."""
        with trio.move_on_after(BRIEF_SECONDS_MAX):
            return await self.look_shared()
        return self.look_without_marks()

    def look_without_marks(self) -> list[Process]:
        """Never waits for a process."""
        return [Process(stat, None) for stat in _stats()]

    def look_now(self) -> list[Process]:
        """The same at once, on the caller's thread; may hang."""
        found = [(stat, self._environ(stat)) for stat in _stats()]
        for _ in range(EMPTY_READS_MAX):
            if all(environ != b"" for _, environ in found):
                break
            time.sleep(EMPTY_SECONDS)
            found = [(stat, self._environ(stat) if environ == b"" else environ) for stat, environ in found]
        return [Process(stat, self._marker.read(environ) if environ else None) for stat, environ in found]

    def _environ(self, stat: proc.Stat) -> bytes | None:
        """None where there is nothing to read: zombies, kernel threads, and what is not ours."""
        if stat.state in "ZX" or 2 in (stat.pid, stat.parent_pid):
            return None
        return proc.read_bytes(f"/proc/{stat.pid}/environ", proc.ENVIRON_BYTES_MAX)


def _stats() -> Iterator[proc.Stat]:
    for pid in proc.pids():
        stat = proc.read_stat(pid)
        if stat is not None:
            yield stat
