"""The simulated runtime: starts pods, stops them, sees them go, and finds them again after a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from msgspec.structs import replace

from actors.interfaces import Effect, Ending, Outlet
from events.base import NS_PER_SECOND, Order
from events.decisions import KillContainer, RunHook, SendSignal, StartPod, TakeAutopsy, TakeInventory
from events.facts import AutopsyTaken, ContainerExited, ContainerStarted, InventoryTaken, PodAppeared
from events.model import Pod, ProcessReport
from tests.world.draws import Draws
from tests.world.edge import Edge, Life
from tests.world.node import Node
from tests.world.pods import Box, HookProcess
from tests.world.trail import sleep_ns

UNKNOWN = "no such container is known here"


class RuntimeEdge(Edge):
    """Starts pods, stops them, and sees them go."""

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws)
        self._exits, self._exited = trio.open_memory_channel[Box](4096)
        self._known: set[str] = set(node.pods.begun)
        self._changed = trio.Event()
        self._looking, self._looked = trio.Lock(), False
        effects: dict[type[Order], Effect] = {
            TakeInventory: self._take_inventory,
            StartPod: self._start_pod,
            RunHook: self._run_hook,
            SendSignal: self._send_signal,
            KillContainer: self._kill_container,
            TakeAutopsy: self._take_autopsy,
        }
        self.effects = {order: self._once_looked(effect) for order, effect in effects.items()}
        node.pods.watchers.append(self._watch)

    # --- watching ------------------------------------------------------------------------------

    def _watch(self, box: Box) -> None:
        if self._life.alive:
            self._exits.send_nowait(box)

    def manifest_appeared(self) -> None:
        """The folder changed."""
        self._changed.set()

    async def _look(self, outlet: Outlet) -> None:
        """Find again what an earlier daemon started, and say what has ended meanwhile; once."""
        async with self._looking:
            if self._looked:
                return
            await self._take(500, 40_000)
            ended = [box for box in self._node.pods.boxes.values() if self._was_missed(box)]
            if ended:
                await outlet.put(*map(self._exit_fact, ended))
            self._looked = True

    def _once_looked(self, effect: Effect) -> Effect:
        """As in the real edge: before that look no container is known, so an order waits for it."""

        def begin(order: Order, outlet: Outlet) -> Ending | Awaitable[Ending]:
            self._life.begins(order)
            return effect(order, outlet) if self._looked else after(order, outlet)

        async def after(order: Order, outlet: Outlet) -> Ending:
            await self._look(outlet)
            ending = effect(order, outlet)
            return ending if isinstance(ending, Ending) else await ending

        return begin

    async def run(self, outlet: Outlet) -> None:
        await self._look(outlet)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_exits, outlet)
            nursery.start_soon(self._follow_manifests, outlet)

    def _was_missed(self, box: Box) -> bool:
        """Ended while no daemon ran, or without its end being on record: it is said (again)."""
        return box.phase == "exited" and box.uid in self._known

    async def _follow_exits(self, outlet: Outlet) -> None:
        async for box in self._exited:
            await sleep_ns(self._draws.between(50, 3000) * 1000)
            await outlet.put(self._exit_fact(box))

    def _exit_fact(self, box: Box) -> ContainerExited:
        """Of a process that is not our child nobody tells us how it ended."""
        if box.parent != self._life.number:
            return ContainerExited(uid=box.uid, container=box.name)
        return ContainerExited(
            uid=box.uid, container=box.name, exit_code=box.exit_code, signal=box.exit_signal
        )

    async def _follow_manifests(self, outlet: Outlet) -> None:
        while True:
            self._changed = trio.Event()
            for uid, plan in list(self._node.pods.plans.items()):
                if uid not in self._known:
                    self._known.add(uid)
                    self._node.trail.note("appeared", uid, life=self._life.number)
                    await outlet.put(PodAppeared(pod=plan.pod))
            await self._changed.wait()

    # --- effects -------------------------------------------------------------------------------

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """As the real edge: a hook is followed, a start is finished, what may be repeated is done again."""
        await self._look(outlet)
        if isinstance(order, RunHook):
            return await self._adopt_hook(order)
        if isinstance(order, StartPod):
            if self._node.pods.begun.get(order.uid) != order.key:
                return None
            return await self._start_pod(order, outlet)
        if self._draws.chance(1, 3):
            return None
        return await self._redo(order, outlet)

    async def _take_inventory(self, order: TakeInventory, outlet: Outlet) -> Ending:
        self._life.begins(order)
        if order.refresh:
            await self._take(100, 30_000)
        pods = self._node.pods
        active = tuple(self._view(uid) for uid in pods.begun if not pods.over(uid))
        await outlet.put(
            InventoryTaken(key=order.key, as_of_ns=self._node.clock.mono_ns(), source="world", pods=active)
        )
        return Ending()

    def _view(self, uid: str) -> Pod:
        boxes = self._node.pods.boxes
        pod = self._node.pods.plans[uid].pod
        containers = tuple(
            replace(each, running=boxes[uid, each.name].phase != "exited") for each in pod.containers
        )
        return replace(pod, containers=containers)

    async def _start_pod(self, order: StartPod, outlet: Outlet) -> Ending:
        self._life.begins(order)
        pods = self._node.pods
        if order.uid not in pods.plans:
            return Ending("failed", "no manifest of this pod is known here")
        pods.begin(order.uid, order.key)
        for box in pods.of(order.uid):
            if box.phase == "waiting":
                await self._take(200, 5000)
                pods.start(box, self._life.number)
                self._life.touch()
                if self._runs(box):
                    await outlet.put(ContainerStarted(uid=box.uid, container=box.name))
        return Ending()

    @staticmethod
    def _runs(box: Box) -> bool:
        return box.phase == "running"

    def _find(self, uid: str, container: str) -> Box | None:
        return self._node.pods.boxes.get((uid, container)) if uid in self._node.pods.begun else None

    def _send_signal(self, order: SendSignal, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        box = self._find(order.uid, order.container)
        if box is None:
            return Ending("failed", UNKNOWN)
        return self._touch_box(self._node.pods.signal, box, late)

    def _touch_box(self, act: Callable[[Box, int, bool], None], box: Box, late: bool) -> Ending:
        if self._life.touch():
            act(box, self._life.number, late)
            self._life.touch()
        return Ending()

    async def _kill_container(self, order: KillContainer, outlet: Outlet) -> Ending:
        """Done when the signal is sent to everything that was found; the exit is a fact of its own."""
        late = self._life.begins(order)
        box = self._find(order.uid, order.container)
        if box is None:
            return Ending("failed", UNKNOWN)
        self._touch_box(self._node.pods.kill, box, late)
        await self._take(100, 5000)
        return Ending()

    async def _take_autopsy(self, order: TakeAutopsy, outlet: Outlet) -> Ending:
        self._life.begins(order)
        box = self._find(order.uid, order.container)
        if box is None:
            return Ending("failed", UNKNOWN)
        await self._take(200, 100_000)
        ignored = ("SIGTERM",) if box.manner.stop_ns is None else ()
        report = ProcessReport(pid=100, parent_pid=1, command="app", state="S", signals_ignored=ignored)
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=(report,)))
        return Ending()

    async def _run_hook(self, order: RunHook, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        box = self._find(order.uid, order.container)
        if box is None or box.phase != "running":
            return Ending("failed", "the container does not run")
        if not self._life.touch():
            await trio.sleep_forever()
        hook = self._node.pods.run_hook(box, order.key, self._life.number, late)
        self._life.touch()
        return await self._follow(box, hook, order.timeout_ns)

    async def _adopt_hook(self, order: RunHook) -> Ending | None:
        box = self._find(order.uid, order.container)
        hook = box.hooks.get(order.key) if box is not None else None
        if box is None or hook is None or hook.ended or self._is_request(order):
            return None
        return await self._follow(box, hook, order.timeout_ns)

    def _is_request(self, order: RunHook) -> bool:
        """Of a request nothing is left when the daemon is gone."""
        containers = self._node.pods.plans[order.uid].pod.containers
        return any(c.name == order.container and c.hook and c.hook.kind == "httpGet" for c in containers)

    async def _follow(self, box: Box, hook: HookProcess, timeout_ns: int) -> Ending:
        ended = trio.Event()
        hook.followers.append(ended.set)
        try:
            with trio.move_on_after(timeout_ns / NS_PER_SECOND) as scope:
                if not hook.ended:
                    await ended.wait()
        except trio.Cancelled:
            if self._life.alive and not self._detached:
                self._node.pods.stop_hook(box, hook)
            raise
        if scope.cancelled_caught:
            self._node.pods.stop_hook(box, hook)
            return Ending("timed-out")
        return Ending() if hook.succeeded else Ending("failed", "exit code 1", 1)
