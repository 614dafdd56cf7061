"""The modelled node of every simulation (`replay.sim.sim_node`), its waits being Trio's tasks.

The node outlives every daemon on it. It ends (`down`) when logind or somebody else has started the final unit
and the daemon's unit is stopped, or when the power goes.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from ebbtide.actors.edges.embedded_logind import NurseryTimer
from ebbtide.events.retention import TOTAL_BYTES_MAX
from ebbtide.events.values import Settings
from ebbtide.replay.sim.scenario import Faults
from ebbtide.replay.sim.sim_node import SimulatedNode, WorldLog
from tests.world.clock import Clock


class Features(NamedTuple):
    """What this machine is like. ``others_ns``: the limit of everybody else's files for logind."""

    others_ns: int | None = None
    obeys_drop_in: bool = True
    faults: Faults = Faults()
    #: What the journal may hold.
    journal_bytes: int = TOTAL_BYTES_MAX


class Node(SimulatedNode):
    """One boot. ``nursery`` holds what runs on it but the daemon; ``api``: how its API server is."""

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
