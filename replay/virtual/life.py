"""One process of the daemon in virtual time: from its start to its leaving or its death."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from actors.logic.config import CONFIG, ConfigState
from actors.logic.course import EpisodeState
from actors.logic.episode import EPISODE
from actors.logic.system import System
from events.base import Order
from events.decisions import RunHook
from events.facts import DaemonStarted, SettingsLoaded, StopRequested
from events.record import Record
from replay.virtual.api import ApiServer
from replay.virtual.bus import Bus
from replay.virtual.cluster import Cluster
from replay.virtual.draws import Draws
from replay.virtual.effects import Effects, Work
from replay.virtual.node import Node
from replay.virtual.plan import Plan
from replay.virtual.runtime import Runtime


class Life:
    """``number`` counts over the whole run. ``system`` is the state that it found in the journal."""

    def __init__(self, number: int, plan: Plan, node: Node, system: System, draws: Draws) -> None:
        self.number, self._plan, self._node, self._system = number, plan, node, system
        self.alive = True
        faults = node.faults
        self.runtime = Runtime(node.pods, node.agenda, draws.fork("runtime"), faults, node.trail, number)
        late_ns = faults.late_grant_ns
        self._bus = Bus(node.logind, node.agenda, draws.fork("bus"), node.trail, number, late_ns)
        api = ApiServer(node.shown, draws.fork("api"), faults, node.trail, number)
        table = {**self.runtime.table, **self._bus.table, **api.table}
        self._cluster: Cluster | None = None
        if faults.mode:
            fork = draws.fork("cluster")
            self._cluster = Cluster(
                node.api, node.kubelet, node.pods, node.shown, node.agenda, fork, node.trail, number
            )
            table |= self._cluster.table
        self.effects = Effects(node.agenda, draws.fork("effects"), table)
        self._redo = draws.fork("adopt")
        self.runtime.effects = self._bus.effects = api.effects = self.effects
        if self._cluster is not None:
            self._cluster.effects = self.effects

    @property
    def inherits_lock(self) -> bool:
        return self.number in self._node.logind.holders

    def first_facts(self) -> tuple[DaemonStarted, SettingsLoaded]:
        """What a process says of itself and its configuration."""
        node, logind = self._node, self._node.logind
        started = DaemonStarted(
            version=self._plan.version,
            pid=1000 + self.number,
            mode=node.faults.mode or "simulate",
            node=self._plan.node,
            boot_id=node.boot_id,
            userspace_id=node.userspace_id,
            preparing=logind.preparing if logind.up else None,
            kind=logind.kind if logind.up and logind.preparing else "unknown",
            grant_ns=logind.grant_ns if logind.up else 0,
            lock_inherited=self.inherits_lock,
        )
        return started, SettingsLoaded(settings=self._plan.settings, sources=self._plan.sources)

    def open_orders(self) -> tuple[list[Order], bool]:
        """What its predecessors left open, and whether their userspace is still this one."""
        state = cast(EpisodeState, self._system.slots[(EPISODE.name, "")].state)
        same = (state.boot_id, state.userspace_id) == (self._node.boot_id, self._node.userspace_id)
        return [opened.order for opened in self._system.open_orders.values()], same

    def adopt(self, orders: Sequence[Order], *, same_userspace: bool) -> None:
        """Hooks that run are followed, what may be repeated is done again or closed as unknown."""
        self.effects.adopt(orders, self._follow, same_userspace=same_userspace)
        self.runtime.look(self._node.exits_told)
        if self._cluster is not None:
            self._cluster.look()

    def _follow(self, work: Work) -> bool:
        if isinstance(work.order, RunHook):
            return self.runtime.adopt_hook(work)
        if type(work.order) in self._bus.table or not self._redo.chance(1, 2):
            return False
        self.effects.again(work)
        return True

    def hear(self, records: Sequence[Record]) -> None:
        """A step of its actors: what it orders begins behind its barriers."""
        self.effects.hold(records)

    def stopping(self) -> StopRequested:
        """SIGTERM from a service manager that is going down; the unit may have the time it needs."""
        needed_ns = cast(ConfigState, self._system.slots[(CONFIG.name, "")].state).needed_ns
        self._node.extend_stop(needed_ns)
        return StopRequested(system_stopping=True, stop_time_ns=needed_ns)

    def die(self) -> None:
        """Killed, or left: nothing that its code still meant to do happens."""
        self.alive = self.effects.alive = self.runtime.alive = False
        self._bus.die()
        if self._cluster is not None:
            self._cluster.alive = False
