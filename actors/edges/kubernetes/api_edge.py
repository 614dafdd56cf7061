"""The Kubernetes edge: this node's pods, known ahead of time, and a shutdown's writes (docs/node.md).

A thread imports the client once the node is armed or a shutdown needs it: the import cannot delay the lock.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ebbtide.actors.edges.kubernetes.known_pods import (
    API_ORDERS,
    NO_LIST,
    PodCache,
    PodStore,
    follow_manifests,
)
from ebbtide.actors.interfaces import WARNING, Edge, Effect, Ending, Outlet, Tell, TraceContext, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.facts import ApiRead

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_writes import Writes


NO_API = "no API server: no kubeconfig was named, and this is no pod"


class KubernetesEdge(Edge):
    """``kubeconfig`` None: the pod's own access; outside of a pod none. ``state_dir`` outlives a reboot.
    ``manifests``: the kubelet's staticPodPath.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        state_dir: Path,
        *,
        manifests: Path | None = None,
        tell: Tell = lambda level, line: None,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._has_api = kubeconfig is not None or "KUBERNETES_SERVICE_HOST" in os.environ
        self._node = node
        self._manifests = manifests
        self._tell = tell
        self.pods = PodStore()
        self.pods.why_no_list = "" if self._has_api else NO_API
        self.pods.manifests_known = manifests is None
        self._cache = PodCache(state_dir, node, tell)
        self._context: TraceContext = lambda order_key: ""
        self._link: Callable[[], tuple[str, str]] = lambda: ("", "")
        self._wanted = trio.Event()
        self._up = trio.Event()
        self._writes: Writes | None = None
        self._trouble = self._manifests_trouble = ""
        self.effects: Mapping[type[Order], Effect] = dict.fromkeys(API_ORDERS, self._carry_out)

    async def run(self, outlet: Outlet) -> None:
        """A cancel takes no write back."""
        self.pods.restore(await trio.to_thread.run_sync(self._cache.load, abandon_on_cancel=True))
        await self._wanted.wait()
        async with trio.open_nursery() as nursery:
            if self._manifests is not None:
                follow = partial(follow_manifests, self._manifests, self._node, self.pods.set_manifests)
                nursery.start_soon(
                    retry_until_cancelled, "static pods' manifests", follow, self._manifests_failed
                )
            if not self._has_api:
                await outlet.put(ApiRead(reachable=False, error=NO_API))
                return
            wake, failed = partial(self._wake, outlet), partial(self._failed, outlet)
            nursery.start_soon(retry_until_cancelled, "the Kubernetes API", wake, failed)

    async def _wake(self, outlet: Outlet) -> None:
        module: Any = await trio.to_thread.run_sync(
            import_module, "ebbtide.actors.edges.kubernetes.api_writes"
        )
        connect = partial(
            module.connect,
            self._kubeconfig,
            self._node,
            self.pods,
            self._cache,
            lambda key: self._context(key),
            self._tell,
            lambda: self._link(),
            outlet,
        )
        async with trio.open_nursery() as nursery:
            self._writes, self._trouble = await nursery.start(connect), ""
            self.pods.why_no_list = ""
            self._up.set()

    async def _failed(self, outlet: Outlet, line: str) -> None:
        is_news = line != self._trouble
        self._writes, self._trouble = None, line
        self.pods.why_no_list = NO_LIST
        self._up.set()
        if is_news:
            self._tell(WARNING, line)
            await outlet.put(ApiRead(reachable=False, error=line))

    async def _manifests_failed(self, line: str) -> None:
        self.pods.manifests_known = True
        if line != self._manifests_trouble:
            self._tell(WARNING, line)
        self._manifests_trouble = line

    def prewarm(self) -> None:
        self._wanted.set()

    def pass_on(self, context: TraceContext) -> None:
        self._context = context

    def link_to(self, journal: Callable[[], tuple[str, str]]) -> None:
        """The report on the last boot names this journal."""
        self._link = journal

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """All writes may be repeated (preconditions, names from keys)."""
        return await self._carry_out(order, outlet)

    async def _carry_out(self, order: Order, outlet: Outlet) -> Ending:
        if not self._has_api:
            return Ending("failed", NO_API)
        self._wanted.set()
        with trio.move_on_after(bounds.now.awake_seconds):
            await self._up.wait()
        if self._writes is None:
            return Ending("failed", self._trouble or "the API server's client could not be loaded in time")
        ended: Ending = await self._writes.effects[type(order)](order, outlet)  # type: ignore[misc]  # all are awaited
        return ended


# After a bug or a half installed package the daemon continues without the API server, and tries again.


#: Between two tries.
AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 60.0


async def retry_until_cancelled(
    name: str, work: Callable[[], Awaitable[None]], failed: Callable[[str], Awaitable[None]]
) -> None:
    """``work`` ends only by failing. ``failed`` takes the reason."""
    pause = AGAIN_SECONDS
    while True:
        began, why = trio.current_time(), "it ended"
        try:
            await work()
        except Exception as error:
            why = error_text(error)
        # After a long life the failure has a new reason.
        if trio.current_time() - began > AGAIN_SECONDS_MAX:
            pause = AGAIN_SECONDS
        await failed(f"{name} cannot be used, which is tried again: {why}")
        await trio.sleep(pause)
        pause = min(AGAIN_SECONDS_MAX, pause * 2)
