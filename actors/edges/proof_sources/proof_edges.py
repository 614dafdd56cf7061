"""The edges of one node that use its sources: read them all at once, and switch the machine off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ebbtide.actors.edges.proof_sources.proof_source import Machine, PowerSwitch, ProofSource, Said
from ebbtide.actors.interfaces import Clock, Edge, Effect, Ending, Outlet, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.outage_events import EvidenceRead, PowerOff, ReadSources
from ebbtide.events.units import span_s

NO_CONTROLLER = "no management controller is configured for this node"


class SourcesEdge(Edge):
    """``machine`` None: the Node is not known, and no source is asked."""

    def __init__(
        self, sources: Sequence[ProofSource], machine: Callable[[], Machine | None], clock: Clock
    ) -> None:
        self._sources, self._machine, self._clock = sources, machine, clock
        self.effects: Mapping[type[Order], Effect] = {ReadSources: self._read_all}

    async def _read_all(self, order: ReadSources, outlet: Outlet) -> Ending:
        machine = self._machine()
        if machine is None:
            return Ending("failed", "the Node is not known")
        async with trio.open_nursery() as nursery:
            for source in self._sources:
                nursery.start_soon(self._read, source, machine, outlet)
        return Ending()

    async def _read(self, source: ProofSource, machine: Machine, outlet: Outlet) -> None:
        begun_ns = self._clock.mono_ns()
        try:
            with trio.fail_after(bounds.now.source_seconds):
                said = await source.read(machine)
        except trio.TooSlowError:
            said = Said("unknown", error=f"no answer in {span_s(bounds.now.source_seconds)}")
        except (OSError, ValueError) as error:
            said = Said("unknown", error=error_text(error))
        if said is not None:
            fact = EvidenceRead(source=source.source, name=source.name, begun_ns=begun_ns, **said._asdict())
            await outlet.put(fact)


#: Says why the order must not be carried out; None: it may be.
Check = Callable[[PowerOff, Outlet], Awaitable[Ending | None]]


class PowerEdge(Edge):
    """Asks the ``switches`` in order until one takes the command. Node and lease are read again before each:
    a machine that gave a sign of life stays on.
    """

    def __init__(self, switches: Sequence[PowerSwitch], check: Check) -> None:
        self._switches, self._check = switches, check
        self.effects: Mapping[type[Order], Effect] = {PowerOff: self._power_off}

    async def _power_off(self, order: PowerOff, outlet: Outlet) -> Ending:
        failed: list[str] = []
        for switch in self._switches:
            if (refused := await self._check(order, outlet)) is not None:
                if not failed:
                    return refused
                # An earlier switch may have worked although it failed.
                failed.append(refused.reason)
                break
            try:
                with trio.fail_after(bounds.now.power_off_seconds):
                    await switch.power_off(order.system_uuid)
                return Ending()
            except trio.TooSlowError:
                why = f"no answer in {span_s(bounds.now.power_off_seconds)}"
            except OSError as error:
                why = error_text(error)
            failed.append(f"{switch.source} {switch.name}: {why}")
        return Ending("failed", "; ".join(failed) or NO_CONTROLLER)
