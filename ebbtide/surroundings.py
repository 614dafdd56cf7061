"""What differs between a node, the demo and a test: where facts about the process come from, who is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from events.facts import DaemonStarted, StopRequested

#: Takes a line of the log with its sd-daemon(3) level.
Tell = Callable[[int, str], None]


class Surroundings(Protocol):
    """What differs between a node and the demo: where facts about the process come from."""

    async def started(self) -> DaemonStarted:
        """The first fact of this process."""

    async def stopping(self, needed_ns: int) -> StopRequested:
        """SIGTERM came: is it our unit only, or the machine? ``needed_ns``: what a shutdown would need."""

    def notify(self, **variables: str | int) -> None:
        """Tell the service manager."""
