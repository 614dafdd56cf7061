"""The edges, simulated: the same contract as the real ones (`actors.interfaces.Edge`), on a simulated node.

Every touch of the node is a point at which the daemon can die, before it and after it. A dead daemon's code
still runs up to its next await, as Python code does; here it touches nothing any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import trio
from msgspec.structs import replace

from actors.interfaces import Effect, Ending, Outlet
from events.base import NS_PER_SECOND, Order
from events.decisions import (
    AnnounceNode,
    Arm,
    DeliverStatuses,
    Disarm,
    KillContainer,
    ReleaseLock,
    RemoveDropIn,
    RunHook,
    SendSignal,
    StartPod,
    TakeAutopsy,
    TakeInventory,
    WriteDropIn,
)
from events.facts import (
    AutopsyTaken,
    BusLost,
    ContainerExited,
    ContainerStarted,
    DropInsRead,
    InventoryTaken,
    LogindRead,
    PodAppeared,
    PreparingRead,
    PrepareForShutdown,
)
from events.model import Pod, ProcessReport
from tests.world.draws import Draws
from tests.world.logind import STORE, Disconnected, Going, InProgress, OwnerChanged, Said, Unreachable
from tests.world.node import Node
from tests.world.pods import Box, HookProcess
from tests.world.trail import MS, sleep_ns

#: How often the real edge reads ``PreparingForShutdown`` in a shutdown (design, rule 2).
POLL_SECONDS = 1.0

UNKNOWN = "no such container is known here"


class Life(Protocol):
    """The daemon's life as its edges see it."""

    number: int
    alive: bool

    def touch(self) -> bool:
        """A point at which the daemon may die. False: it is dead."""

    def begins(self, order: Order) -> bool:
        """The effect of ``order`` begins. True when its order is less durable than its barrier asks."""


class Edge:
    """What the three edges share. Latencies are drawn in microseconds."""

    effects: Mapping[type[Order], Effect]

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        self._life, self._node, self._draws = life, node, draws
        self._detached = False

    def detach(self) -> None:
        self._detached = True

    async def _take(self, low_us: int, high_us: int) -> None:
        """The time that an effect takes; a daemon that dies meanwhile never comes back from it."""
        await sleep_ns(self._draws.between(low_us, high_us) * 1000)
        if not self._life.touch():
            await trio.sleep_forever()

    async def _redo(self, order: Order, outlet: Outlet) -> Ending:
        ending = self.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending


