"""logind of the world: the one of every simulation (`replay.virtual.logind`), its waits being tasks."""

from __future__ import annotations

from collections.abc import Callable

import trio

from events.model import ShutdownKind
from replay.virtual import logind
from replay.virtual.logind import (
    STORE,
    Disconnected,
    Going,
    InProgress,
    OwnerChanged,
    Said,
    Unreachable,
)
from tests.world.trail import Tasks, Trail

__all__ = ["STORE", "Disconnected", "Going", "InProgress", "Logind", "OwnerChanged", "Said", "Unreachable"]


class Logind(logind.Logind):
    """One boot's logind. ``nursery`` ends with the boot."""

    def __init__(
        self,
        trail: Trail,
        nursery: trio.Nursery,
        act: Callable[[ShutdownKind], None],
        others_ns: int | None,
        *,
        obeys_drop_in: bool = True,
    ) -> None:
        super().__init__(trail, Tasks(nursery), act, others_ns, obeys_drop_in=obeys_drop_in)
