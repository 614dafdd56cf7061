"""The CRI edge ends a node's pods through the container runtime's socket (docs/cri.md).

A thread imports gRPC once the node is armed or a shutdown needs it, so the import cannot delay the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ebbtide.actors.edges.cri.cri_pods import InventoryFile
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.interfaces import WARNING, Edge, Effect, Ending, Outlet, Tell, TraceContext, error_text
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import Order
from ebbtide.events.facts import RuntimeRead
from ebbtide.events.values import Pod

if TYPE_CHECKING:
    from ebbtide.actors.edges.cri.cri_runtime import Runtime
    from ebbtide.actors.edges.kubernetes.known_pods import PodStore


ORDERS = (d.SendSignal, d.KillContainer, d.TakeAutopsy, d.RunHook, d.TakeInventory)
#: Before the next try: a shutdown may run.
RETRY_SECONDS = 5.0
AWAKE = "ebbtide.actors.edges.cri.cri_runtime"


class CriEdge(Edge):
    """``state_dir``: on a file system that ends with the boot. ``own_uid``: the daemon's own pod, if its
    cgroup does not show it. ``starts``: may a pod of this node start? Raises OSError for the folder.
    """

    def __init__(
        self,
        endpoint: str,
        state_dir: Path,
        *,
        own_uid: str = "",
        lookup: PodStore | None = None,
        starts: Callable[[], bool] = lambda: False,
        tell: Tell = lambda level, line: None,
    ) -> None:
        self._endpoint = endpoint
        self._file = InventoryFile(state_dir, proc.boot_id_with_dashes())
        self._own_uid = own_uid
        self._lookup = lookup
        self._starts = starts
        self._tell = tell
        self._context: TraceContext = lambda order_key: ""
        self._wanted = trio.Event()
        #: There is a runtime, or a reason.
        self._tried = trio.Event()
        self._why = ""
        self._open: dict[int, trio.CancelScope] = {}
        self._runtime: Runtime | None = None
        self.effects: Mapping[type[Order], Effect] = dict.fromkeys(ORDERS, self._carry_out)

    async def run(self, outlet: Outlet) -> None:
        """Until cancelled, which ends no container."""
        await self._wanted.wait()
        # gRPC's handlers at a fork wait for threads that the child does not have.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        while True:
            try:
                invalidate_caches()
                module = await trio.to_thread.run_sync(import_module, AWAKE)
                made: Any = module.Runtime(
                    self._endpoint,
                    self._file,
                    self._own_uid,
                    self._lookup,
                    self._starts,
                    lambda key: self._context(key),
                    self._tell,
                    outlet,
                )
                async with trio.open_nursery() as nursery:
                    await nursery.start(made.run)
                    self._runtime, self._why = made, ""
                    self._tried.set()
            except Exception as error:
                # Each reason is logged once; open orders end with it.
                why, self._runtime = f"the runtime's client does not work: {error_text(error)}", None
                news, self._why = why != self._why, why
                self._tried.set()
                for scope in list(self._open.values()):
                    scope.cancel()
                if news:
                    self._tell(WARNING, f"container runtime: {why}; no pod can be stopped over CRI")
                    await outlet.put(RuntimeRead(reachable=False, error=why))
            await trio.sleep(RETRY_SECONDS)

    def prewarm(self) -> None:
        self._wanted.set()

    def pass_on(self, context: TraceContext) -> None:
        """``context`` goes with every call of its order."""
        self._context = context

    def active(self) -> list[Pod]:
        return self._runtime.active() if self._runtime is not None else []

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Repeat the order; but a hook's exec ended with the daemon, and the core repeats stops."""
        lost = isinstance(order, d.RunHook | d.SendSignal)
        return None if lost else await self._carry_out(order, outlet)

    async def _carry_out(self, order: Order, outlet: Outlet) -> Ending:
        self._wanted.set()
        with trio.move_on_after(bounds.now.awake_seconds):
            await self._tried.wait()
        if self._runtime is None:
            return Ending("failed", self._why or "the runtime's client could not be loaded in time")
        with trio.CancelScope() as scope:
            self._open[id(scope)] = scope
            try:
                return await self._runtime.carry_out(order, outlet)
            finally:
                del self._open[id(scope)]
        return Ending("failed", self._why)
