"""The ends of processes, seen through pidfds.

The kernel's wait gives the exit code of a child. An adopted pod (its daemon died) is another process's child.
Since Linux 6.15 its pidfd has the exit code once its parent has waited; on older kernels it stays unknown.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import signal_name
from ebbtide.actors.interfaces import Outlet
from ebbtide.events import bounds
from ebbtide.events.base import Fact

#: A parent that waits at all does so within a millisecond.
PARENT_POLL_SECONDS = 0.002

#: ``struct pidfd_info`` of ``linux/pidfd.h`` in its first size: a mask of 64 bits, ids, the exit code.
INFO_BYTES = 64
INFO_EXIT = 1 << 3
#: ``_IOWR(0xFF, 11, struct pidfd_info)``
PIDFD_GET_INFO = 3 << 30 | INFO_BYTES << 16 | 0xFF << 8 | 11
INFO_MASK = struct.Struct("=Q")
INFO_EXIT_CODE = struct.Struct("=i")


class Child(NamedTuple):
    """A running child. The caller closes ``pidfd``."""

    pid: int
    pidfd: int
    start_ticks: int


def open_child(pid: int, start_ticks: int) -> Child | None:
    """A pidfd for exactly this process; None: it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if proc.is_same_process(pid, start_ticks):
        return Child(pid, pidfd, start_ticks)
    os.close(pidfd)
    return None


class ExitStatus(NamedTuple):
    """Both empty: unknown."""

    exit_code: int | None = None
    signal: str = ""


def exit_of_wait_status(status: int) -> ExitStatus:
    code = os.waitstatus_to_exitcode(status)
    return ExitStatus(exit_code=code) if code >= 0 else ExitStatus(signal=signal_name(-code))


def reap(pidfd: int) -> ExitStatus | None:
    """Wait for an ended child without blocking; None: it runs. For another process's child: as its pidfd
    says.
    """
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return exit_of_pidfd(pidfd)
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return ExitStatus(exit_code=found.si_status)
    return ExitStatus(signal=signal_name(found.si_status))


async def reap_soon(pidfd: int) -> ExitStatus:
    """`reap` for an ended process. Another process's child gets a moment to be waited for."""
    # A hang-up means that the parent has waited: the descriptor's answer is final.
    poll = select.poll()
    poll.register(pidfd, 0)
    end = reap(pidfd)
    with trio.move_on_after(bounds.now.parent_seconds):
        while end == ExitStatus() and not poll.poll(0):
            await trio.sleep(PARENT_POLL_SECONDS)
    return end if end not in (None, ExitStatus()) else exit_of_pidfd(pidfd)


def exit_of_pidfd(pidfd: int) -> ExitStatus:
    """From a waited process's pidfd; empty on older kernels."""
    info = bytearray(INFO_BYTES)
    INFO_MASK.pack_into(info, 0, INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return ExitStatus()
    if not INFO_MASK.unpack_from(info)[0] & INFO_EXIT:
        return ExitStatus()
    return exit_of_wait_status(INFO_EXIT_CODE.unpack_from(info, INFO_BYTES - INFO_EXIT_CODE.size)[0])


#: Called once when the process has ended. It closes the pidfd last, and may return a fact.
OnExit = Callable[[], Awaitable[Fact | None]]


class ExitWatch:
    """Waits for the ends of processes, from `run` on."""

    def __init__(self) -> None:
        self._items, self._incoming = trio.open_memory_channel[tuple[int, OnExit, bool] | Fact](math.inf)
        self._open: set[int] = set()

    def add(self, pidfd: int, on_end: OnExit, *, child: bool = True) -> None:
        """``child`` False: of another process."""
        self._open.add(pidfd)
        self._items.send_nowait((pidfd, on_end, child))

    def post(self, fact: Fact) -> None:
        """Report a fact soon."""
        self._items.send_nowait(fact)

    def close(self) -> None:
        """Close all descriptors, after `run` has ended. Ends no process."""
        for pidfd in self._open:
            os.close(pidfd)
        self._open.clear()

    async def run(self, outlet: Outlet) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            async for item in self._incoming:
                if isinstance(item, Fact):
                    await outlet.put(item)
                else:
                    nursery.start_soon(self._follow, *item, outlet)

    async def _follow(self, pidfd: int, on_end: OnExit, child: bool, outlet: Outlet) -> None:
        await trio.lowlevel.wait_readable(pidfd)
        if not child:
            # Its parent has the exit code first. A parent that never waits must not keep a wave from ending.
            await reap_soon(pidfd)
        fact = await on_end()
        self._open.discard(pidfd)
        if fact is not None:
            await outlet.put(fact)
