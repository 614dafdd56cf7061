"""The edge that switches a machine off, through the management controllers that its node has.

Node and lease are read again before each command, as for the taint: a machine that has spoken since it was
decided stays on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from ebbtide.actors.interfaces import Effect, Ending, Outlet
from ebbtide.events.base import Order
from ebbtide.events.outage_events import PowerOff, Source

NO_CONTROLLER = "no management controller is configured for this node"


class PowerSwitch(Protocol):
    """A management controller: `Redfish`, `Ipmi`."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def power_off(self, system_uuid: str) -> Ending:
        """Done: it took the command, or the machine was off. Bounded in time; raises nothing."""


#: Reads Node and lease, tells what it found, and says why the order is not to be carried out; None: it is.
Check = Callable[[PowerOff, Outlet], Awaitable[Ending | None]]


class PowerEdge:
    """Of one node. ``switches``: asked in their order, until one has taken it."""

    def __init__(self, switches: Sequence[PowerSwitch], check: Check) -> None:
        self._switches, self._check = switches, check
        self.effects: Mapping[type[Order], Effect] = {PowerOff: self._power_off}

    async def run(self, outlet: Outlet) -> None:
        """It speaks when it is asked."""

    def prewarm(self) -> None:
        """Nothing is to be opened."""

    def detach(self) -> None:
        """What was ordered is done."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Whether an earlier leader's command was carried out, the sources say."""
        return None

    async def _power_off(self, order: PowerOff, outlet: Outlet) -> Ending:
        said: list[str] = []
        for switch in self._switches:
            if (refused := await self._check(order, outlet)) is not None:
                if not said:
                    return refused
                # As it stands it would say that nothing was switched, which nobody knows any more.
                said.append(refused.reason)
                break
            ended = await switch.power_off(order.system_uuid)
            if ended.result == "done":
                return ended
            said.append(f"{switch.source} {switch.name}: {ended.reason}")
        return Ending("failed", "; ".join(said) or NO_CONTROLLER)