class LogindEdge(Edge):
    """Arms, releases, listens."""

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws)
        self._heard, self._said = trio.open_memory_channel[Said](1024)
        self._preparing, self._owner, self._connected = False, "", False
        self.effects = {
            Arm: self._arm,
            Disarm: self._give_back,
            ReleaseLock: self._give_back,
            WriteDropIn: self._write_drop_in,
            RemoveDropIn: self._remove_drop_in,
        }
        if STORE in node.logind.holders:
            node.logind.duplicate(life.number)

    @property
    def _held(self) -> bool:
        return self._life.number in self._node.logind.holders

    async def run(self, outlet: Outlet) -> None:
        while True:
            said: Said | None = None
            with trio.move_on_after(POLL_SECONDS if self._preparing else math.inf):
                said = await self._said.receive()
            await self._report(said, outlet)

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None

    async def _report(self, said: Said | None, outlet: Outlet) -> None:
        if isinstance(said, Going):
            await sleep_ns(self._draws.between(100, 2000) * 1000)
            self._preparing, self._owner = said.active, said.owner
            await outlet.put(self._signal(said))
        elif isinstance(said, Disconnected):
            self._connected = False
            await outlet.put(BusLost(error="the connection to the bus broke"))
        elif said == OwnerChanged(""):
            await outlet.put(BusLost(error="logind left the bus"))
        else:
            await self._look(outlet)

    def _signal(self, said: Going) -> PrepareForShutdown:
        """As below systemd 255: the limit is asked for after the signal, and may have been raised just then."""
        grant_ns = self._node.logind.grant_ns
        return PrepareForShutdown(
            active=said.active, kind=said.kind, grant_ns=grant_ns, lock_held=self._held, owner=said.owner
        )

    async def _look(self, outlet: Outlet) -> None:
        """Read again; a fact is a change, and what a signal has overtaken is thrown away."""
        logind = self._node.logind
        await sleep_ns(self._draws.between(300, 3000) * 1000)
        if not self._connected or not logind.up or self._pending():
            return
        found = (logind.preparing, logind.owner)
        if found != (self._preparing, self._owner):
            self._preparing, self._owner = found
            await outlet.put(PreparingRead(preparing=found[0], owner=found[1]))

    def _pending(self) -> bool:
        return self._said.statistics().current_buffer_used > 0

    # --- effects -------------------------------------------------------------------------------

    async def _arm(self, order: Arm, outlet: Outlet) -> Ending:
        """Subscribe, lock, read, in this order."""
        self._life.begins(order)
        await self._take(300, 5000)
        try:
            self._node.logind.check()
            self._node.logind.subscribers[self._life.number] = self._hear
            self._connected = True
            refused = await self._take_lock() if order.lock and not self._held else ""
            await self._read_state(outlet)
        except Unreachable as error:
            return Ending("failed", str(error))
        await self._read_files(outlet)
        return Ending("failed", refused) if refused else Ending()

    def _hear(self, said: Said) -> None:
        self._heard.send_nowait(said)

    async def _take_lock(self) -> str:
        """Raises Unreachable."""
        await self._take(200, 3000)
        try:
            self._node.logind.inhibit(self._life.number)
        except InProgress as error:
            return str(error)
        await self._take(100, 2000)
        if self._node.features.fd_store:
            self._node.logind.duplicate(STORE)
        return ""

    async def _read_state(self, outlet: Outlet) -> None:
        """Raises Unreachable."""
        for _ in range(5):
            await self._take(200, 3000)
            logind = self._node.logind
            logind.check()
            if not self._pending():
                self._preparing, self._owner = logind.preparing, logind.owner
                kind = logind.kind if logind.preparing else "unknown"
                await outlet.put(
                    LogindRead(
                        owner=logind.owner, grant_ns=logind.grant_ns, preparing=logind.preparing, kind=kind
                    )
                )
                return
        raise Unreachable("logind keeps signalling")

    async def _read_files(self, outlet: Outlet) -> None:
        await self._take(100, 3000)
        logind = self._node.logind
        await outlet.put(
            DropInsRead(
                others_ns=logind.others_ns or 0,
                others_path="/etc/systemd/logind.conf" if logind.others_ns else "",
                ours_ns=logind.ours_ns,
                overridden_by="" if logind.obeys_drop_in else "/etc/systemd/logind.conf.d/zz.conf",
            )
        )

    async def _give_back(self, order: Disarm | ReleaseLock, outlet: Outlet) -> Ending:
        """The store's copy first, then ours."""
        late = self._life.begins(order)
        await self._take(100, 3000)
        self._node.logind.close(STORE)
        if not self._life.touch():
            await trio.sleep_forever()
        self._node.trail.note("release", detail=type(order).__name__, life=self._life.number, late=late)
        self._node.logind.close(self._life.number)
        self._life.touch()
        return Ending()

    async def _write_drop_in(self, order: WriteDropIn, outlet: Outlet) -> Ending:
        return await self._change(order, order.seconds * NS_PER_SECOND, outlet)

    async def _remove_drop_in(self, order: RemoveDropIn, outlet: Outlet) -> Ending:
        return await self._change(order, None, outlet)

    async def _change(self, order: Order, ours_ns: int | None, outlet: Outlet) -> Ending:
        logind = self._node.logind
        late = self._life.begins(order)
        await self._take(300, 3000)
        if not logind.up or logind.preparing:
            return Ending("failed", "preparing" if logind.up else "logind left the bus")
        logind.ours_ns = ours_ns
        detail = "removed" if ours_ns is None else str(ours_ns // NS_PER_SECOND)
        self._node.trail.note("drop-in", detail=detail, life=self._life.number, late=late)
        await self._take(1000, 50_000)
        logind.reload()
        try:
            await self._read_state(outlet)
        except Unreachable as error:
            return Ending("failed", str(error))
        await self._read_files(outlet)
        reached = ours_ns is None or logind.grant_ns >= ours_ns
        return Ending() if reached else Ending("failed", "another file is read after ours")


class RuntimeEdge(Edge):
    """Starts pods, stops them, and sees them go."""

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        super().__init__(life, node, draws)
        self._exits, self._exited = trio.open_memory_channel[Box](4096)
        self._known: set[str] = set(node.pods.begun)
        self._changed = trio.Event()
        self.effects = {
            TakeInventory: self._take_inventory,
            StartPod: self._start_pod,
            RunHook: self._run_hook,
            SendSignal: self._send_signal,
            KillContainer: self._kill_container,
            TakeAutopsy: self._take_autopsy,
        }
        node.pods.watchers.append(self._watch)

    # --- watching ------------------------------------------------------------------------------

    def _watch(self, box: Box) -> None:
        if self._life.alive:
            self._exits.send_nowait(box)

    def manifest_appeared(self) -> None:
        """The folder changed."""
        self._changed.set()

    async def run(self, outlet: Outlet) -> None:
        await self._take(500, 20_000)
        ended = [box for box in self._node.pods.boxes.values() if self._was_missed(box)]
        if ended:
            await outlet.put(*map(self._exit_fact, ended))
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
        await self._take(500, 20_000)
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
                if box.phase == "running":
                    await outlet.put(ContainerStarted(uid=box.uid, container=box.name))
        return Ending()

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
        return await self._follow(hook, order.timeout_ns)

    async def _adopt_hook(self, order: RunHook) -> Ending | None:
        box = self._find(order.uid, order.container)
        hook = box.hooks.get(order.key) if box is not None else None
        if hook is None or hook.ended.is_set() or self._is_request(order):
            return None
        return await self._follow(hook, order.timeout_ns)

    def _is_request(self, order: RunHook) -> bool:
        """Of a request nothing is left when the daemon is gone."""
        containers = self._node.pods.plans[order.uid].pod.containers
        return any(c.name == order.container and c.hook and c.hook.kind == "httpGet" for c in containers)

    async def _follow(self, hook: HookProcess, timeout_ns: int) -> Ending:
        try:
            with trio.move_on_after(timeout_ns / NS_PER_SECOND) as scope:
                await hook.ended.wait()
        except trio.Cancelled:
            if self._life.alive and not self._detached:
                hook.scope.cancel()
            raise
        if scope.cancelled_caught:
            hook.scope.cancel()
            return Ending("timed-out")
        return Ending() if hook.succeeded else Ending("failed", "exit code 1", 1)


class StatusFault(NamedTuple):
    """How the API server behaves. ``takes_ns`` None: it never answers."""

    takes_ns: int | None = 2 * MS
    fails: bool = False


class StatusEdge(Edge):
    """Shows the node and its pods to the cluster."""

    def __init__(self, life: Life, node: Node, draws: Draws, fault: StatusFault) -> None:
        super().__init__(life, node, draws)
        self._fault = fault
        self.effects = {AnnounceNode: self._announce, DeliverStatuses: self._deliver}

    async def run(self, outlet: Outlet) -> None:
        await trio.sleep_forever()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None if self._draws.chance(1, 2) else await self._redo(order, outlet)

    async def _call(self) -> bool:
        """Whether the API server took it."""
        if self._fault.takes_ns is None:
            await trio.sleep_forever()
        await sleep_ns(self._fault.takes_ns or 0)
        return self._life.touch() and not self._fault.fails

    async def _announce(self, order: AnnounceNode, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        if not await self._call():
            return Ending("failed", "the API server refuses")
        self._node.shown_ready = order.ready
        word = "ready" if order.ready else "going down"
        self._node.trail.note("announce", detail=word, life=self._life.number, late=late)
        return Ending()

    async def _deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        if not await self._call():
            return Ending("failed", "the API server refuses")
        for uid, phase, _, _ in order.statuses:
            self._node.trail.note("status", uid, detail=phase, life=self._life.number, late=late)
        return Ending()
