"""The simulated node (`replay.sim.sim_node`) with Trio tasks as waits.

It outlives its daemons. It ends (`down`) when the final unit runs and the daemon's unit has stopped, or
without power.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from ebbtide.actors.edges.embedded_logind import NurseryTimer
from ebbtide.events.disk import TOTAL_BYTES_MAX
from ebbtide.events.values import Settings
from ebbtide.replay.sim.scenario import Faults
from ebbtide.replay.sim.sim_node import SimulatedNode, WorldLog
from tests.world.clock import Clock


class Features(NamedTuple):
    """The machine. ``others_ns``: other files' limit for logind."""

    others_ns: int | None = None
    obeys_drop_in: bool = True
    faults: Faults = Faults()
    #: The journal's limit.
    journal_bytes: int = TOTAL_BYTES_MAX


class Node(SimulatedNode):
    """One boot. ``nursery`` runs everything but the daemon; ``api``: the API server's state."""

    def __init__(
        self,
        log: WorldLog,
        nursery: trio.Nursery,
        clock: Clock,
        features: Features,
        api: Faults,
        ids: tuple[str, str],
        settings: Settings,
    ) -> None:
        self.clock, self.features = clock, features
        #: Set when the service manager stops the daemon's unit, and when the machine is off.
        self.units_stop, self.down = trio.Event(), trio.Event()
        faults = features.faults._replace(api=api.api, api_takes_ns=api.api_takes_ns)
        timer = NurseryTimer(nursery, clock.mono_ns)
        super().__init__(log, timer, faults, ids, settings, self.units_stop.set, self.down.set)
        self.logind.others_ns, self.logind.obeys_drop_in = features.others_ns, features.obeys_drop_in
        self.logind.reload()
