"""The world: boots, daemons and misfortunes on one simulated machine, under Trio's mock clock.

Everything that could differ from run to run is drawn from the seed: also the order in which Trio runs its
tasks, and the order in which a node's own tasks get their turn. Time jumps as soon as everybody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import trio
from trio.testing import MockClock

from ebbtide import daemon
from events.history import History
from events.record import Record
from tests.world.daemon import OWNER, Life
from tests.world.disks import Disks
from tests.world.draws import Draws
from tests.world.node import Clock, Node
from tests.world.pods import PodPlan
from tests.world.scenario import Act, BootPlan, Scenario
from tests.world.trail import NS_PER_SECOND, Seen, Trail, sleep_ns, world_ns

#: A world that takes more steps of the daemon's tasks than this has run away.
STEPS_MAX = 400_000

#: Between two boots, as far as the wall clock can tell.
OFF_NS = 20 * NS_PER_SECOND

Watch = Callable[[Seen], object]
Read = Callable[[Life, Sequence[Record]], object]


def _ignore(*told: object) -> None:
    """Who listens to nothing."""


class Booted(NamedTuple):
    """A boot that is over."""

    node: Node
    plan: BootPlan
    lives: list[Life]
    #: What a reader finds in the journal once the boot is over.
    records: list[Record]
    state: str
    banner: str
    ended_ns: int


class World:
    """One run of one scenario. ``seed`` gives the schedule, the latencies and the faults.

    ``watch`` hears of every happening on the node, ``read`` of every step of a daemon.
    """

    def __init__(self, scenario: Scenario, seed: int, watch: Watch = _ignore, read: Read = _ignore) -> None:
        self.scenario, self.seed = scenario, seed
        self._draws = Draws(seed).fork("world")
        self.trail = Trail()
        self.trail.listeners.append(watch)
        self._read = read
        self.disks = Disks(self._draws.fork("disks"))
        self.boots: list[Booted] = []
        self.lives: list[Life] = []
        self.points = 0
        self.steps = 0
        self.ran_away = False
        self._crashes = list(scenario.crash_at)
        self.settings = scenario.settings
        self._life: Life | None = None
        self._main = trio.CancelScope()

    # --- points at which a daemon may die --------------------------------------------------------

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

    # --- boots -----------------------------------------------------------------------------------

    async def run(self) -> None:
        with self._main:
            clock = None
            for number, plan in enumerate(self.scenario.boots, 1):
                node = await self._boot(number, plan, clock)
                clock = node.clock if node.kind == "soft-reboot" and not node.powered_off else None

    async def _boot(self, number: int, plan: BootPlan, clock: Clock | None) -> Node:
        """``clock``: of the boot before, if this is a soft reboot, which keeps clock and boot id."""
        trail = self.trail
        trail.boot = number
        trail.note("boot", detail="soft" if clock else "")
        first_life = len(self.lives)
        async with trio.open_nursery() as nursery:
            node = Node(
                trail,
                nursery,
                clock or Clock(plan.uptime_ns),
                self.scenario.features,
                boot_id=self.boots[-1].node.boot_id if clock else f"boot-{number}",
                userspace_id=f"userspace-{number}",
            )
            node.final_fails_ns = plan.final_fails_ns
            for pod in self.scenario.pods:
                nursery.start_soon(self._bring, node, pod)
            for act in plan.acts:
                nursery.start_soon(self._act, node, act)
            nursery.start_soon(self._serve, node, plan)
            with trio.move_on_after(plan.lasts_ns / NS_PER_SECOND):
                await node.down.wait()
            node.cut_power()
            if self._life is not None:
                self._life.crash("the machine is down")
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
        if self._life is not None:
            self._life.manifest_appeared()

    # --- the service manager -----------------------------------------------------------------------

    async def _serve(self, node: Node, plan: BootPlan) -> None:
        """Keeps the daemon's unit running, stops it with the machine, halts when it has stopped."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_unit, node)
            while not node.stopping.is_set():
                life = self._new_life(node, plan)
                why = await life.run(self.disks.places)
                self.disks.daemon_died()
                if life.failure:
                    self._main.cancel()
                if why != "crashed" and not node.stopping.is_set():
                    node.trail.note("unit-stopped", detail=why)
                    await sleep_ns(2 * NS_PER_SECOND)
                with trio.move_on_after(self.scenario.restart_ns / NS_PER_SECOND):
                    await node.stopping.wait()
            nursery.cancel_scope.cancel()
        await node.halt()

    def _new_life(self, node: Node, plan: BootPlan) -> Life:
        number = len(self.lives) + 1
        self.trail.note("daemon", life=number)
        draws = self._draws.fork(f"life {number}")
        life = Life(number, node, draws, lambda: self.settings, plan.status, self.point)
        life.readers.append(self._read)
        self.lives.append(life)
        self._life = life
        return life

    async def _stop_unit(self, node: Node) -> None:
        """SIGTERM, and SIGKILL when the time for it is over."""
        await node.stopping.wait()
        if self._life is not None:
            self._life.signal("TERM")
        await node.stop_time_over()
        if self._life is not None:
            self._life.crash("the unit's stop time is over")

    # --- misfortunes -------------------------------------------------------------------------------

    async def _act(self, node: Node, act: Act) -> None:
        await sleep_ns(act.at_ns)
        await ACTS[act.what](self, node, act)

    async def _shutdown(self, node: Node, act: Act) -> None:
        node.logind.shutdown(act.kind)

    async def _cancel(self, node: Node, act: Act) -> None:
        if not node.logind.acting:
            node.logind.withdraw("cancelled")

    async def _logind_restart(self, node: Node, act: Act) -> None:
        await node.logind.restart(act.value, bool(act.text))

    async def _bus_loss(self, node: Node, act: Act) -> None:
        node.logind.disconnect()

    async def _wall_step(self, node: Node, act: Act) -> None:
        node.clock.wall_step_ns += act.value
        node.trail.note("wall-step", detail=f"{act.value / NS_PER_SECOND:g}")

    async def _hurry(self, node: Node, act: Act) -> None:
        if self._life is not None and self.scenario.pods:
            pod = self.scenario.pods[act.value % len(self.scenario.pods)].pod
            node.trail.note("hurry", pod.uid)
            await self._life.hurry(pod.uid)

    async def _release(self, node: Node, act: Act) -> None:
        if self._life is not None:
            await self._life.release()

    async def _reload(self, node: Node, act: Act) -> None:
        self.settings = self.scenario.other_settings
        node.trail.note("reload")
        if self._life is not None:
            self._life.signal("HUP")

    async def _crash(self, node: Node, act: Act) -> None:
        if self._life is not None:
            self._life.crash("by the story")

    async def _power_cut(self, node: Node, act: Act) -> None:
        node.cut_power()

    async def _unit_stop(self, node: Node, act: Act) -> None:
        """``systemctl restart``: the unit alone is stopped, and started again a little later."""
        if self._life is not None and not node.stopping.is_set():
            node.trail.note("unit-stop")
            self._life.signal("TERM")

    async def _force(self, node: Node, act: Act) -> None:
        node.stop("reboot")

    async def _disk_fault(self, node: Node, act: Act) -> None:
        node.trail.note("disk-fault", detail=self.disks.fault(act.value))


