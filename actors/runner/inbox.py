"""The one inbox: bounded, with lanes, emptied by one sequencer.

A lane that is full makes its edge wait, which is the back-pressure: logind and people never wait behind an
inventory. Outcomes are not counted against a limit, because there is at most one for each order.
"""

from __future__ import annotations

from collections import deque

import trio

from actors.logic.lanes import LANES, REST, URGENT
from events.base import Fact

#: Waiting groups in one lane before its edges wait. A flood of forged signals fills its lane and no more.
LANE_GROUPS_MAX = 1024

Group = tuple[Fact, ...]


class Inbox:
    """Groups of facts; a group is admitted as a whole, in its own order."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[Group], ...] = (deque(), deque(), deque())
        self._arrived = trio.Event()
        self._room = trio.Event()

    async def put(self, *facts: Fact) -> None:
        """Wait for room in the lane of the first fact, then leave the group there."""
        lane = self._lanes[LANES.get(type(facts[0]), REST)]
        while len(lane) >= LANE_GROUPS_MAX:
            await self._room.wait()
        self.push(*facts)
        await trio.lowlevel.checkpoint()

    def push(self, *facts: Fact) -> None:
        """Leave a group without waiting: outcomes, and what the sequencer itself observed."""
        self._lanes[LANES.get(type(facts[0]), REST)].append(facts)
        self._arrived.set()

    def take(self, *, urgent_only: bool = False) -> Group | None:
        """The next group, or None. ``urgent_only``: something else comes before the other lanes."""
        for lane in self._lanes[: URGENT + 1] if urgent_only else self._lanes:
            if lane:
                if len(lane) == LANE_GROUPS_MAX:
                    self._room.set()
                    self._room = trio.Event()
                return lane.popleft()
        return None

    def rearm(self) -> trio.Event:
        """The event that the next arrival sets; take it before finding the lanes empty."""
        if self._arrived.is_set():
            self._arrived = trio.Event()
        return self._arrived
