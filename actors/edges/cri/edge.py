"""The CRI edge: pods of a Kubernetes node, ended over the container runtime's own socket.

This much is there from the start of the process, and it is light. The rest, with gRPC, is imported when
the node is armed (or when a shutdown that already runs needs it), in a thread, so that nothing stands
between the start and the lock. See docs/cri.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from actors.edges.cri.record import ToldFile
from actors.edges.process import proc
from actors.interfaces import Effect, Ending, Outlet
from events.base import Order
from events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy, TakeInventory
from events.model import Pod

if TYPE_CHECKING:
    from actors.edges.cri.runtime import Runtime

ORDERS = (SendSignal, KillContainer, TakeAutopsy, RunHook, TakeInventory)
#: What an order of a shutdown that runs already may wait for the imports.
AWAKE_SECONDS_MAX = 10.0


class CriEdge:
    """Carries signals, kills, hooks, autopsies and inventories out through CRI.

    ``endpoint`` is the runtime's socket as a gRPC target (``unix:///run/containerd/containerd.sock``);
    ``state_dir`` belongs on a file system that goes with the boot; ``own_uid`` is the pod that this daemon
    runs in, where its cgroup does not show it; ``tell`` takes what an operator has to know, with its
    sd-daemon(3) level. Raises OSError when the folder cannot be made.
    """

    def __init__(
        self,
        endpoint: str,
        state_dir: Path,
        *,
        own_uid: str = "",
        tell: Callable[[int, str], None] = lambda level, line: None,
    ) -> None:
        self._endpoint = endpoint
        self._file = ToldFile(state_dir, proc.boot_id())
        self._own_uid = own_uid
        self._tell = tell
        self._context: Callable[[str], str] = lambda order_key: ""
        self._wanted = trio.Event()
        self._up = trio.Event()
        self._runtime: Runtime | None = None
        self.effects: Mapping[type[Order], Effect] = dict.fromkeys(ORDERS, self._carry_out)

    async def run(self, outlet: Outlet) -> None:
        """Follow the runtime until cancelled, which ends no container."""
        await self._wanted.wait()
        # gRPC's handlers at a fork wait for threads that the child does not have.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        module = await trio.to_thread.run_sync(import_module, "actors.edges.cri.runtime")
        made: Any = module.Runtime(self._endpoint, self._file, self._own_uid, self._trace, self._tell)
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run, outlet)
            self._runtime = made
            self._up.set()

    def prewarm(self) -> None:
        """Armed: import gRPC, connect, and fill the table."""
        self._wanted.set()

    def detach(self) -> None:
        """Nothing here kills when it is cancelled: a stop that is under way goes on in the runtime."""

    def pass_on(self, context: Callable[[str], str]) -> None:
        """Give every call that an order makes from now on the trace context of that order."""
        self._context = context

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""
        return [pod.view() for pod in self._runtime.table.active()] if self._runtime is not None else []

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A hook that was open is spent: its exec went with the daemon's connection. The rest is repeated."""
        return None if isinstance(order, RunHook) else await self._carry_out(order, outlet)

    async def _carry_out(self, order: Order, outlet: Outlet) -> Ending:
        self._wanted.set()
        with trio.move_on_after(AWAKE_SECONDS_MAX):
            await self._up.wait()
        if self._runtime is None:
            return Ending("failed", "the runtime's client could not be loaded in time")
        return await self._runtime.carry_out(order, outlet)

    def _trace(self, order_key: str) -> str:
        return self._context(order_key)
