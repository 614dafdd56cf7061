"""The CRI edge: pods of a Kubernetes node, ended over the container runtime's own socket.

This much is there from the start of the process, and it is light. The rest, with gRPC, is imported when
the node is armed (or when a shutdown that already runs needs it), in a thread, so that nothing stands
between the start and the lock. If it cannot be imported, or fails, the daemon goes on: the runtime counts
as away, orders fail with the reason, and it is tried again. See docs/cri.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ebbtide.actors.edges.cri.cri_pods import inventory_file, table_file
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.interfaces import WARNING, Effect, Ending, Outlet, Tell, TraceContext, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy, TakeInventory
from ebbtide.events.facts import RuntimeRead
from ebbtide.events.values import Pod

if TYPE_CHECKING:
    from ebbtide.actors.edges.cri.cri_runtime import Runtime
    from ebbtide.actors.edges.kubernetes.known_pods import FollowedPods


ORDERS = (SendSignal, KillContainer, TakeAutopsy, RunHook, TakeInventory)
#: Before each next attempt to wake up: soon, a shutdown may run; at last rarely, as for a package that is
#: missing. What lived longer than the last of them begins anew.
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
AWAKE = "ebbtide.actors.edges.cri.cri_runtime"


class CriEdge:
    """Carries signals, kills, hooks, autopsies and inventories out through CRI.

    ``endpoint`` is the runtime's socket as a gRPC target (``unix:///run/containerd/containerd.sock``);
    ``state_dir`` belongs on a file system that goes with the boot; ``own_uid`` is the pod that this daemon
    runs in, where its cgroup does not show it; ``lookup`` is asked for what no runtime knows of a pod, and
    for all of them while the runtime is away; ``starts``: does somebody start pods here, so that one that is
    here and does not run yet may; ``tell`` takes what an operator has to know, with its
    sd-daemon(3) level. Raises OSError when the folder cannot be made.
    """

    def __init__(
        self,
        endpoint: str,
        state_dir: Path,
        *,
        own_uid: str = "",
        lookup: FollowedPods | None = None,
        starts: Callable[[], bool] = lambda: False,
        tell: Tell = lambda level, line: None,
    ) -> None:
        self._endpoint = endpoint
        boot_id = proc.boot_id_with_dashes()
        self._file, self._kept = inventory_file(state_dir, boot_id), table_file(state_dir, boot_id)
        self._own_uid = own_uid
        self._lookup = lookup
        self._starts = starts
        self._tell = tell
        self._context: TraceContext = lambda order_key: ""
        self._wanted = trio.Event()
        #: An attempt to wake up has its outcome: there is a runtime, or a reason.
        self._tried = trio.Event()
        self._why = ""
        self._open: dict[int, trio.CancelScope] = {}
        self._runtime: Runtime | None = None
        self.effects: Mapping[type[Order], Effect] = dict.fromkeys(ORDERS, self._carry_out)

    async def run(self, outlet: Outlet) -> None:
        """Follow the runtime until cancelled, which ends no container."""
        await self._wanted.wait()
        # gRPC's handlers at a fork wait for threads that the child does not have.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        failures = 0
        while True:
            began = trio.current_time()
            try:
                # Import, connect, follow. Raises whatever any of it does.
                invalidate_caches()
                module = await trio.to_thread.run_sync(import_module, AWAKE)
                made: Any = module.Runtime(
                    self._endpoint,
                    self._file,
                    self._kept,
                    self._own_uid,
                    self._lookup,
                    self._starts,
                    self._trace,
                    self._tell,
                    outlet,
                )
                async with trio.open_nursery() as nursery:
                    await nursery.start(made.run)
                    self._runtime, self._why = made, ""
                    self._tried.set()
            except Exception as error:
                failures = 1 if trio.current_time() - began > RETRY_SECONDS[-1] else failures + 1
                # Said once for each reason; an order that is open ends with it.
                why, self._runtime = f"the runtime's client does not work: {error_text(error)}", None
                news, self._why = why != self._why, why
                self._tried.set()
                for scope in list(self._open.values()):
                    scope.cancel()
                if news:
                    self._tell(WARNING, f"container runtime: {why}; no pod can be stopped over CRI")
                    await outlet.put(RuntimeRead(reachable=False, error=why))
            await trio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1])

    def prewarm(self) -> None:
        """Armed: import gRPC, connect, and fill the table."""
        self._wanted.set()

    def detach(self) -> None:
        """Nothing here kills when it is cancelled: a stop that is under way goes on in the runtime."""

    def pass_on(self, context: TraceContext) -> None:
        """Give every call that an order makes from now on the trace context of that order."""
        self._context = context

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""
        return self._runtime.active() if self._runtime is not None else []

    async def rest(self) -> None:
        """Return once nothing is being cleaned up any more; ``starts`` has said before that pods start."""
        if self._runtime is not None:
            await self._runtime.rest()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A hook that was open is spent: its exec went with the daemon's connection. The rest is repeated.

        But for a stop signal, which the core gives again: once more than it was given, and not twice.
        """
        lost = isinstance(order, RunHook | SendSignal)
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

    def _trace(self, order_key: str) -> str:
        return self._context(order_key)
