"""What a daemon learns of logind before it has a loop to learn it with."""

from __future__ import annotations

from typing import NamedTuple

from events.model import ShutdownKind


class StartState(NamedTuple):
    """For `DaemonStarted`; ``preparing`` None: logind could not be asked."""

    preparing: bool | None = None
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0
