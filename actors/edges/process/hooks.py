"""Running a preStop hook: a process beside the container, or one HTTP request.

A hook is bounded by its order's time, and its process tree is killed when it is cancelled or its time is
over; not, however, when the daemon itself goes: then the next daemon finds it by its order's key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import trio

from actors.edges.process import proc
from actors.edges.process.endings import End, reap, reap_soon
from actors.edges.process.marks import Mark, Marker
from actors.edges.process.record import output_name
from actors.edges.process.rings import Rings
from actors.edges.process.scan import Scanner
from actors.edges.process.spawn import CannotStart, Child, spawn
from actors.edges.process.spec import ExecAction, HookAction, HttpGetAction, SleepAction, TcpSocketAction
from actors.edges.process.sweep import Root, Sweeper
from actors.edges.process.table import ContainerEntry
from actors.edges.process.watch import Watch
from actors.interfaces import Ending
from events.base import NS_PER_SECOND
from events.decisions import RunHook

TIMED_OUT = Ending("timed-out", "the hook's time is over")
#: Only its own parent learns how a process ended (`actors.edges.process.endings`), and that daemon has gone.
UNTOLD = Ending("unknown", "begun by a daemon that has gone; its exit code is not known")
#: Where programs look for the trace that they are part of (OpenTelemetry, "Environment Variables as Context
#: Propagation Carriers").
TRACEPARENT = "TRACEPARENT"
#: An order's key to its ``traceparent`` (W3C Trace Context); empty: there is none to pass on.
Context = Callable[[str], str]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def ending_of(end: End) -> Ending:
    """The outcome of an exec hook from how its process ended."""
    if end.signal:
        return Ending("failed", f"ended by {end.signal}")
    if end.exit_code:
        return Ending("failed", f"exit code {end.exit_code}", end.exit_code)
    if end.exit_code is None:
        return UNTOLD
    return Ending("done", exit_code=end.exit_code)


class Hooks:
    """Carries `RunHook` out."""

    def __init__(
        self, marker: Marker, scanner: Scanner, sweeper: Sweeper, watch: Watch, rings: Rings, pod_ip: str
    ) -> None:
        self._marker = marker
        self._scanner = scanner
        self._sweeper = sweeper
        self._watch = watch
        self._rings = rings
        self._pod_ip = pod_ip
        self.context: Context = lambda order_key: ""

    async def run(self, entry: ContainerEntry, order: RunHook) -> Ending:
        """Never raises but for cancellation."""
        action = entry.spec.pre_stop
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        if entry.phase != "running":
            return Ending("failed", "the container does not run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            return await self._run(action, entry, order.key)
        return TIMED_OUT

    def _run(self, action: HookAction, entry: ContainerEntry, key: str) -> Awaitable[Ending]:
        if isinstance(action, ExecAction):
            return self._exec(action, entry, key)
        if isinstance(action, HttpGetAction):
            return self._get(action, entry, key)
        assert isinstance(action, TcpSocketAction)
        return _invalid()

    async def _exec(self, action: ExecAction, entry: ContainerEntry, key: str) -> Ending:
        uid, container = entry.key
        trace = self.context(key)
        passed_on = {TRACEPARENT: trace} if trace else {}
        environ = self._marker.environ(Mark(uid, container, key), passed_on | entry.spec.env)
        try:
            output = self._rings.open(output_name(uid, container))
            try:
                child = spawn(action.argv, environ, entry.spec.working_dir, output, entry.group)
            finally:
                os.close(output)
        except (CannotStart, OSError) as error:
            return Ending("failed", f"cannot start: {error}")
        return ending_of(await self._follow(child, key))

    async def _follow(self, child: Child, key: str) -> End:
        """Wait for the end. Cancelled: kill its tree, and let the watch reap it."""
        try:
            await trio.lowlevel.wait_readable(child.pidfd)
        except BaseException:
            if not self._sweeper.closed:
                self._sweeper.kill_soon(("", key), Root(child.pid, child.start_ticks))
            self._watch.add(child.pidfd, lambda: _bury(child.pidfd))
            raise
        end = await reap_soon(child.pidfd)
        os.close(child.pidfd)
        return end

    async def _get(self, action: HttpGetAction, entry: ContainerEntry, key: str) -> Ending:
        from actors.edges.process import http

        try:
            await http.send(http.request_of(action, entry.spec, self._pod_ip, self.context(key)))
        except http.FAILURES as error:
            return Ending("failed", http.why(error))
        return Ending()

    async def adopt(self, order: RunHook) -> Ending | None:
        """Follow the hook of an earlier daemon, if it lives; its time has run on since it was started."""
        child = await self._find(order.key)
        if child is None:
            return None
        left_ns = order.timeout_ns - _age_ns(child.start_ticks)
        with trio.move_on_after(max(0, left_ns) / NS_PER_SECOND):
            return ending_of(await self._follow(child, order.key))
        return TIMED_OUT

    async def _find(self, key: str) -> Child | None:
        look = await self._scanner.look_shared()
        ours = [item.stat for item in look if item.mark is not None and item.mark.order == key]
        first = min(
            (stat for stat in ours if stat.session == stat.pid),
            key=lambda stat: stat.start_ticks,
            default=None,
        )
        return open_child(first.pid, first.start_ticks) if first is not None else None


def open_child(pid: int, start_ticks: int) -> Child | None:
    """A pidfd for exactly this process; None when it has gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if proc.is_same(pid, start_ticks):
        return Child(pid, pidfd, start_ticks)
    os.close(pidfd)
    return None


def _bury(pidfd: int) -> None:
    reap(pidfd)
    os.close(pidfd)


def _age_ns(start_ticks: int) -> int:
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return max(0, now_ns - start_ticks * NS_PER_SECOND // TICKS_PER_SECOND)


async def _invalid() -> Ending:
    return Ending("failed", "invalid handler")
