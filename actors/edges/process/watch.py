"""Every end of a process, seen through its pidfd, by one task however many there are.

All pidfds stand in one epoll set, and that set is itself a descriptor to wait for. Ends that come
together are reported together. Facts that a plain function wants to report go the same way.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable

import trio

from actors.edges.process.endings import PARENT_NS_MAX
from actors.interfaces import Outlet
from events.base import NS_PER_SECOND, Fact

#: Ends taken up in one go: bounds the time until the first of them is reported.
ENDS_MAX = 128

OnEnd = Callable[[], Fact | None]


class Watch:
    """Waits for the ends of many processes."""

    def __init__(self, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._mono_ns = mono_ns
        self._epoll = select.epoll()
        self._ends: dict[int, OnEnd] = {}
        self._adopted: set[int] = set()
        self._due_ns: dict[int, int] = {}
        self._posted: list[Fact] = []
        self._wake = trio.Event()

    def add(self, pidfd: int, on_end: OnEnd, *, child: bool = True) -> None:
        """Call ``on_end`` once when the process has ended; it owns the pidfd from then on."""
        self._ends[pidfd] = on_end
        self._epoll.register(pidfd, select.EPOLLIN)
        if not child:
            self._adopted.add(pidfd)

    def post(self, fact: Fact) -> None:
        """Report a fact soon."""
        self._posted.append(fact)
        self._wake.set()

    def close(self) -> None:
        """Give back every descriptor that is waited for; ends no process."""
        self._epoll.close()
        for pidfd in self._ends:
            os.close(pidfd)
        self._ends.clear()

    def collect(self) -> list[Fact]:
        """What has ended since the last call, as facts."""
        ready = [pidfd for pidfd, events in self._epoll.poll(0, ENDS_MAX) if self._is_final(pidfd, events)]
        now_ns = self._mono_ns()
        overdue = [pidfd for pidfd, due_ns in self._due_ns.items() if due_ns <= now_ns]
        facts = (self._take(pidfd) for pidfd in dict.fromkeys(ready + overdue))
        return [fact for fact in facts if fact is not None]

    def _is_final(self, pidfd: int, events: int) -> bool:
        """An own child is waited for at once; another's when its parent has done so (it hangs up then)."""
        if pidfd not in self._adopted or events & select.EPOLLHUP:
            return True
        self._epoll.modify(pidfd, 0)
        self._due_ns[pidfd] = self._mono_ns() + PARENT_NS_MAX
        return False

    def _take(self, pidfd: int) -> Fact | None:
        self._epoll.unregister(pidfd)
        self._adopted.discard(pidfd)
        self._due_ns.pop(pidfd, None)
        return self._ends.pop(pidfd)()

    async def run(self, outlet: Outlet) -> None:
        """Report ends until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_posted, outlet)
            while True:
                with trio.move_on_after(self._patience()):
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                await _put(outlet, self.collect())

    def _patience(self) -> float:
        if not self._due_ns:
            return math.inf
        return max(0, min(self._due_ns.values()) - self._mono_ns()) / NS_PER_SECOND

    async def _report_posted(self, outlet: Outlet) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            facts, self._posted = self._posted, []
            await _put(outlet, facts)


async def _put(outlet: Outlet, facts: list[Fact]) -> None:
    if facts:
        await outlet.put(*facts)
