"""Boots, daemons and faults on one simulated machine, under Trio's mock clock.

The seed draws all variation, also Trio's task order and the node's. Time jumps when all tasks wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.reader import History
from ebbtide.replay.sim.scenario import Draws, PodPlan
from ebbtide.replay.sim.sim_node import Happening, WorldLog
from tests.world.clock import Clock, sleep_ns, world_ns
from tests.world.daemon import OWNER, Life
from tests.world.disk import Disks
from tests.world.node import Node
from tests.world.scenario import Act, BootPlan, Scenario

#: More daemon steps than this count as a runaway.
STEPS_MAX = 400_000

#: Between two boots on the wall clock.
OFF_NS = 20 * NS_PER_SECOND

Watch = Callable[[Happening], object]
Read = Callable[[Life, Sequence[Record]], object]


def ignore(*heard: object) -> None:
    """A no-op callback."""


class Booted(NamedTuple):
    node: Node
    plan: BootPlan
    lives: list[Life]
    #: The journal's records after the boot.
    records: list[Record]
    state: str
    banner: str
    ended_ns: int


class World:
    """One run of a scenario. ``seed``: schedule, latencies and faults.

    ``watch`` gets every node event, ``read`` every daemon step.
    """

    def __init__(self, scenario: Scenario, seed: int, watch: Watch = ignore, read: Read = ignore) -> None:
        self.scenario, self.seed = scenario, seed
        self._draws = Draws(seed).fork("world")
        self.log = WorldLog(world_ns)
        self.log.listeners.append(watch)
        self._read = read
        self.disks = Disks(self._draws.fork("disks"))
        self.boots: list[Booted] = []
        self.lives: list[Life] = []
        self.points = 0
        self.steps = 0
        self.ran_away = False
        self._crashes = list(scenario.crash_at)
        self.settings = scenario.settings
        self.life: Life | None = None
        self._main = trio.CancelScope()

    # --- points at which a daemon may die

    def point(self, life: Life) -> None:
        """Counted over the whole world; the scenario names the fatal ones."""
        self.points += 1
        if self.points == self.scenario.cut_at:
            life.node.cut_power()
            life.crash(f"no power at point {self.points}")
        elif self._crashes and self.points >= self._crashes[0]:
            del self._crashes[0]
            life.crash(f"point {self.points}")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        life = task.context.get(OWNER)
        if life is not None and life.alive:
            self.steps += 1
            if self.steps > STEPS_MAX:
                self.ran_away = True
                self._main.cancel()
            self.point(life)

    # --- boots

    async def run(self) -> None:
        with self._main:
            clock = None
            for number, plan in enumerate(self.scenario.boots, 1):
                node = await self._boot(number, plan, clock)
                clock = node.clock if node.kind == "soft-reboot" and not node.powered_off else None

    async def _boot(self, number: int, plan: BootPlan, clock: Clock | None) -> Node:
        """``clock``: the previous boot's after a soft reboot, which keeps clock and boot ID."""
        self.log.boot = number
        self.log.note("boot", detail="soft" if clock else "")
        first_life = len(self.lives)
        async with trio.open_nursery() as nursery:
            boot_id = self.boots[-1].node.boot_id if clock else f"boot-{number}"
            node = Node(
                self.log,
                nursery,
                clock or Clock(plan.uptime_ns),
                self.scenario.features,
                plan.api,
                (boot_id, f"userspace-{number}"),
                self.scenario.settings,
            )
            node.final_fails_ns = plan.final_fails_ns
            for pod in self.scenario.pods:
                nursery.start_soon(self._bring, node, pod)
            for act in plan.acts:
                nursery.start_soon(self._act, node, act)
            nursery.start_soon(self._serve, node)
            with trio.move_on_after(plan.lasts_ns / NS_PER_SECOND):
                await node.down.wait()
            node.cut_power()
            if self.life is not None:
                self.life.crash("the machine is down")
            nursery.cancel_scope.cancel()
        self.disks.machine_down(power_cut=node.powered_off, soft=node.kind == "soft-reboot")
        self._look_back(node, plan, self.lives[first_life:])
        await sleep_ns(OFF_NS)
        return node

    def _history(self) -> History:
        return History([place.source for place in self.disks.places])

    def _look_back(self, node: Node, plan: BootPlan, lives: list[Life]) -> None:
        history = self._history()
        records = list(history.records())
        self.boots.append(
            Booted(node, plan, lives, records, history.verdict.state, history.verdict.banner, world_ns())
        )

    async def _bring(self, node: Node, pod: PodPlan) -> None:
        """A manifest is laid in the folder."""
        if pod.appears_ns:
            await sleep_ns(pod.appears_ns)
        node.pods.add(pod)
        if self.life is not None:
            self.life.manifest_appeared()

    # --- the service manager

    async def _serve(self, node: Node) -> None:
        """Keeps the daemon's unit running, stops it with the machine, then halts."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_unit, node)
            while not node.stopping:
                life = self._new_life(node)
                why = await life.run(self.disks.places)
                self.disks.daemon_died()
                if life.failure:
                    self._main.cancel()
                if why != "crashed" and not node.stopping:
                    self.log.note("unit-stopped", detail=why)
                    await sleep_ns(2 * NS_PER_SECOND)
                with trio.move_on_after(self.scenario.restart_ns / NS_PER_SECOND):
                    await node.units_stop.wait()
            nursery.cancel_scope.cancel()
        node.halt()

    def _new_life(self, node: Node) -> Life:
        number = len(self.lives) + 1
        self.log.note("daemon", life=number)
        draws = self._draws.fork(f"life {number}")
        life = Life(number, node, draws, lambda: self.settings, self.point)
        life.readers.append(self._read)
        self.lives.append(life)
        self.life = life
        return life

    async def _stop_unit(self, node: Node) -> None:
        """SIGTERM, then SIGKILL after its time."""
        await node.units_stop.wait()
        if self.life is not None:
            self.life.signal("TERM")
        while (left_ns := node.stop_time_left_ns()) > 0:
            await sleep_ns(left_ns)
        if self.life is not None:
            self.life.crash("the unit's stop time is over")

    async def _act(self, node: Node, act: Act) -> None:
        await sleep_ns(act.at_ns)
        life = self.life
        match act.what:
            case "shutdown":
                node.logind.shutdown(act.kind)
            case "cancel":
                node.logind.cancel()
            case "logind-restart":
                node.logind.restart(act.value, bool(act.text))
            case "bus-loss":
                node.logind.disconnect()
            case "wall-step":
                node.clock.wall_step_ns += act.value
                node.log.note("wall-step", detail=f"{act.value / NS_PER_SECOND:g}")
            case "hurry" if life is not None and self.scenario.pods:
                pod = self.scenario.pods[act.value % len(self.scenario.pods)].pod
                node.log.note("hurry", pod.uid)
                await life.hurry(pod.uid)
            case "release" if life is not None:
                await life.release()
            case "reload":
                self.settings = self.scenario.other_settings
                node.log.note("reload")
                if life is not None:
                    life.signal("HUP")
            case "crash" if life is not None:
                life.crash("by the scenario")
            case "power-cut":
                node.cut_power()
            case "unit-stop" if life is not None and not node.stopping:
                # ``systemctl restart``: only the unit stops, and starts a little later.
                node.log.note("unit-stop")
                life.signal("TERM")
            case "force":
                node.stop("reboot")
            case "disk-fault":
                node.log.note("disk-fault", detail=self.disks.fault(act.value))
            case "runtime-hang" | "api-hang":
                hanging = node.runtime if act.what == "runtime-hang" else node.api
                hanging.hang()
                if act.value:  # else for good
                    node.timer.later(act.value, hanging.wake)
