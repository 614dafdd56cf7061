"""Every end of a process, seen through its pidfd, by one task however many there are.

All pidfds stand in one epoll set, and that set is itself a descriptor to wait for. Ends that come
together are reported together. Facts that a plain function wants to report go the same way.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import NamedTuple

import trio

from actors.edges.process.signals import signal_name
from actors.interfaces import Outlet
from events.base import Fact

#: Ends taken up in one go: bounds the time until the first of them is reported.
ENDS_MAX = 128


class End(NamedTuple):
    """How a process ended. Both empty: not ours to wait for."""

    exit_code: int | None = None
    signal: str = ""


def reap(pidfd: int) -> End | None:
    """Wait for an own child that has ended, without blocking. None: it runs.

    A process that is not our child (adopted after a restart) gives an `End` without a code.
    """
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return End()
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return End(exit_code=found.si_status)
    return End(signal=signal_name(found.si_status))


class Watch:
    """Waits for the ends of many processes."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ends: dict[int, Callable[[], Fact | None]] = {}
        self._posted: list[Fact] = []
        self._wake = trio.Event()

    def add(self, pidfd: int, on_end: Callable[[], Fact | None]) -> None:
        """Call ``on_end`` once when the process has ended; it owns the pidfd from then on."""
        self._ends[pidfd] = on_end
        self._epoll.register(pidfd, select.EPOLLIN)

    def post(self, fact: Fact) -> None:
        """Report a fact soon."""
        self._posted.append(fact)
        self._wake.set()

    def close(self) -> None:
        self._epoll.close()

    def collect(self) -> list[Fact]:
        """What has ended since the last call, as facts."""
        facts = self._posted
        self._posted = []
        for pidfd, _ in self._epoll.poll(0, ENDS_MAX):
            self._epoll.unregister(pidfd)
            fact = self._ends.pop(pidfd)()
            if fact is not None:
                facts.append(fact)
        return facts

    async def run(self, outlet: Outlet) -> None:
        """Report ends until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_posted, outlet)
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                await _put(outlet, self.collect())

    async def _report_posted(self, outlet: Outlet) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            facts, self._posted = self._posted, []
            await _put(outlet, facts)


async def _put(outlet: Outlet, facts: list[Fact]) -> None:
    if facts:
        await outlet.put(*facts)
