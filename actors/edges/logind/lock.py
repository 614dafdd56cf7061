"""The delay lock: one descriptor of ours, and the service manager's duplicate of it.

logind lets the machine go when every duplicate is closed. So each descriptor is close-on-exec (a child
that inherited one would hold the machine), a new lock is taken before an old one is closed, and the
service manager confirms that its duplicate is gone before ours goes.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

from actors.edges.service import LOCK_NAME, ServiceManager

NOT_CONFIRMED = (
    "the service manager did not confirm that it dropped its copy of the lock; "
    "logind may wait until its own limit is over"
)


class DelayLock:
    """``descriptors`` are those that the service manager kept for us."""

    def __init__(self, service: ServiceManager, descriptors: Sequence[int] = ()) -> None:
        self._service = service
        self._descriptors = list(descriptors)
        self._stored = bool(descriptors)

    @property
    def held(self) -> bool:
        return bool(self._descriptors)

    def alive(self) -> bool:
        """Whether logind holds the other end of one. Only right while logind answers on the bus."""
        poll = select.poll()
        for descriptor in self._descriptors:
            poll.register(descriptor, 0)
        return len(poll.poll(0)) < len(self._descriptors)

    async def take(self, descriptor: int) -> None:
        """Hold a new lock, then let go of the old one, if any."""
        os.set_inheritable(descriptor, False)
        old, self._descriptors = self._descriptors, [descriptor]
        if self._stored:
            await self._service.remove(LOCK_NAME)
        self._stored = await self._service.store(LOCK_NAME, descriptor)
        _close(old)

    async def give_back(self) -> str:
        """Close every duplicate; empty, or why one may be left. Idempotent."""
        confirmed = not self._stored or await self._service.remove(LOCK_NAME)
        self._stored = False
        old, self._descriptors = self._descriptors, []
        _close(old)
        return "" if confirmed else NOT_CONFIRMED

    def hand_over(self) -> list[int]:
        """Our own descriptors, for somebody else to hold or close. The store is left as it is."""
        self._stored = False
        gone, self._descriptors = self._descriptors, []
        return gone


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
