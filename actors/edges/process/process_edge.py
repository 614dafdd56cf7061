"""The process edge: pods as local processes, with real signals, hooks and exit codes.

Pods outlive the daemon: neither a cancelled `ProcessEdge.run` nor a dead daemon ends one. The next daemon
finds them in their records, by number, start time and boot.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Set
from contextlib import aclosing, suppress
from pathlib import Path

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.exits import ExitStatus, ExitWatch, open_child
from ebbtide.actors.edges.linux.kill_tree import Cgroups, TreeKiller, examine_tree, kill_group, kill_trees
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.pod_spec import HttpGetAction
from ebbtide.actors.edges.process.hooks import ProcessHooks
from ebbtide.actors.edges.process.manifest_folder import (
    LoadManifest,
    ManifestChange,
    ManifestGone,
    ManifestSource,
)
from ebbtide.actors.edges.process.process_pods import (
    ContainerEntry,
    PodEntry,
    PodRecord,
    PodRecords,
    PodTable,
    output_name,
    root_of,
)
from ebbtide.actors.edges.process.start import (
    TRIM_IDLE_SECONDS,
    TRIM_SECONDS,
    OutputFiles,
    PodStarter,
    ignore_by_handlers,
    raise_file_limit,
)
from ebbtide.actors.interfaces import Effect, Ending, Outlet, TraceContext
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Fact, Order
from ebbtide.events.files import own_directory
from ebbtide.events.values import Pod

UNKNOWN_CONTAINER = "no such container is known here"


class ProcessEdge:
    """Carries out starts, signals, kills, hooks, autopsies and inventories.

    ``state_dir``: on a file system that goes with the boot. ``manifests``: a file or a watched folder, read
    with ``load``. ``capture_lines``: lines of output in an autopsy; 0: output is thrown away. Finds what an
    earlier daemon left running. Raises OSError when the state folder cannot be made.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        manifests: Path | None = None,
        load: LoadManifest | None = None,
        capture_lines: int = 0,
        use_cgroups: bool = True,
        pod_ip: str = "127.0.0.1",
        mono_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        for folder in (state_dir, state_dir / "pods", state_dir / "output"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Its files say which processes are pods.
            with own_directory(folder):
                pass
        self._mono_ns = mono_ns
        self._capture_lines = capture_lines
        self._source = ManifestSource(manifests, load) if manifests is not None and load is not None else None
        self._table = PodTable()
        self._records = PodRecords(state_dir / "pods", proc.boot_id_with_dashes())
        self._output = OutputFiles(state_dir / "output", kept=capture_lines > 0)
        self._watch = ExitWatch()
        self._killer = TreeKiller()
        self._cgroups = Cgroups.detect(state_dir) if use_cgroups else None
        self._starter = PodStarter(self._records, self._output, self._watch, self._killer, self._cgroups)
        self._hooks = ProcessHooks(
            self._table, self._records, self._killer, self._watch, self._output, pod_ip
        )
        self._changes = ManifestChanges(self._table, self._records, self._output)
        self.effects: Mapping[type[Order], Effect] = {
            d.StartPod: self._start_pod,
            d.SendSignal: self._send_signal,
            d.KillContainer: self._kill_container,
            d.TakeAutopsy: self._take_autopsy,
            d.RunHook: self._run_hook,
            d.TakeInventory: self._take_inventory,
        }
        raise_file_limit()
        ignore_by_handlers()
        # First: overdue orders come at once, and a manifest must not start a running pod again.
        self._recovered = [fact for record in self._records.load() for fact in self._revive(record)]

    # --- life ------------------------------------------------------------------------------------

    async def run(self, outlet: Outlet) -> None:
        """Follow manifests and ends, until cancelled."""
        if self._recovered:
            await outlet.put(*self._recovered)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch.run, outlet)
                nursery.start_soon(self._killer.run)
                nursery.start_soon(self._tidy)
                if self._source is not None:
                    nursery.start_soon(self._follow, self._source, outlet)
        finally:
            self.detach()
            self._prune()

    def detach(self) -> None:
        """The daemon goes: from now on nothing is killed."""
        self._killer.closed = True

    def close(self) -> None:
        """Close all descriptors, after `run` has ended. Ends no process."""
        self.detach()
        self._watch.close()
        self._prune()

    def _prune(self) -> None:
        if self._cgroups is not None:
            pods = self._table.pods.values()
            entries = [entry for pod in pods for entry in (*pod.containers.values(), pod.init) if entry]
            self._cgroups.prune({entry.group for entry in entries if entry.phase != "ended"})

    def prewarm(self) -> None:
        """Import what the running pods' hooks need, while the disk answers. A later start does the same for
        its pod.
        """
        for pod in self._table.pods.values():
            _import_for_hooks(pod)

    def pass_on(self, context: TraceContext) -> None:
        """Give every hook its order's trace context."""
        self._hooks.context = context

    def active(self) -> list[Pod]:
        """With running flags."""
        return self._table.active()

    def ended(self) -> list[Pod]:
        """Ended pods of a manifest: nothing starts them again."""
        return [entry.pod for entry in self._table.pods.values() if entry.over and entry.path]

    # --- what an earlier daemon left running -------------------------------------------------------

    def _revive(self, record: PodRecord) -> list[Fact]:
        """A recorded process is ours only with the same number, start time and boot."""
        pod = PodEntry(record.pod, record.spec, order=record.order, stopping=record.stopping, recovered=True)
        pod.hooks = {
            each.name: each for each in record.hooks if proc.is_same_process(each.pid, each.start_ticks)
        }
        self._table.pods[record.pod.uid] = pod
        if record.init is not None:
            # Kubernetes allows to run an init container again, but not twice at a time.
            kill_trees([root_of(record.init)])
            # It may run, and only its number is unknown: start no more of the pod.
            pod.stopping |= not record.init.pid
            if record.init.group:
                kill_group(record.init.group)
        facts: list[Fact] = []
        for container in record.containers:
            entry = pod.containers[container.name]
            entry.group, entry.begun = container.group, True
            child = open_child(container.pid, container.start_ticks)
            if child is not None:
                # Another process has adopted it and gets its exit code.
                entry.child = False
                entry.begin(*child)
                self._starter.follow(entry)
                continue
            if entry.group:
                # Remains must not run beside the pod's next start.
                kill_group(entry.group)
            entry.finish(ExitStatus())
            entry.gone = True
            facts.append(entry.exited())
        return facts

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Follows an earlier hook or start; repeats other orders."""
        if isinstance(order, d.RunHook):
            return await self._hooks.adopt(order)
        if isinstance(order, d.StartPod):
            pod = self._table.pods.get(order.uid)
            if pod is None or pod.order != order.key:
                return None
            # Again: the daemon before may have died before it recorded a start or an end.
            facts = [
                f.ContainerStarted(uid=pod.pod.uid, container=name, pid=entry.pid)
                if entry.phase == "running"
                else entry.exited()
                for name, entry in pod.containers.items()
                if entry.phase != "waiting"
            ]
            if facts:
                await outlet.put(*facts)
            return await self._starter.start(pod, outlet)
        effect = self.effects.get(type(order))
        if effect is None:
            return None
        ending = effect(order, outlet)
        return ending if isinstance(ending, Ending) else await ending

    # --- what goes on by itself --------------------------------------------------------------------

    async def _follow(self, source: ManifestSource, outlet: Outlet) -> None:
        async with aclosing(source.changes()) as changes:
            async for batch in changes:
                facts = [fact for change in batch for fact in self._changes.take(change)]
                if facts:
                    await outlet.put(*facts)

    async def _tidy(self) -> None:
        while True:
            self._prune()
            # Giving back blocks takes time.
            more = await trio.to_thread.run_sync(self._output.trim, abandon_on_cancel=True)
            await trio.sleep(TRIM_SECONDS if more else TRIM_IDLE_SECONDS)

    # --- effects ---------------------------------------------------------------------------------

    async def _start_pod(self, order: d.StartPod, outlet: Outlet) -> Ending:
        pod = self._table.pods.get(order.uid)
        if pod is None:
            return Ending("failed", "no manifest of this pod is known here")
        if pod.begun:
            return Ending()
        pod.order = order.key
        _import_for_hooks(pod)
        return await self._starter.start(pod, outlet)

    def _send_signal(self, order: d.SendSignal, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN_CONTAINER)
        # It has not started, so an init container runs for it.
        if entry.phase == "waiting":
            return self._stop_start(entry.pod, order.signal)
        self._repeat_end(entry)
        return _signal_container(entry, order.signal)

    def _repeat_end(self, entry: ContainerEntry) -> None:
        """The end of this container came before its pod was in a plan: report it again."""
        if entry.phase == "ended":
            self._watch.post(entry.exited())

    def _stop_start(self, pod: PodEntry, name: str) -> Ending:
        """The pod is still starting: start no more of it, and signal what runs now."""
        pod.stopping = True
        if pod.begun:
            # The next daemon must not go on with the start. Without a record the pod stops at the kill.
            with suppress(OSError):
                self._records.store(pod)
        if not pod.starting:
            for fact in self._starter.drop_waiting(pod, None):
                self._watch.post(fact)
        return _signal_container(pod.init, name) if pod.init is not None else Ending()

    async def _kill_container(self, order: d.KillContainer, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN_CONTAINER)
        # In a pod that is still starting an init container runs.
        target = entry.pod.init if entry.phase == "waiting" and entry.pod.init is not None else entry
        if entry.phase == "waiting":
            self._stop_start(entry.pod, "SIGKILL")
        self._repeat_end(entry)
        await self._killer.kill(target.root, target.group)
        return Ending()

    async def _take_autopsy(self, order: d.TakeAutopsy, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN_CONTAINER)
        fact = f.AutopsyTaken(
            uid=order.uid,
            container=order.container,
            processes=await examine_tree(entry.root),
            last_lines=self._output.tail(output_name(*entry.key), self._capture_lines),
        )
        await outlet.put(fact)
        return Ending()

    async def _run_hook(self, order: d.RunHook, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        return Ending("failed", UNKNOWN_CONTAINER) if entry is None else await self._hooks.run(entry, order)

    async def _take_inventory(self, order: d.TakeInventory, outlet: Outlet) -> Ending:
        pods = self._table.active()
        await outlet.put(*f.InventoryTaken.in_parts(order.key, self._mono_ns(), "process", pods))
        return Ending()


def _import_for_hooks(pod: PodEntry) -> None:
    if any(isinstance(spec.pre_stop, HttpGetAction) for spec in pod.spec.lasting):
        # Loaded now, not in mid-shutdown: an import reads the disk.
        from ebbtide.actors.edges import http_request  # noqa: F401


def _signal_container(entry: ContainerEntry, name: str) -> Ending:
    """To the first process only, as a runtime does."""
    try:
        # First: an invalid stop signal is the manifest's mistake, also when it comes too late.
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


class ManifestChanges:
    """Keeps the table like the manifests, which start pods, and never end or change a running one.

    An ended pod is forgotten when its manifest goes, and starts anew when that comes back or changes.
    """

    def __init__(self, table: PodTable, records: PodRecords, output: OutputFiles) -> None:
        self._table = table
        self._records = records
        self._output = output

    def take(self, change: ManifestChange) -> list[Fact]:
        """Apply one change, and return its facts."""
        path = str(change.path)
        if isinstance(change, ManifestGone):
            self._leave(path, frozenset())
            return []
        if change.error:
            return [f.ManifestRejected(path=path, error=change.error)]
        self._leave(path, {pod.uid for pod, _ in change.pods})
        return [fact for pod, spec in change.pods for fact in self._appear(PodEntry(pod, spec, path))]

    def _appear(self, new: PodEntry) -> list[Fact]:
        known = self._table.pods.get(new.pod.uid)
        if known is not None and known.path not in ("", new.path):
            error = f"pod {new.pod.label} stands in {known.path} too"
            return [f.ManifestRejected(path=new.path, error=error)]
        if known is not None and known.begun and (known.recovered or not known.over):
            # It runs, or it ended before this daemon began: its manifest starts nothing.
            known.path, known.recovered = new.path, False
            return []
        self._table.pods[new.pod.uid] = new
        return [f.PodAppeared(pod=new.pod)]

    def _leave(self, path: str, keep: Set[str]) -> None:
        """This file names no other pods any more."""
        for uid, entry in list(self._table.pods.items()):
            if entry.path == path and uid not in keep:
                # A file that names the pod later gets it, without a start.
                entry.path = ""
                if entry.over or not entry.begun:
                    del self._table.pods[uid]
                    self._records.remove(uid)
                    for name in entry.containers:
                        self._output.remove(output_name(uid, name))
