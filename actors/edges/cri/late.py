"""Pods that come while the node goes down: which were in no inventory of this shutdown?"""

from __future__ import annotations

import time
from collections.abc import Iterable

from actors.edges.cri.table import PodEntry
from events.decisions import TakeInventory


class Late:
    """Until its time is over, each pod that was not listed is found once."""

    def __init__(self) -> None:
        self._until_ns = 0
        #: The UIDs of all pods that this shutdown was given.
        self.listed: dict[str, None] = {}

    @property
    def open(self) -> bool:
        return time.monotonic_ns() < self._until_ns

    def note(self, order: TakeInventory, uids: Iterable[str]) -> None:
        """An inventory of these: the first of a shutdown, or a refreshed one."""
        if not order.refresh:
            self.listed, self._until_ns = {}, 0
        self.add(uids)
        self._until_ns = max(self._until_ns, order.late_until_ns)

    def add(self, uids: Iterable[str]) -> None:
        self.listed |= dict.fromkeys(uids)

    def find(self, pods: list[PodEntry]) -> list[PodEntry]:
        return [pod for pod in pods if pod.uid not in self.listed] if self.open else []
