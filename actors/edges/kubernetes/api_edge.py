"""The Kubernetes edge: this node's pods known ahead of time, and what a shutdown writes into the cluster.

This much is there from the start of the process, and it is light: what the cache and the static pods'
manifests say of the pods. The rest, with the client, is imported when the node is armed (or when a shutdown
that already runs needs it), in a thread, so that nothing stands between the start and the lock. See
docs/node.md.
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
    NOT_LISTED_YET,
    KnownPod,
    PodCache,
    PodStore,
)
from ebbtide.actors.interfaces import WARNING, Effect, Ending, Outlet, Tell, TraceContext, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.facts import ApiRead

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_writes import Runtime


NO_API = "no API server: no kubeconfig was named, and this is no pod"


class KubernetesEdge:
    """Watches the pods of ``node`` and carries out what a shutdown has to say to the API server.

    ``kubeconfig`` None: as the pod that we run in; where we are in none there is no API, and pods are known
    from the cache and the manifests. ``state_dir`` outlives a reboot; ``manifests`` is the kubelet's
    staticPodPath; ``tell`` takes what an operator has to know, with its sd-daemon(3) level.
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
        self._store = PodStore()
        self._store.why_no_list = "" if self._has_api else NO_API
        #: The static pods' manifests have been read, or cannot be, or nobody has named them.
        self._manifests_known = manifests is None
        self._cache = PodCache(state_dir, node, tell)
        self._context: TraceContext = lambda order_key: ""
        self._link: Callable[[], tuple[str, str]] = lambda: ("", "")
        self._wanted = trio.Event()
        self._up = trio.Event()
        self._runtime: Runtime | None = None
        #: Why there is none, if there was one or should be.
        self._trouble = ""
        self.effects: Mapping[type[Order], Effect] = dict.fromkeys(API_ORDERS, self._carry_out)

    async def run(self, outlet: Outlet) -> None:
        """Follow the API server until cancelled, which takes nothing back that was written there."""
        self._store.restore(await trio.to_thread.run_sync(self._cache.load, abandon_on_cancel=True))
        await self._wanted.wait()
        async with trio.open_nursery() as nursery:
            if self._manifests is not None:
                nursery.start_soon(self._follow_manifests, self._manifests)
            if not self._has_api:
                await outlet.put(ApiRead(reachable=False, error=NO_API))
                return
            failed = partial(self._failed, outlet)
            nursery.start_soon(
                retry_until_cancelled, "the Kubernetes API", partial(self._wake, outlet), failed
            )

    async def _wake(self, outlet: Outlet) -> None:
        module = await trio.to_thread.run_sync(import_module, "ebbtide.actors.edges.kubernetes.api_writes")
        made: Any = module.Runtime(
            self._kubeconfig,
            self._node,
            self._store,
            self._cache,
            self._trace,
            self._tell,
            lambda: self._link(),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run, outlet)
            self._runtime, self._trouble = made, ""
            self._store.why_no_list = ""
            self._up.set()

    async def _failed(self, outlet: Outlet, line: str) -> None:
        is_news = line != self._trouble
        self._runtime, self._trouble = None, line
        self._store.why_no_list = NO_LIST
        self._up.set()
        if is_news:
            self._tell(WARNING, line)
            await outlet.put(ApiRead(reachable=False, error=line))

    async def _follow_manifests(self, path: Path) -> None:
        async def follow() -> None:
            module = await trio.to_thread.run_sync(
                import_module, "ebbtide.actors.edges.kubernetes.pod_object"
            )
            await module.follow(path, self._node, take)

        def take(pods: list[KnownPod]) -> None:
            self._store.set_manifests(pods)
            self._manifests_known = True

        said = ""

        async def failed(line: str) -> None:
            nonlocal said
            self._manifests_known = True
            if line != said:
                self._tell(WARNING, line)
            said = line

        await retry_until_cancelled("what static pods' manifests say", follow, failed)

    def prewarm(self) -> None:
        """Armed: import the client, connect, and list."""
        self._wanted.set()

    def detach(self) -> None:
        """Nothing here ends a process, and what was written stays as it is."""

    def pass_on(self, context: TraceContext) -> None:
        """Give every call that an order makes from now on the trace context of that order."""
        self._context = context

    def link_to(self, journal: Callable[[], tuple[str, str]]) -> None:
        """Name this node's journal, by its id, and the trace of its last shutdown before this boot, if any,
        where the end of the last boot is shown.
        """
        self._link = journal

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Everything that is written may be written twice (preconditions, names from keys): do it again."""
        return await self._carry_out(order, outlet)

    async def _carry_out(self, order: Order, outlet: Outlet) -> Ending:
        if not self._has_api:
            return Ending("failed", NO_API)
        self._wanted.set()
        with trio.move_on_after(bounds.now.awake_seconds):
            await self._up.wait()
        if self._runtime is None:
            return Ending("failed", self._trouble or "the API server's client could not be loaded in time")
        return await self._runtime.carry_out(order, outlet)

    def _trace(self, order_key: str) -> str:
        return self._context(order_key)

    # --- what is known of the pods ---------------------------------------------------------------

    def find(self, uid: str) -> KnownPod | None:
        """By the UID that the runtime knows."""
        return self._store.find(uid)

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        """By name, where the UID is not known: a static pod that only its manifest tells of has none."""
        return self._store.find_named(namespace, name)

    def pods(self) -> list[KnownPod]:
        """All pods of this node, as far as they are known."""
        return self._store.pods()

    def last_ends(self, uid: str) -> Mapping[str, int]:
        """Of a pod whose object is gone: the exit codes that it went with, by container."""
        return self._store.last_ends(uid)

    @property
    def version(self) -> int:
        """Counts what the API server has told; 0: nothing yet, all that is known is from before a restart."""
        return self._store.version

    async def changed(self, since: int) -> None:
        """Return once ``version`` is another than this."""
        await self._store.changed(since)

    @property
    def untold(self) -> str:
        """Why the API server has told nothing since this start; empty: it has."""
        return self._store.untold

    @property
    def expecting(self) -> bool:
        """May more be known of the pods in a moment, with nothing having happened to them?"""
        return self._store.untold == NOT_LISTED_YET or not self._manifests_known


# One bad input must not take the daemon down. After a file that nobody thought of, a package that is half
# installed, or a bug, it goes on without the API server (docs/node.md has who ends the pods then), says so,
# and tries again.


#: Between two tries: a package may be installed, or a file mended, while we run. From the first to the last.
AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 60.0


async def retry_until_cancelled(
    name: str, work: Callable[[], Awaitable[None]], failed: Callable[[str], Awaitable[None]]
) -> None:
    """Do ``work``, which only ends by failing, again and again until cancelled; ``failed`` takes why."""
    pause = AGAIN_SECONDS
    while True:
        began, why = trio.current_time(), "it ended"
        try:
            await work()
        except Exception as error:
            why = error_text(error)
        # What has lived so long did not fail for the reason of before.
        if trio.current_time() - began > AGAIN_SECONDS_MAX:
            pause = AGAIN_SECONDS
        await failed(f"{name} cannot be used, which is tried again: {why}")
        await trio.sleep(pause)
        pause = min(AGAIN_SECONDS_MAX, pause * 2)
