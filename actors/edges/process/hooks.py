"""Runs a preStop hook: a process beside the container, or one HTTP request.

A hook is bounded by its order's time. Its process tree is killed at the end of its time and when it is
cancelled, but not when the daemon goes: the next daemon finds it by its order's key.
"""

from __future__ import annotations

import os
import time

import trio

from ebbtide.actors.edges.linux.exits import Child, ExitStatus, ExitWatch, open_child, reap, reap_soon
from ebbtide.actors.edges.linux.kill_tree import (
    Cgroups,
    Mark,
    Marker,
    ProcessScanner,
    TreeKiller,
    TreeRoot,
    is_ours,
)
from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction, SleepAction
from ebbtide.actors.edges.process.process_pods import ContainerEntry, output_name
from ebbtide.actors.edges.process.start import CannotStart, OutputFiles, spawn
from ebbtide.actors.interfaces import Ending, TraceContext
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import RunHook

TIMED_OUT = Ending("timed-out", "the hook's time is over")
#: Only the parent learns how a process ended (`exits`).
EXIT_UNKNOWN = Ending("unknown", "begun by a daemon that has gone; its exit code is not known")
#: Where programs look for their trace (OpenTelemetry, "Environment Variables as Context Propagation
#: Carriers").
TRACEPARENT = "TRACEPARENT"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def hook_ending(end: ExitStatus) -> Ending:
    if end.signal:
        return Ending("failed", f"ended by {end.signal}")
    if end.exit_code:
        return Ending("failed", f"exit code {end.exit_code}", end.exit_code)
    if end.exit_code is None:
        return EXIT_UNKNOWN
    return Ending("done", exit_code=end.exit_code)


class ProcessHooks:
    def __init__(
        self,
        marker: Marker,
        scanner: ProcessScanner,
        killer: TreeKiller,
        watch: ExitWatch,
        output: OutputFiles,
        pod_ip: str,
        cgroups: Cgroups | None,
    ) -> None:
        self._cgroups = cgroups
        self._marker = marker
        self._scanner = scanner
        self._killer = killer
        self._watch = watch
        self._output = output
        self._pod_ip = pod_ip
        self.context: TraceContext = lambda order_key: ""

    async def run(self, entry: ContainerEntry, order: RunHook) -> Ending:
        """Raises nothing but cancellation."""
        action = entry.spec.pre_stop
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        if entry.phase != "running":
            return Ending("failed", "the container does not run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, ExecAction):
                return await self._exec(action, entry, order.key)
            if isinstance(action, HttpGetAction):
                # `ProcessEdge.prewarm` or the pod's start has imported it.
                from ebbtide.actors.edges.http_request import RequestFailed, request_of

                trace = self.context(order.key)
                try:
                    await request_of(action, entry.spec, self._pod_ip, trace).send()
                except RequestFailed as error:
                    return Ending("failed", str(error))
                return Ending()
            return Ending("failed", "invalid handler")
        return TIMED_OUT

    async def _exec(self, action: ExecAction, entry: ContainerEntry, key: str) -> Ending:
        uid, container = entry.key
        trace = self.context(key)
        passed_on = {TRACEPARENT: trace} if trace else {}
        environ = self._marker.environ(Mark(uid, container, key), passed_on | entry.spec.env)
        try:
            output = self._output.open(output_name(uid, container))
            try:
                child = spawn(action.argv, environ, entry.spec.working_dir, output, entry.group)
            finally:
                os.close(output)
        except (CannotStart, OSError) as error:
            return Ending("failed", f"cannot start: {error}")
        return hook_ending(await self._follow(child, key))

    async def _follow(self, child: Child, key: str) -> ExitStatus:
        """Wait for the end. If cancelled, kill its tree, and let the watch reap it."""
        try:
            await trio.lowlevel.wait_readable(child.pidfd)
        except BaseException:
            # If the daemon goes, the next one follows the hook by its mark.
            if not self._killer.closed:
                self._killer.kill_soon(("", key), TreeRoot(child.pid, child.start_ticks))

            def reap_and_close() -> None:
                reap(child.pidfd)
                os.close(child.pidfd)

            self._watch.add(child.pidfd, reap_and_close)
            raise
        # The parent of an adopted hook has to wait for it first.
        end = await reap_soon(child.pidfd)
        os.close(child.pidfd)
        return end

    async def adopt(self, order: RunHook) -> Ending | None:
        """Follow an earlier daemon's hook, if it lives. Its time runs from its start."""
        look = await self._scanner.look_shared()
        ours = [
            item.stat
            for item in look
            if item.mark is not None and item.mark.order == order.key and is_ours(item.pid, self._cgroups)
        ]
        # Its children have its mark as well; the hook itself leads the session.
        first = min(
            (stat for stat in ours if stat.session == stat.pid),
            key=lambda stat: stat.start_ticks,
            default=None,
        )
        child = open_child(first.pid, first.start_ticks) if first is not None else None
        if child is None:
            return None
        # ``/proc`` counts a start from boot with the time asleep, as this clock does.
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        left_ns = order.timeout_ns - max(0, now_ns - child.start_ticks * NS_PER_SECOND // TICKS_PER_SECOND)
        with trio.move_on_after(max(0, left_ns) / NS_PER_SECOND):
            return hook_ending(await self._follow(child, order.key))
        return TIMED_OUT
