"""Waits until the mounts of a node change, without a thread and without looking.

The kernel says so to who polls the table of mounts (proc_pid_mounts(5)), but as an exceptional condition:
the table itself can always be read, which is all that Trio asks of a descriptor. An epoll of its own in
between, with only that condition in it, can be read exactly when there is something new.
"""

from __future__ import annotations

import os
import select
from pathlib import Path
from types import TracebackType

import trio


class MountChanges:
    """Entered, it notes what changes from then on. ``table`` is such as ``/proc/self/mountinfo``.

    Raises OSError when the table cannot be opened. Of a table that cannot be watched (a kernel that is not
    Linux's own) nothing is ever said.
    """

    def __init__(self, table: Path) -> None:
        self._table = table

    def __enter__(self) -> MountChanges:
        self._mounts = os.open(self._table, os.O_RDONLY | os.O_CLOEXEC)
        self._epoll = select.epoll()
        try:
            self._epoll.register(self._mounts, select.EPOLLPRI)
        except OSError:
            pass  # A file like any other: the time that `wait` is given is its only end.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._epoll.close()
        os.close(self._mounts)

    async def wait(self, seconds: float) -> None:
        """Return after a change since the last return (or entering), at the latest when the time is over."""
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        self._epoll.poll(0)
