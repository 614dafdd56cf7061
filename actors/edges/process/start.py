"""Starting a pod: init containers to their end, sidecars in their turn, then the others.

All or nothing: what cannot be started takes the rest of its pod along. A pod that is asked to stop before
it is up goes no further.
"""

from __future__ import annotations

import os
import signal

import trio

from actors.edges.process.cgroup import Cgroups
from actors.edges.process.endings import End, reap
from actors.edges.process.marks import Mark, Marker
from actors.edges.process.record import Records, file_name, output_name
from actors.edges.process.rings import Rings
from actors.edges.process.spawn import CannotStart, Child, spawn
from actors.edges.process.spec import ContainerSpec
from actors.edges.process.sweep import Root, Sweeper
from actors.edges.process.table import ContainerEntry, PodEntry
from actors.edges.process.watch import Watch
from actors.interfaces import Ending, Outlet
from events.base import Fact
from events.facts import ContainerExited, ContainerStarted

#: What the reference's runtime reports for a container that could not be started.
CANNOT_START_CODE = 128
STOPPED = "asked to stop before it was started"


class Starter:
    """Starts pods and sees to the ends of their containers."""

    def __init__(
        self,
        marker: Marker,
        records: Records,
        rings: Rings,
        watch: Watch,
        sweeper: Sweeper,
        cgroups: Cgroups | None,
    ) -> None:
        self._marker = marker
        self._records = records
        self._rings = rings
        self._watch = watch
        self._sweeper = sweeper
        self._cgroups = cgroups

    async def start(self, pod: PodEntry, outlet: Outlet) -> Ending:
        """Start what is not started yet. Never raises but for cancellation."""
        pod.starting = True
        try:
            # Before anything runs: what runs without a record is found by its marks.
            self.remember(pod)
            failure = await self._start_all(pod, outlet)
        except trio.Cancelled:
            if not self._sweeper.closed:
                self._kill(pod)
            raise
        except (CannotStart, OSError) as error:
            failure = str(error)
        finally:
            pod.starting = False
        return Ending() if not failure else await self._give_up(pod, failure, outlet)

    async def _start_all(self, pod: PodEntry, outlet: Outlet) -> str:
        """Why it failed; empty when all run."""
        for spec in pod.spec.init + pod.spec.containers:
            if pod.stopping:
                return STOPPED
            entry = pod.containers.get(spec.name)
            if entry is None:
                failure = await self._run_init(pod, spec)
                if failure:
                    return failure
            elif entry.phase == "waiting":
                await self._launch(entry, outlet)
        return ""

    async def _run_init(self, pod: PodEntry, spec: ContainerSpec) -> str:
        entry = pod.init = ContainerEntry(pod, spec)
        entry.ended = trio.Event()
        self._spawn(entry)
        self.follow(entry)
        await entry.ended.wait()
        pod.init = None
        if pod.stopping:
            return STOPPED
        if entry.end.exit_code:
            return f"init container {spec.name} ended with exit code {entry.end.exit_code}"
        return f"init container {spec.name} ended by {entry.end.signal}" if entry.end.signal else ""

    async def end_inits(self, pod: PodEntry) -> None:
        """Before a start is taken up again: an init container of the earlier daemon may still run, and
        init containers may be run again (Kubernetes says so), but not twice at a time.
        """
        if any(entry.phase == "waiting" for entry in pod.containers.values()):
            uid = pod.pod.uid
            inits = [spec.name for spec in pod.spec.init if not spec.sidecar]
            await self._sweeper.sweep({(uid, name): Root() for name in inits})

    async def _launch(self, entry: ContainerEntry, outlet: Outlet) -> None:
        self._spawn(entry)
        try:
            self.remember(entry.pod)
            await outlet.put(ContainerStarted(uid=entry.key[0], container=entry.key[1], pid=entry.pid))
        finally:
            # Only now: its end must not be reported before its start.
            self.follow(entry)

    def _spawn(self, entry: ContainerEntry) -> None:
        """Raises CannotStart, OSError."""
        uid, name = entry.key
        if self._cgroups is not None:
            entry.group = self._cgroups.make(f"{file_name(uid)}.{file_name(name)}")
        environ = self._marker.environ(Mark(uid, name, entry.pod.order), entry.spec.env)
        output = self._rings.open(output_name(uid, name))
        try:
            child: Child = spawn(entry.spec.argv, environ, entry.spec.working_dir, output, entry.group)
        except CannotStart as error:
            raise CannotStart(f"container {name}: {error}") from error
        finally:
            os.close(output)
        entry.begin(*child)

    def remember(self, pod: PodEntry) -> None:
        """Keep what runs for the daemon's next life. Raises OSError."""
        running = tuple(entry.record() for entry in pod.containers.values() if entry.pid)
        self._records.store(pod.order, pod.pod, pod.spec, running, pod.stopping)

    def follow(self, entry: ContainerEntry) -> None:
        """See to the container's end."""
        self._watch.add(entry.pidfd, lambda: self._ended(entry), child=entry.child)

    def _ended(self, entry: ContainerEntry) -> Fact | None:
        if entry.child:
            # Before it is waited for: until then nobody else can have its number.
            _kill_session(entry.pid)
        end = reap(entry.pidfd) or End()
        entry.finish(end)
        if not self._sweeper.closed:
            self._sweeper.leftovers(entry.key, entry.group)
        return None if entry.ended is not None else exited(entry)

    async def _give_up(self, pod: PodEntry, failure: str, outlet: Outlet) -> Ending:
        self._kill(pod)
        code = None if pod.stopping else CANNOT_START_CODE
        facts = self.drop_waiting(pod, code)
        self._records.remove(pod.pod.uid)
        if facts:
            await outlet.put(*facts)
        return Ending("cancelled" if pod.stopping else "failed", failure)

    def drop_waiting(self, pod: PodEntry, code: int | None) -> list[Fact]:
        """What was not started never will be."""
        facts: list[Fact] = []
        for entry in pod.containers.values():
            if entry.phase == "waiting":
                entry.finish(End(exit_code=code))
                facts.append(exited(entry))
        return facts

    def _kill(self, pod: PodEntry) -> None:
        running = [entry for entry in pod.containers.values() if entry.phase == "running"]
        for entry in running + ([pod.init] if pod.init is not None else []):
            self._sweeper.kill_soon(entry.key, Root(entry.pid, entry.start_ticks), entry.group)


def exited(entry: ContainerEntry) -> ContainerExited:
    """The fact of a container's end."""
    uid, name = entry.key
    return ContainerExited(uid=uid, container=name, exit_code=entry.end.exit_code, signal=entry.end.signal)


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        # A program that changed its user: its marks are not readable for us either.
        return
