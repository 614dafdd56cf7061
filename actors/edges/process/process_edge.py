"""The process edge: pods as local processes, with real signals, hooks and exit codes.

Pods outlive the daemon: the next one finds them in their records, by pid, start time and boot. A hook's
process tree is killed at the end of its time and when it is cancelled, but not when the daemon ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Set
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack

import trio

from ebbtide.actors.edges.linux import proc, processes
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.pod_spec import HOOK_TIMED_OUT, ExecAction, HttpGetAction, ProcessSpec, SleepAction
from ebbtide.actors.edges.process.process_pods import (
    TRIM_IDLE_SECONDS,
    TRIM_SECONDS,
    CannotStart,
    ContainerEntry,
    OutputFiles,
    PodEntry,
    PodRecord,
    PodRecords,
    PodStarter,
    PodTable,
    ProcessRecord,
    environ_of,
    ignore_by_handlers,
    output_name,
    raise_file_limit,
    root_of,
    spawn,
)
from ebbtide.actors.interfaces import Effect, Ending, Outlet, TraceContext
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Fact, Order
from ebbtide.events.files import own_directory
from ebbtide.events.inotify import FolderWatch
from ebbtide.events.values import Pod

UNKNOWN_CONTAINER = "no such container is known here"
TIMED_OUT = Ending("timed-out", HOOK_TIMED_OUT)
#: Only the parent learns how a process ended.
EXIT_UNKNOWN = Ending("unknown", "begun by a daemon that has gone; its exit code is not known")
#: OpenTelemetry, "Environment Variables as Context Propagation Carriers".
TRACEPARENT = "TRACEPARENT"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessEdge:
    """``state_dir``: on a file system that ends with the boot. ``manifests``: a file or a watched folder.
    ``capture_lines``: lines of output in an autopsy; 0: output is thrown away. Raises OSError for the folder.
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
            # Its files name processes to kill.
            with own_directory(folder):
                pass
        self._mono_ns = mono_ns
        self._capture_lines = capture_lines
        self._source = ManifestSource(manifests, load) if manifests is not None and load is not None else None
        self._table = PodTable()
        self._records = PodRecords(state_dir / "pods", proc.boot_id_with_dashes())
        self._output = OutputFiles(state_dir / "output", kept=capture_lines > 0)
        self._watch = processes.ExitWatch()
        self._killer = processes.TreeKiller()
        self._cgroups = processes.Cgroups.detect(state_dir) if use_cgroups else None
        self._starter = PodStarter(self._records, self._output, self._watch, self._killer, self._cgroups)
        self._pod_ip = pod_ip
        self._context: TraceContext = lambda order_key: ""
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
        # Early: overdue orders come at once, and a manifest must not start a running pod again.
        self._recovered = [fact for record in self._records.load() for fact in self._revive(record)]

    async def run(self, outlet: Outlet) -> None:
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
        """The daemon ends: kill no process any more."""
        self._killer.closed = True

    def close(self) -> None:
        """After `run` has ended. Ends no process."""
        self.detach()
        self._watch.close()
        self._prune()

    def _prune(self) -> None:
        if self._cgroups is not None:
            pods = self._table.pods.values()
            entries = [entry for pod in pods for entry in (*pod.containers.values(), pod.init) if entry]
            self._cgroups.prune({entry.group for entry in entries if entry.phase != "ended"})

    def prewarm(self) -> None:
        """Import modules for the hooks of running pods, while the disk answers."""
        for pod in self._table.pods.values():
            _import_for_hooks(pod)

    def pass_on(self, context: TraceContext) -> None:
        """``context`` goes with each hook of its order."""
        self._context = context

    def active(self) -> list[Pod]:
        return self._table.active()

    def ended(self) -> list[Pod]:
        """Ended pods with a manifest. They are not started again."""
        return [entry.pod for entry in self._table.pods.values() if entry.over and entry.path]

    def _revive(self, record: PodRecord) -> list[Fact]:
        """A recorded process is ours only with the same pid, start time and boot."""
        pod = PodEntry(record.pod, record.spec, order=record.order, stopping=record.stopping, recovered=True)
        pod.hooks = {
            each.name: each for each in record.hooks if proc.is_same_process(each.pid, each.start_ticks)
        }
        self._table.pods[record.pod.uid] = pod
        if record.init is not None:
            # An init container may run again, but not twice at a time.
            processes.kill_trees([root_of(record.init)])
            # It may run under an unknown pid: start no more of the pod.
            pod.stopping |= not record.init.pid
            if record.init.group:
                processes.kill_group(record.init.group)
        facts: list[Fact] = []
        for container in record.containers:
            entry = pod.containers[container.name]
            entry.group, entry.begun = container.group, True
            child = processes.open_child(container.pid, container.start_ticks)
            if child is not None:
                # Another process gets its exit code.
                entry.child = False
                entry.begin(*child)
                self._starter.follow(entry)
                continue
            if entry.group:
                # Remains must not run beside the pod's next start.
                processes.kill_group(entry.group)
            entry.finish(processes.ExitStatus())
            entry.gone = True
            facts.append(entry.exited())
        return facts

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Follows an earlier hook or start; repeats other orders."""
        if isinstance(order, d.RunHook):
            return await self._adopt_hook(order)
        if isinstance(order, d.StartPod):
            pod = self._table.pods.get(order.uid)
            if pod is None or pod.order != order.key:
                return None
            # The daemon before may have died before it recorded a start or an end.
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

    async def _follow(self, source: ManifestSource, outlet: Outlet) -> None:
        async with aclosing(source.changes()) as changes:
            async for batch in changes:
                facts = [fact for change in batch for fact in self._take_manifest(change)]
                if facts:
                    await outlet.put(*facts)

    async def _tidy(self) -> None:
        while True:
            self._prune()
            # A thread: giving back blocks takes time.
            more = await trio.to_thread.run_sync(self._output.trim, abandon_on_cancel=True)
            await trio.sleep(TRIM_SECONDS if more else TRIM_IDLE_SECONDS)

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
        # An init container runs before it.
        if entry.phase == "waiting":
            return self._stop_start(entry.pod, order.signal)
        self._repeat_end(entry)
        return _signal_container(entry, order.signal)

    def _repeat_end(self, entry: ContainerEntry) -> None:
        """It ended before its pod was in a plan: report it again."""
        if entry.phase == "ended":
            self._watch.post(entry.exited())

    def _stop_start(self, pod: PodEntry, name: str) -> Ending:
        """Start no more of the pod, and signal its init container."""
        pod.stopping = True
        if pod.begun:
            # The next daemon must not continue the start. Without a record the pod stops at the kill.
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
        # In a starting pod an init container runs.
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
            processes=await processes.examine_tree(entry.root),
            last_lines=self._output.tail(output_name(*entry.key), self._capture_lines),
        )
        await outlet.put(fact)
        return Ending()

    async def _take_inventory(self, order: d.TakeInventory, outlet: Outlet) -> Ending:
        pods = self._table.active()
        await outlet.put(*f.InventoryTaken.in_parts(order.key, self._mono_ns(), "process", pods))
        return Ending()

    async def _run_hook(self, order: d.RunHook, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN_CONTAINER)
        action = entry.spec.pre_stop
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        if entry.phase != "running":
            return Ending("failed", "the container does not run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, ExecAction):
                return await self._exec(action, entry, order.key)
            if isinstance(action, HttpGetAction):
                # `prewarm` or the pod's start has imported it.
                from ebbtide.actors.edges.http_request import RequestFailed, request_of

                trace = self._context(order.key)
                try:
                    await request_of(action, entry.spec, self._pod_ip, trace).send()
                except RequestFailed as error:
                    return Ending("failed", str(error))
                return Ending()
            return Ending("failed", "invalid handler")
        return TIMED_OUT

    async def _exec(self, action: ExecAction, entry: ContainerEntry, key: str) -> Ending:
        trace = self._context(key)
        environ = environ_of(({TRACEPARENT: trace} if trace else {}) | entry.spec.env)
        try:
            output = self._output.open(output_name(*entry.key))
            try:
                child = spawn(action.argv, environ, entry.spec.working_dir, output, entry.group)
            finally:
                os.close(output)
        except (CannotStart, OSError) as error:
            return Ending("failed", f"cannot start: {error}")
        entry.pod.hooks[key] = ProcessRecord(name=key, pid=child.pid, start_ticks=child.start_ticks)
        # Without a record the next daemon reports the outcome as unknown.
        with suppress(OSError):
            self._records.store(entry.pod)
        end = await self._follow_hook(child)
        del entry.pod.hooks[key]
        return hook_ending(end)

    async def _follow_hook(self, child: processes.Child) -> processes.ExitStatus:
        """If cancelled, kill its tree, and let the watch reap it."""
        try:
            await trio.lowlevel.wait_readable(child.pidfd)
        except BaseException:
            # After the daemon's end the next one follows the hook.
            if not self._killer.closed:
                self._killer.kill_soon(processes.TreeRoot(child.pid, child.start_ticks))

            async def reap_and_close() -> None:
                processes.reap(child.pidfd)
                os.close(child.pidfd)

            self._watch.add(child.pidfd, reap_and_close)
            raise
        # The parent of an adopted hook has to wait for it first.
        end = await processes.reap_soon(child.pidfd)
        os.close(child.pidfd)
        return end

    async def _adopt_hook(self, order: d.RunHook) -> Ending | None:
        """An earlier daemon's hook. Its time runs from its start."""
        pod = self._table.pods.get(order.uid)
        record = pod.hooks.get(order.key) if pod is not None else None
        child = processes.open_child(record.pid, record.start_ticks) if record is not None else None
        if child is None:
            return None
        # Like ``/proc``, this clock counts the time asleep.
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        left_ns = order.timeout_ns - max(0, now_ns - child.start_ticks * NS_PER_SECOND // TICKS_PER_SECOND)
        with trio.move_on_after(max(0, left_ns) / NS_PER_SECOND):
            return hook_ending(await self._follow_hook(child))
        return TIMED_OUT

    def _take_manifest(self, change: ManifestChange) -> list[Fact]:
        """A manifest starts pods, and never ends or changes a running one. An ended pod is forgotten when its
        manifest is removed, and starts again when the manifest changes or returns.
        """
        path = str(change.path)
        if isinstance(change, ManifestGone):
            self._leave(path, frozenset())
            return []
        if change.error:
            return [f.ManifestRejected(path=path, error=change.error)]
        self._leave(path, {pod.uid for pod, _ in change.pods})
        facts: list[Fact] = []
        for pod, spec in change.pods:
            known = self._table.pods.get(pod.uid)
            if known is not None and known.path not in ("", path):
                error = f"pod {pod.label} stands in {known.path} too"
                facts.append(f.ManifestRejected(path=path, error=error))
            elif known is not None and known.begun and (known.recovered or not known.over):
                # It runs, or ended before this daemon began: do not start it.
                known.path, known.recovered = path, False
            else:
                self._table.pods[pod.uid] = PodEntry(pod, spec, path)
                facts.append(f.PodAppeared(pod=pod))
        return facts

    def _leave(self, path: str, keep: Set[str]) -> None:
        """``path`` names only the pods ``keep``."""
        for uid, entry in list(self._table.pods.items()):
            if entry.path == path and uid not in keep:
                # A later file gets the running pod without a start.
                entry.path = ""
                if entry.over or not entry.begun:
                    del self._table.pods[uid]
                    self._records.remove(uid)
                    for name in entry.containers:
                        self._output.remove(output_name(uid, name))


def hook_ending(end: processes.ExitStatus) -> Ending:
    if end.signal:
        return Ending("failed", f"ended by {end.signal}")
    if end.exit_code:
        return Ending("failed", f"exit code {end.exit_code}", end.exit_code)
    if end.exit_code is None:
        return EXIT_UNKNOWN
    return Ending("done", exit_code=end.exit_code)


def _import_for_hooks(pod: PodEntry) -> None:
    if any(isinstance(spec.pre_stop, HttpGetAction) for spec in pod.spec.lasting):
        # Not in mid-shutdown: an import reads the disk.
        from ebbtide.actors.edges import http_request  # noqa: F401


def _signal_container(entry: ContainerEntry, name: str) -> Ending:
    """To the first process only, as a runtime does."""
    try:
        # First: an invalid stop signal is a mistake of the manifest, also for an ended container.
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


#: Raises ValueError or OSError with one clear line.
LoadManifest = Callable[[Path], list[tuple[Pod, ProcessSpec]]]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SUFFIXES = (".yaml", ".yml", ".json")
#: Longer than the pause of an editor or a copy between two writes.
HALF_WRITTEN_SECONDS = 0.2

#: Without notifications a new manifest waits so long.
POLL_SECONDS = 2.0


class ManifestFound(NamedTuple):
    path: Path
    pods: list[tuple[Pod, ProcessSpec]]
    error: str = ""


class ManifestGone(NamedTuple):
    path: Path


ManifestChange = ManifestFound | ManifestGone
FileStamp = tuple[int, int, int]


class ManifestSource:
    """One file, or a folder. Each look compares the folder with its former state, so a lost notification only
    delays. An unreadable file may be half written: it is read again.
    """

    def __init__(self, path: Path, load: LoadManifest) -> None:
        self._path = path
        self._load = load
        self._seen: dict[Path, FileStamp] = {}
        self._unreadable = ""

    async def changes(self) -> AsyncGenerator[list[ManifestChange], None]:
        """The present files, then each change; ends at once for a single file."""
        if not self._path.is_dir():
            yield [await self._read(self._path)]
            return
        try:
            watch: FolderWatch | PollingWatch = FolderWatch([self._path])
        except OSError:
            watch = PollingWatch()
        try:
            while True:
                yield await self._look()
                await watch.changed()
        finally:
            watch.close()

    async def _look(self) -> list[ManifestChange]:
        try:
            now = await _in_thread(self._stamps)
        except OSError as error:
            # An unreadable folder has not lost its manifests.
            said, self._unreadable = self._unreadable, str(error)
            return [] if str(error) == said else [ManifestFound(self._path, [], str(error))]
        self._unreadable = ""
        gone: list[ManifestChange] = [ManifestGone(path) for path in self._seen if path not in now]
        changed = [path for path, stamp in now.items() if self._seen.get(path) != stamp]
        # Before the reading: a file that changes meanwhile has another stamp at the next look.
        self._seen = now
        found = [await self._read(path) for path in changed]
        if any(item.error for item in found):
            await trio.sleep(HALF_WRITTEN_SECONDS)
        again = [await self._read(item.path) if item.error else item for item in found]
        return gone + [item for item in again if not item.error or os.path.exists(item.path)]

    def _stamps(self) -> dict[Path, FileStamp]:
        now: dict[Path, FileStamp] = {}
        # The same order each time.
        for path in sorted(self._path.iterdir()) if self._path.is_dir() else ():
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                with suppress(OSError):
                    stat = path.stat()
                    now[path] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        return now

    async def _read(self, path: Path) -> ManifestFound:
        try:
            return ManifestFound(path, await _in_thread(self._load, path))
        except (ValueError, OSError) as error:
            return ManifestFound(path, [], str(error) or type(error).__name__)


async def _in_thread(function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    # Abandoned on a hung disk: the daemon must be able to end.
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


class PollingWatch:
    """Used when the system has no notifications left."""

    async def changed(self) -> None:
        await trio.sleep(POLL_SECONDS)

    def close(self) -> None:
        """No-op."""
