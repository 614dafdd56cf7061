"""What differs between a node, the demo and a test: who is told, and where facts about the process come from.

Apart from `ebbtide.host` because ``hurry`` and ``status`` load this and nothing of a node's edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ebbtide.events.facts import DaemonStarted, StopRequested

#: Takes a line of the log with its sd-daemon(3) level.
Tell = Callable[[int, str], None]

#: The same with fields for programs (`ebbtide.log`).
Report = Callable[[int, str, Mapping[str, str]], None]


def without_fields(tell: Tell) -> Report:
    """For whoever only shows lines to people."""
    return lambda level, line, fields: tell(level, line)


class Host(Protocol):
    """What differs between a node and the demo: where facts about the process come from."""

    async def started(self) -> DaemonStarted:
        """The first fact of this process."""

    async def stopping(self, needed_ns: int) -> StopRequested:
        """SIGTERM came: is it our unit only, or the machine? ``needed_ns``: what a shutdown would need."""

    def notify(self, **variables: str | int) -> None:
        """Tell the service manager."""
