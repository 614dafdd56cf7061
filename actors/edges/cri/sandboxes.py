"""Sandboxes and their networks, off the critical path: nobody waits for this, and it may be cut short.

A wave ends with its pods' processes. What is left of a pod is cleaned up in lulls, when no stop and no end
has come for a while: beside a burst of stops it takes the runtime's time and doubles the wave's
(measured: 105 pods, 2 cores). ``StopPodSandbox`` kills what still runs and then has
the network taken down, so it comes only after every container of the pod has ended, and not where a kubelet
has started one again (after a cancel); and the pods that provide the network share the node's: those
sandboxes come last of all.
"""

from __future__ import annotations

import math
from collections import deque

import trio

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.calling import LOOK_SECONDS_MAX, Caller
from actors.edges.cri.errors import CallFailed
from actors.edges.cri.table import PodEntry, Table

#: At once.
WORKERS = 2
#: A burst of stops, or the next wave's, comes closer together than this.
LULL_SECONDS = 0.5
#: A network plugin that hangs holds one worker for so long.
SANDBOX_SECONDS_MAX = 10.0


class Sandboxes:
    """Takes pods that have ended; ``failed`` counts those whose sandbox could not be stopped."""

    def __init__(self, caller: Caller, table: Table) -> None:
        self._caller = caller
        self._table = table
        self._own: deque[PodEntry] = deque()
        self._shared: deque[PodEntry] = deque()
        self._busy: list[PodEntry] = []
        self._seen: list[str] = []
        self._more = trio.Event()
        self._stirred = -math.inf
        self.failed = 0

    def stir(self) -> None:
        """A stop was asked for, or a container has ended."""
        self._stirred = trio.current_time()

    def look(self, pod: PodEntry) -> None:
        """A container of this pod has ended. Only a pod that was told to stop is cleaned up, once."""
        if any(entry.stopping for entry in pod.containers.values()):
            self.add(pod)

    def add(self, pod: PodEntry) -> None:
        """A pod that was told to stop, if all of it has ended."""
        if pod.running or pod.sandbox in self._seen:
            return
        self._seen.append(pod.sandbox)
        (self._shared if pod.host_network else self._own).append(pod)
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()

    async def run(self) -> None:
        """Stop sandboxes until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            await trio.sleep_until(self._stirred + LULL_SECONDS)
            if trio.current_time() < self._stirred + LULL_SECONDS:
                continue
            pod = self._next()
            if pod is None:
                await self._more.wait()
                continue
            self._busy.append(pod)
            await self._stop(pod)
            self._busy.remove(pod)
            self._wake()

    def _next(self) -> PodEntry | None:
        if self._own:
            return self._own.popleft()
        return self._shared.popleft() if self._shared and not self._networks_left() else None

    def _networks_left(self) -> bool:
        """Does a pod with a network of its own still run, or is one being cleaned up?"""
        running = any(not pod.host_network for pod in self._table.active())
        return running or any(not pod.host_network for pod in self._busy)

    async def _stop(self, pod: PodEntry) -> None:
        request = api.StopPodSandboxRequest(pod_sandbox_id=pod.sandbox)
        try:
            if await self._runs_again(pod):
                return
            await self._caller.repeat(
                "StopPodSandbox", request, api.StopPodSandboxResponse, SANDBOX_SECONDS_MAX
            )
        except CallFailed:
            self.failed += 1

    async def _runs_again(self, pod: PodEntry) -> bool:
        """The table may be half a second old. Raises CallFailed."""
        running = api.ContainerStateValue(state=api.CONTAINER_RUNNING)
        only = api.ContainerFilter(pod_sandbox_id=pod.sandbox, state=running)
        request = api.ListContainersRequest(filter=only)
        found = await self._caller.repeat(
            "ListContainers", request, api.ListContainersResponse, LOOK_SECONDS_MAX
        )
        return len(found.containers) > 0
