"""What a start and a stop are like on a simulated node (`ebbtide.daemon.Surroundings`)."""

from __future__ import annotations

from typing import Protocol

from events.base import NS_PER_SECOND
from events.facts import DaemonStarted, StopRequested
from tests.world.draws import Draws
from tests.world.node import Node
from tests.world.trail import sleep_ns

#: What the unit may take on top of the time that a shutdown needs (`ebbtide.node`).
LEAVING_NS = 2 * NS_PER_SECOND


class Starting(Protocol):
    """The daemon's life as its surroundings see it."""

    number: int
    alive: bool
    ready: bool
    node: Node
    draws: Draws


class Surroundings:
    """`ebbtide.daemon.Surroundings` on a simulated node."""

    def __init__(self, life: Starting, failed_starts: int) -> None:
        self._life, self._failed_starts = life, failed_starts

    async def started(self) -> DaemonStarted:
        node, life = self._life.node, self._life
        await sleep_ns(life.draws.between(200, 5000) * 1000)
        logind = node.logind
        return DaemonStarted(
            version="0",
            pid=1000 + life.number,
            mode="process",
            node="node",
            boot_id=node.boot_id,
            userspace_id=node.userspace_id,
            preparing=logind.preparing if logind.up else None,
            kind=logind.kind if logind.up and logind.preparing else "unknown",
            grant_ns=logind.grant_ns if logind.up else 0,
            lock_inherited=life.number in logind.holders,
            failed_starts=self._failed_starts,
        )

    async def stopping(self, needed_ns: int) -> StopRequested:
        node = self._life.node
        if node.stopping.is_set():
            node.extend_stop(needed_ns + LEAVING_NS)
        return StopRequested(system_stopping=node.stopping.is_set(), stop_time_ns=needed_ns)

    def notify(self, **variables: str | int) -> None:
        if self._life.alive and "READY" in variables:
            self._life.ready = True
            self._life.node.trail.note("ready", life=self._life.number)
