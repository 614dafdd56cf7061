"""Who is due when: the deadlines of all actors, the earliest first, ties by registration.

A heap that forgets lazily: an entry counts only while it is its slot's deadline, so that moving a deadline
costs no search.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from actors.logic.actor import NEVER_NS
from actors.logic.slot import Slot


class Deadlines:
    """Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Slot]] = []

    def watch(self, slot: Slot, deadline_ns: int) -> None:
        """This slot's deadline from here on; `NEVER_NS`: none."""
        slot.deadline_ns = deadline_ns
        if deadline_ns < NEVER_NS:
            heappush(self._heap, (deadline_ns, slot.index, slot))

    def take(self, now_ns: int) -> list[Slot]:
        """Whose deadline has come. Each is taken once."""
        due: list[Slot] = []
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, _, slot = heappop(self._heap)
            if slot.deadline_ns == deadline_ns and not slot.failed:
                slot.deadline_ns = NEVER_NS
                due.append(slot)
        return due

    def next_ns(self) -> int | None:
        """The earliest; None if nobody waits."""
        while self._heap and self._heap[0][2].deadline_ns != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def keep(self, slots: Iterable[Slot]) -> None:
        """Nobody else is waited for any more."""
        alive = dict.fromkeys(slot.index for slot in slots)
        self._heap = [entry for entry in self._heap if entry[2].index in alive]
        heapify(self._heap)
