"""Memory limits for reading journals that strangers may have made: an error names the journal.

No process takes more than 256 MiB. A command has 50 before it reads, a worker of a fleet 110. They look
themselves: a limit of the kernel would end a library without an error.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from ebbtide.events.units import size_text

#: Beyond that. A shutdown of 2 000 pods needs 60 in a worker, and 20 in a command.
WORKER_BYTES_MAX, READER_BYTES_MAX = 80 << 20, 128 << 20
#: The rest of the 256 is for a piece, and for answers on their way.
PROCESS_BYTES_MAX, ORDINARY_BYTES = 192 << 20, 16 << 20
ITEMS_A_LOOK, LOOK_SECONDS = 4096, 0.02
T = TypeVar("T")
#: What a command reads, and whether that took too much memory.
reading, exceeded = "", False


class Exceeded(BaseException):
    """No MemoryError: an ``except Exception`` would take it, and a replay would report a failed actor."""


def too_large_text(bytes_max: int) -> str:
    return f"reading it takes more than {size_text(bytes_max)} of memory, which no node's journal does"


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class MemoryWatch:
    """``bytes_max``: more than now, up to the whole process's limit."""

    def __init__(self, bytes_max: int) -> None:
        now = _resident_bytes()
        # Freed memory may stay with the process after another journal: an ordinary one is read all the same.
        self._bytes_max = min(now + bytes_max, max(PROCESS_BYTES_MAX, now + ORDINARY_BYTES))

    def look(self) -> None:
        """Raises MemoryError."""
        if _resident_bytes() > self._bytes_max:
            raise MemoryError

    def watched(self, items: Iterable[T]) -> Iterator[T]:
        for count, item in enumerate(items):
            if count % ITEMS_A_LOOK == 0:
                self.look()
            yield item


def watch_process() -> Callable[[], object]:
    """From now on too much memory raises Exceeded once, anywhere in the main thread: a page or a table may
    take more than its journal. Returns how to end this. Another thread gets no signal, and no watch.

    Trio may wrap the error, so `guard` looks at ``exceeded``.
    """
    global exceeded
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    exceeded = False
    watch, end = MemoryWatch(READER_BYTES_MAX), partial(signal.setitimer, signal.ITIMER_PROF, 0.0)

    def look(number: int, frame: object) -> None:
        global exceeded
        try:
            watch.look()
        except MemoryError:
            # The error's way out has as much memory.
            end()
            exceeded = True
            raise Exceeded from None

    signal.signal(signal.SIGPROF, look)
    # Of the processor's time: an idle reader wakes for no look.
    signal.setitimer(signal.ITIMER_PROF, LOOK_SECONDS, LOOK_SECONDS)
    return end
