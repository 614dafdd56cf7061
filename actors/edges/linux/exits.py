"""The ends of processes, seen through pidfds by one task.

The kernel's wait gives the exit code of a child. An adopted pod (its daemon died) is another process's child.
Since Linux 6.15 its pidfd has the exit code once its parent has waited; on older kernels it stays unknown.

All pidfds are in one epoll set, which is itself a descriptor to wait for. Ends that come together are
reported together, with the facts of plain functions.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import signal_name
from ebbtide.actors.interfaces import Outlet
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Fact

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


#: In one go: bounds the time until the first is reported.
EXITS_MAX = 128

OnExit = Callable[[], Fact | None]


class ExitWatch:
    def __init__(self, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._mono_ns = mono_ns
        self._epoll = select.epoll()
        self._ends: dict[int, OnExit] = {}
        self._adopted: set[int] = set()
        self._due_ns: dict[int, int] = {}
        self._posted: list[Fact] = []
        self._wake = trio.Event()

    def add(self, pidfd: int, on_end: OnExit, *, child: bool = True) -> None:
        """Call ``on_end`` once when the process has ended. From now on it owns the pidfd."""
        self._ends[pidfd] = on_end
        self._epoll.register(pidfd, select.EPOLLIN)
        if not child:
            self._adopted.add(pidfd)

    def post(self, fact: Fact) -> None:
        """Report a fact soon."""
        self._posted.append(fact)
        self._wake.set()

    def close(self) -> None:
        """Close all descriptors; ends no process."""
        self._epoll.close()
        for pidfd in self._ends:
            os.close(pidfd)
        self._ends.clear()

    def collect(self) -> list[Fact]:
        """What has ended since the last call, as facts."""
        ready = []
        for pidfd, events in self._epoll.poll(0, EXITS_MAX):
            # A child is waited for at once. Another process's child: at its hang-up, when its parent has
            # waited, or after a while without an exit code, since a parent that never waits must not keep a
            # wave from ending.
            if pidfd not in self._adopted or events & select.EPOLLHUP:
                ready.append(pidfd)
            else:
                self._epoll.modify(pidfd, 0)
                self._due_ns[pidfd] = self._mono_ns() + round(bounds.now.parent_seconds * NS_PER_SECOND)
        now_ns = self._mono_ns()
        overdue = [pidfd for pidfd, due_ns in self._due_ns.items() if due_ns <= now_ns]
        facts = []
        for pidfd in dict.fromkeys(ready + overdue):
            # Before the call, which closes the descriptor: the next one may get its number.
            self._epoll.unregister(pidfd)
            self._adopted.discard(pidfd)
            self._due_ns.pop(pidfd, None)
            facts.append(self._ends.pop(pidfd)())
        return [fact for fact in facts if fact is not None]

    async def run(self, outlet: Outlet) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_posted, outlet)
            while True:
                left_ns = min(self._due_ns.values(), default=None)
                seconds = math.inf if left_ns is None else (left_ns - self._mono_ns()) / NS_PER_SECOND
                with trio.move_on_after(max(0, seconds)):
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                await _put_facts(outlet, self.collect())

    async def _report_posted(self, outlet: Outlet) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            facts, self._posted = self._posted, []
            await _put_facts(outlet, facts)


async def _put_facts(outlet: Outlet, facts: list[Fact]) -> None:
    if facts:
        await outlet.put(*facts)
