"""The process edge: pods as local processes, with real signals, hooks and exit codes.

The daemon's life and the pods' lives are apart: cancelling `ProcessEdge.run` or losing the daemon ends no
pod. What runs is found again by number, start time and boot, or by its marks.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

import trio

from actors.edges.process import proc
from actors.edges.process.arrivals import Arrivals
from actors.edges.process.autopsy import AUTOPSY_NS_MAX, examine
from actors.edges.process.cgroup import Cgroups
from actors.edges.process.hooks import Context, Hooks
from actors.edges.process.marks import Marker
from actors.edges.process.record import Records, output_name
from actors.edges.process.recover import Recovery
from actors.edges.process.rings import TRIM_SECONDS, Rings
from actors.edges.process.scan import Scanner
from actors.edges.process.signals import signal_number
from actors.edges.process.source import Load, Source
from actors.edges.process.spawn import raise_file_limit
from actors.edges.process.spec import HttpGetAction
from actors.edges.process.start import Starter, exited
from actors.edges.process.sweep import Root, Sweeper, members
from actors.edges.process.table import ContainerEntry, PodEntry, Table
from actors.edges.process.watch import Watch
from actors.interfaces import Effect, Ending, Outlet
from events.base import Order
from events.decisions import KillContainer, RunHook, SendSignal, StartPod, TakeAutopsy, TakeInventory
from events.facts import (
    INVENTORY_PODS_MAX,
    AutopsyTaken,
    ContainerExited,
    ContainerStarted,
    InventoryTaken,
)
from events.model import Pod

UNKNOWN = "no such container is known here"


class ProcessEdge:
    """Carries out starts, signals, kills, hooks, autopsies and inventories on local processes.

    ``state_dir`` belongs on a file system that goes with the boot; it is made if need be. ``manifests`` is
    a file or a folder (watched), read with ``load``. ``capture_lines``: newest lines of output in an
    autopsy; 0 keeps output out of the journal. Raises OSError when the state folder cannot be made.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        manifests: Path | None = None,
        load: Load | None = None,
        capture_lines: int = 0,
        use_cgroups: bool = True,
        pod_ip: str = "127.0.0.1",
        mono_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        for folder in (state_dir, state_dir / "pods", state_dir / "output"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mono_ns = mono_ns
        self._capture_lines = capture_lines
        self._source = Source(manifests, load) if manifests is not None and load is not None else None
        self._table = Table()
        self._records = Records(state_dir / "pods", proc.boot_id())
        self._rings = Rings(state_dir / "output")
        self._watch = Watch(mono_ns)
        marker = Marker(state_dir)
        self._scanner = Scanner(marker, mono_ns)
        self._sweeper = Sweeper(self._scanner, mono_ns)
        self._cgroups = Cgroups.detect(state_dir) if use_cgroups else None
        self._starter = Starter(marker, self._records, self._rings, self._watch, self._sweeper, self._cgroups)
        self._hooks = Hooks(marker, self._scanner, self._sweeper, self._watch, self._rings, pod_ip)
        self._recovery = Recovery(self._table, self._records, self._scanner, self._starter, self._sweeper)
        self._arrivals = Arrivals(self._table, self._records, self._rings, self._recovery)
        effects: dict[type[Order], Effect] = {
            StartPod: self._start_pod,
            SendSignal: self._send_signal,
            KillContainer: self._kill_container,
            TakeAutopsy: self._take_autopsy,
            RunHook: self._run_hook,
            TakeInventory: self._take_inventory,
        }
        self.effects: Mapping[type[Order], Effect] = {
            order: self._once_recovered(effect) for order, effect in effects.items()
        }

    # --- life ------------------------------------------------------------------------------------

    async def run(self, outlet: Outlet) -> None:
        """Find again what runs, follow the manifests and every container's end, until cancelled."""
        raise_file_limit()
        await self._recover(outlet)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch.run, outlet)
                nursery.start_soon(self._sweeper.run)
                nursery.start_soon(self._trim)
                if self._source is not None:
                    nursery.start_soon(self._follow, self._source, outlet)
        finally:
            self.detach()
            self._prune()

    def detach(self) -> None:
        """The daemon goes: from now on nothing is killed, whatever is cancelled."""
        self._sweeper.closed = True

    def close(self) -> None:
        """Give back every descriptor. After `run` has ended; ends no process."""
        self.detach()
        self._watch.close()
        self._prune()

    def _prune(self) -> None:
        if self._cgroups is not None:
            self._cgroups.prune()

    def prewarm(self) -> None:
        """Import what the hooks of the pods that run need: called after arming, while the disk answers. For
        pods that are started later it is done then.
        """
        for pod in self._table.pods.values():
            _warm(pod)

    def pass_on(self, context: Context) -> None:
        """Give every hook that is run from now on the trace context of its order."""
        self._hooks.context = context

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end, with running flags."""
        return self._table.active()

    def _once_recovered(self, effect: Effect) -> Effect:
        """After a restart overdue orders come at once: before the pods are found again none is known."""

        def begin(order: Order, outlet: Outlet) -> Ending | Awaitable[Ending]:
            return effect(order, outlet) if self._recovery.done else after(order, outlet)

        async def after(order: Order, outlet: Outlet) -> Ending:
            await self._recover(outlet)
            ending = effect(order, outlet)
            return ending if isinstance(ending, Ending) else await ending

        return begin

    async def _recover(self, outlet: Outlet) -> None:
        facts = await self._recovery.once()
        if facts:
            await outlet.put(*facts)

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A hook or a start of the daemon's earlier life; what may be repeated is done again."""
        await self._recover(outlet)
        if isinstance(order, RunHook):
            return await self._hooks.adopt(order)
        if isinstance(order, StartPod):
            return await self._adopt_start(order, outlet)
        effect = self.effects.get(type(order))
        if effect is None:
            return None
        ending = effect(order, outlet)
        return ending if isinstance(ending, Ending) else await ending

    async def _adopt_start(self, order: StartPod, outlet: Outlet) -> Ending | None:
        pod = self._table.pods.get(order.uid)
        if pod is None or pod.order != order.key:
            return None
        facts = [_state(entry) for entry in pod.containers.values() if entry.phase != "waiting"]
        if facts:
            await outlet.put(*facts)
        await self._starter.end_inits(pod)
        return await self._starter.start(pod, outlet)

    # --- what goes on by itself --------------------------------------------------------------------

    async def _follow(self, source: Source, outlet: Outlet) -> None:
        async with aclosing(source.changes()) as changes:
            async for batch in changes:
                facts = [fact for change in batch for fact in self._arrivals.take(change)]
                if facts:
                    await outlet.put(*facts)

    async def _trim(self) -> None:
        while True:
            await trio.sleep(TRIM_SECONDS)
            self._rings.trim()

    # --- effects ---------------------------------------------------------------------------------

    async def _start_pod(self, order: StartPod, outlet: Outlet) -> Ending:
        pod = self._table.pods.get(order.uid)
        if pod is None:
            return Ending("failed", "no manifest of this pod is known here")
        if pod.begun:
            return Ending()
        pod.order = order.key
        _warm(pod)
        return await self._starter.start(pod, outlet)

    def _send_signal(self, order: SendSignal, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN)
        if entry.phase == "waiting":
            return self._stop_start(entry.pod, order.signal)
        self._repeat_end(entry)
        return _signal(entry, order.signal)

    def _repeat_end(self, entry: ContainerEntry) -> None:
        """Who stops a container that has ended has not heard of its end: the fact came before the pod was
        in a plan. It is said again.
        """
        if entry.phase == "ended":
            self._watch.post(exited(entry))

    def _stop_start(self, pod: PodEntry, name: str) -> Ending:
        """Of a pod that is not up yet: go no further, and pass the signal to what runs now."""
        pod.stopping = True
        if pod.begun:
            # The daemon's next life must start no more of it either; without a record it stops at the kill.
            with suppress(OSError):
                self._starter.remember(pod)
        if not pod.starting:
            for fact in self._starter.drop_waiting(pod, None):
                self._watch.post(fact)
        return _signal(pod.init, name) if pod.init is not None else Ending()

    async def _kill_container(self, order: KillContainer, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN)
        if entry.phase == "waiting":
            self._stop_start(entry.pod, "SIGKILL")
        self._repeat_end(entry)
        target = entry.pod.init if entry.phase == "waiting" and entry.pod.init is not None else entry
        await self._sweeper.kill(target.key, Root(target.pid, target.start_ticks), target.group)
        return Ending()

    async def _take_autopsy(self, order: TakeAutopsy, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN)
        look = await self._scanner.look_briefly()
        stats = [item.stat for item in members(look, {entry.key: Root(entry.pid, entry.start_ticks)})]
        deadline_ns = self._mono_ns() + AUTOPSY_NS_MAX // 2
        fact = AutopsyTaken(
            uid=order.uid,
            container=order.container,
            processes=examine(stats, deadline_ns, self._mono_ns),
            last_lines=self._rings.tail(output_name(*entry.key), self._capture_lines),
        )
        await outlet.put(fact)
        return Ending()

    async def _run_hook(self, order: RunHook, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        return Ending("failed", UNKNOWN) if entry is None else await self._hooks.run(entry, order)

    async def _take_inventory(self, order: TakeInventory, outlet: Outlet) -> Ending:
        now_ns, pods = self._mono_ns(), self._table.active()
        starts = range(0, max(1, len(pods)), INVENTORY_PODS_MAX)
        facts = [
            InventoryTaken(
                key=order.key,
                as_of_ns=now_ns,
                source="process",
                part=part,
                parts=len(starts),
                pods=tuple(pods[start : start + INVENTORY_PODS_MAX]),
            )
            for part, start in enumerate(starts, 1)
        ]
        await outlet.put(*facts)
        return Ending()


def _warm(pod: PodEntry) -> None:
    if any(isinstance(spec.pre_stop, HttpGetAction) for spec in pod.spec.lasting):
        from actors.edges.process import http  # noqa: F401


def _signal(entry: ContainerEntry, name: str) -> Ending:
    """To the first process only, as a runtime does it. A process that has ended needs none."""
    try:
        number = signal_number(name)
    except ValueError as error:
        return Ending("failed", str(error))
    if entry.phase != "running":
        return Ending()
    try:
        signal.pidfd_send_signal(entry.pidfd, number)
    except ProcessLookupError:
        return Ending()
    except OSError as error:
        return Ending("failed", f"signal {name}: {error.strerror}")
    return Ending()


def _state(entry: ContainerEntry) -> ContainerStarted | ContainerExited:
    uid, name = entry.key
    return (
        ContainerStarted(uid=uid, container=name, pid=entry.pid)
        if entry.phase == "running"
        else exited(entry)
    )
