"""The machine's console: what whoever stands before it must know within a second of a shutdown's begin.

Only where the daemon runs as a unit; elsewhere its lines are on a terminal already. Once-live: a restart in
mid-shutdown does not say it again.
"""

from __future__ import annotations

import os
from contextlib import suppress

from events.base import Event
from events.decisions import PlanMade, ShutdownBegan, ShutdownCancelled

PATH = "/dev/console"

#: That it begins and until when, what is in the way of the power-off, and that it does not take place.
SHOWN: tuple[type[Event], ...] = (ShutdownBegan, PlanMade, ShutdownCancelled)


def show(line: str, path: str = PATH) -> None:
    """One line. Never waits and never raises: a console that is not there, or does not take it, loses it."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"\r\nebbtide: {line}\r\n".encode(errors="replace"))
        finally:
            os.close(descriptor)
