"""Reading logind's manager: one round trip for several properties, since calls are sent side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from actors.edges.bus import Bus, BusError, Refused
from actors.edges.logind.names import MANAGER, is_kubelet_lock, kind_in_metadata, kind_of
from actors.edges.logind.timespan import grant_ns
from actors.edges.side_by_side import side_by_side
from events.model import ShutdownKind

T = TypeVar("T")
Part = Callable[[Bus], Awaitable[Any]]


class Reading(NamedTuple):
    """What logind said at one moment."""

    preparing: bool
    grant_ns: int
    kind: ShutdownKind
    kubelet_lock: bool


async def ask_all(bus: Bus, *parts: Part) -> list[Any]:
    """Each part's answer, in order; raises the first BusError after all have ended."""
    return await side_by_side(BusError, *(partial(part, bus) for part in parts))


def _as(kind: type[T], value: object) -> T:
    """A value of the type that logind documents; raises BusError for another."""
    if not isinstance(value, kind):
        raise BusError(f"logind answered {value!r} where a {kind.__name__} was expected")
    return value


async def preparing(bus: Bus) -> bool:
    """Is the machine going down? True from the signal until it does, or does not."""
    return _as(bool, await bus.get(MANAGER, "PreparingForShutdown"))


async def grant(bus: Bus) -> int:
    """The limit in force, in nanoseconds."""
    return grant_ns(_as(int, await bus.get(MANAGER, "InhibitDelayMaxUSec")))


async def kind(bus: Bus) -> ShutdownKind:
    """What is coming. On 252 the only place is ``ScheduledShutdown``, also for an immediate reboot."""
    return kind_of(_as(tuple, await bus.get(MANAGER, "ScheduledShutdown"))[0])


async def kind_now(bus: Bus) -> ShutdownKind:
    """The kind of the shutdown that runs: the metadata property (newer systemd), else the schedule."""
    try:
        metadata = await bus.get(MANAGER, "PreparingForShutdownWithMetadata")
    except Refused:
        return await kind(bus)
    found = kind_in_metadata(metadata)
    return await kind(bus) if found == "unknown" else found


async def kubelet_lock(bus: Bus) -> bool:
    """Does a program called ``kubelet`` hold a delay lock on shutdown?"""
    rows = (await bus.method(MANAGER, "ListInhibitors"))[0]
    return any(is_kubelet_lock(row) for row in rows)


async def read_all(bus: Bus) -> Reading:
    """Raises BusError. The kind of a machine that does not go down is unknown."""
    going, limit, coming, kubelet = await ask_all(bus, preparing, grant, kind_now, kubelet_lock)
    return Reading(going, limit, coming if going else "unknown", kubelet)
