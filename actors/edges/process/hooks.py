"""Runs a preStop hook: a process beside the container, or one HTTP request.

A hook is bounded by its order's time. Its process tree is killed at the end of its time and when it is
cancelled, but not when the daemon goes: the next daemon finds it in its pod's record.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import trio

from ebbtide.actors.edges.linux.exits import Child, ExitStatus, ExitWatch, open_child, reap, reap_soon
from ebbtide.actors.edges.linux.kill_tree import TreeKiller, TreeRoot
from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction, SleepAction
from ebbtide.actors.edges.process.process_pods import (
    ContainerEntry,
    PodRecords,
    PodTable,
    ProcessRecord,
    output_name,
)
from ebbtide.actors.edges.process.start import CannotStart, OutputFiles, environ_of, spawn
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
        table: PodTable,
        records: PodRecords,
        killer: TreeKiller,
        watch: ExitWatch,
        output: OutputFiles,
        pod_ip: str,
    ) -> None:
        self._table = table
        self._records = records
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
        trace = self.context(key)
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
        # Without a record the next daemon reports its outcome as unknown.
        with suppress(OSError):
            self._records.store(entry.pod)
        end = await self._follow(child)
        # Cancelled with the daemon, it stays for the next one.
        del entry.pod.hooks[key]
        return hook_ending(end)

    async def _follow(self, child: Child) -> ExitStatus:
        """Wait for the end. If cancelled, kill its tree, and let the watch reap it."""
        try:
            await trio.lowlevel.wait_readable(child.pidfd)
        except BaseException:
            # If the daemon goes, the next one follows the hook.
            if not self._killer.closed:
                self._killer.kill_soon(TreeRoot(child.pid, child.start_ticks))

            async def reap_and_close() -> None:
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
        pod = self._table.pods.get(order.uid)
        record = pod.hooks.get(order.key) if pod is not None else None
        child = open_child(record.pid, record.start_ticks) if record is not None else None
        if child is None:
            return None
        # ``/proc`` counts a start from boot with the time asleep, as this clock does.
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        left_ns = order.timeout_ns - max(0, now_ns - child.start_ticks * NS_PER_SECOND // TICKS_PER_SECOND)
        with trio.move_on_after(max(0, left_ns) / NS_PER_SECOND):
            return hook_ending(await self._follow(child))
        return TIMED_OUT
