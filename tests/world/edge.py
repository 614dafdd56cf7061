"""The simulations' edges (`replay.sim.edges`) as tasks of the real runner.

The daemon can die before and after each step of a script. A dead daemon's code runs to its next await, like
any Python code, but without effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import trio

from ebbtide.actors.interfaces import Effect, Ending, Outlet
from ebbtide.events.base import NS_PER_SECOND, Fact, Order
from ebbtide.events.decisions import StartPod
from ebbtide.replay.sim import edges
from ebbtide.replay.sim.loop import FOREVER, EffectCancelled, Outcome, Script, Step, Until, Watching
from ebbtide.replay.sim.scenario import Draws
from tests.world.clock import sleep_ns, world_ns
from tests.world.node import Node

#: The real edge's interval for ``PreparingForShutdown`` in a shutdown.
POLL_SECONDS = 1.0

#: The longest time between two accesses to the node, in microseconds.
TOUCH_US_MAX = 5000


class Life(Protocol):
    """The daemon's life as its edges see it."""

    number: int
    alive: bool

    def touch(self) -> bool:
        """A possible death of the daemon. False: it is dead."""

    def begins(self, order: Order) -> bool:
        """Starts ``order``'s effect. True if the order is less durable than its barrier requires."""


class Edge:
    """Runs the scripts of ``kind`` (`actors.interfaces.Edge`), in place of the daemon's process."""

    effects: Mapping[type[Order], Effect]

    def __init__(self, life: Life, node: Node, draws: Draws, kind: type[edges.SimulatedEdge]) -> None:
        self._life, self._node, self._draws = life, node, draws.fork("steps")
        self._detached = False
        #: Spontaneous facts with their due times, and scripts.
        self._sender, self._queue = trio.open_memory_channel[tuple[int, Fact] | Watching](4096)
        #: Before this an order waits.
        self._ready = trio.Event()
        self._ready.set()
        self.model = kind(self, node, draws)
        self.effects = dict.fromkeys(self.model.table, self._carry_out)

    # --- the daemon's process, as the model's edges see it

    @property
    def number(self) -> int:
        return self._life.number

    @property
    def alive(self) -> bool:
        return self._life.alive

    def report(self, delay_ns: int, fact: Fact) -> None:
        self._sender.send_nowait((world_ns() + delay_ns, fact))

    def watch(self, script: Watching) -> None:
        self._sender.send_nowait(script)

    def end_order(self, key: str, outcome: Outcome) -> None:
        raise AssertionError("only the edge of a Kubernetes node ends one order by another")

    # --- an edge, as the runner sees it

    async def run(self, outlet: Outlet) -> None:
        async for item in self._queue:
            await self._handle(item, outlet)

    async def _handle(self, item: tuple[int, Fact] | Watching, outlet: Outlet) -> None:
        if isinstance(item, tuple):
            await sleep_ns(item[0] - world_ns())
            await outlet.put(item[1])
        else:
            await self._run_script(item, outlet)

    def prewarm(self) -> None:
        """A simulated disk is not read late."""

    def detach(self) -> None:
        self._detached = True

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        await self._ready.wait()
        script = self._adopted(order)
        return None if script is None else Ending(*await self._run_script(script, outlet))

    def _adopted(self, order: Order) -> Script | None:
        return self.model.adopt(order, self._draws)

    async def _carry_out(self, order: Order, outlet: Outlet) -> Ending:
        self._life.begins(order)
        await self._ready.wait()
        script = self.model.table[type(order)](order, self._life.begins(order))
        return Ending(*await self._run_script(script, outlet))

    # --- scripts

    async def _run_script(self, script: Script | Watching, outlet: Outlet) -> Any:
        """Returns its result. An order's cancel stops it; the daemon's death does not."""
        try:
            while True:
                if not self._life.touch():
                    await trio.sleep_forever()
                try:
                    step = next(script)
                except StopIteration as stop:
                    self._life.touch()
                    return stop.value
                await self._take_step(step, outlet)
        except trio.Cancelled:
            if self._life.alive and not self._detached:
                with suppress(EffectCancelled):
                    script.throw(EffectCancelled)
            raise

    async def _take_step(self, step: Step, outlet: Outlet) -> None:
        if isinstance(step, Fact):
            await outlet.put(step)
        elif isinstance(step, int):
            await sleep_ns(step)
        elif isinstance(step, Until):
            ended = trio.Event()
            step.followers.append(ended.set)
            with trio.move_on_after(step.timeout_ns / NS_PER_SECOND):
                await ended.wait()
        elif step is FOREVER:
            await trio.sleep_forever()
        else:
            await sleep_ns(self._draws.weighted((1, 0), (1, self._draws.between(0, TOUCH_US_MAX) * 1000)))


class LogindEdge(Edge):
    """Arms, releases, listens; in a shutdown it also polls, because a signal may be lost."""

    model: edges.LogindEdge

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws, edges.LogindEdge)
        self.model.overtaken = lambda: self._queue.statistics().current_buffer_used > 0

    async def run(self, outlet: Outlet) -> None:
        while True:
            item: tuple[int, Fact] | Watching = self.model.look()
            with trio.move_on_after(POLL_SECONDS if self.model.preparing else math.inf):
                item = await self._queue.receive()
            await self._handle(item, outlet)


class _ProcessRuntime(edges.RuntimeEdge):
    KEEPS_EXITS = False


class RuntimeEdge(Edge):
    """Starts and stops pods, sees their ends, and finds them after a restart."""

    model: _ProcessRuntime

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws, _ProcessRuntime)
        self._ready = trio.Event()

    async def run(self, outlet: Outlet) -> None:
        """As in the real edge: no containers before the first look."""
        await sleep_ns(self._draws.between(500, 40_000) * 1000)
        self.model.look({})
        while self._queue.statistics().current_buffer_used:
            await self._handle(await self._queue.receive(), outlet)
        self._ready.set()
        self.manifest_appeared()
        await super().run(outlet)

    def manifest_appeared(self) -> None:
        if self._ready.is_set():
            for plan in list(self._node.pods.plans.values()):
                self.model.appeared(plan.pod)

    def _adopted(self, order: Order) -> Script | None:
        """A begun start completes; the state of another one is unknown."""
        if isinstance(order, StartPod):
            begun = self._node.pods.begun.get(order.uid) == order.key
            return self.model.table[StartPod](order, False) if begun else None
        return super()._adopted(order)


class StatusEdge(Edge):
    """Shows the node and its pods to the cluster."""

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws, edges.ApiServerEdge)