ACTS: dict[str, Callable[[World, Node, Act], Any]] = {
    "shutdown": World._shutdown,
    "cancel": World._cancel,
    "logind-restart": World._logind_restart,
    "bus-loss": World._bus_loss,
    "wall-step": World._wall_step,
    "hurry": World._hurry,
    "release": World._release,
    "reload": World._reload,
    "crash": World._crash,
    "power-cut": World._power_cut,
    "unit-stop": World._unit_stop,
    "force": World._force,
    "disk-fault": World._disk_fault,
}


class StepCounter(trio.abc.Instrument):
    """Tells the world of every step of every task."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.before_task_step(task)


def run(scenario: Scenario, seed: int, watch: Watch = _ignore, read: Read = _ignore) -> World:
    """One world from its first boot to its end. Not to be called from inside a running Trio."""
    world = World(scenario, seed, watch, read)
    with _without_collections(), scheduled_by(Draws(seed).fork("scheduler")):
        trio.run(world.run, clock=MockClock(autojump_threshold=0), instruments=[StepCounter(world)])
    return world


class _NoCollector:
    """What the daemon asks of the collector once it is armed."""

    @staticmethod
    def collect() -> int:
        return 0

    @staticmethod
    def freeze() -> None:
        return None


@contextmanager
def _without_collections() -> Iterator[None]:
    """A full collection for each daemon that arms would take most of a run's time, and none of its clock."""
    before = getattr(daemon, "gc", None)
    setattr(daemon, "gc", _NoCollector)
    try:
        yield
    finally:
        setattr(daemon, "gc", before)


@contextmanager
def scheduled_by(draws: Draws) -> Iterator[None]:
    """Trio shuffles each batch of runnable tasks: with our draws, from a fixed order.

    There is no public way; these two names are what Trio's own plugin for hypothesis sets.
    """
    from trio._core import _run as scheduler

    names: dict[str, Any] = {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": draws}
    before = {name: getattr(scheduler, name) for name in names}
    for name, value in names.items():
        setattr(scheduler, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(scheduler, name, value)
