"""Node and pod statuses without an API server: ``node.json`` in the state directory has the node's Ready
condition and the last shutdown's final statuses, in the Kubernetes API's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import trio

from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.events.base import Order
from ebbtide.events.decisions import AnnounceNode, DeliverStatuses
from ebbtide.events.files import read_own, write_atomically

FILE_NAME = "node.json"


class Condition(msgspec.Struct, kw_only=True):
    type: str = "Ready"
    status: str = "True"
    reason: str = "KubeletReady"
    message: str = ""


class PodStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    uid: str
    phase: str
    reason: str = ""
    message: str = ""


class NodeObject(msgspec.Struct, kw_only=True):
    kind: str = "Node"
    conditions: list[Condition]
    pods: dict[str, PodStatus]


class LocalStatusEdge(Edge):
    def __init__(self, state_dir: Path) -> None:
        """Raises OSError when the folder cannot be made."""
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = state_dir / FILE_NAME
        self.node = NodeObject(conditions=[Condition()], pods={})
        with suppress(OSError, ValueError):  # what msgspec raises is a ValueError, and so is bad UTF-8
            self.node = msgspec.json.decode(read_own(self._path), type=NodeObject)
        self._lock = trio.Lock()
        self.effects: Mapping[type[Order], Effect] = {
            AnnounceNode: self._announce,
            DeliverStatuses: self._deliver,
        }

    async def run(self, outlet: Outlet) -> None:
        """No other process changes the file."""
        await trio.sleep_forever()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Both effects may be repeated."""
        if isinstance(order, AnnounceNode):
            return await self._announce(order, outlet)
        return await self._deliver(order, outlet) if isinstance(order, DeliverStatuses) else None

    async def _announce(self, order: AnnounceNode, outlet: Outlet) -> Ending:
        condition = Condition(message=order.message)
        if not order.ready:
            condition.status, condition.reason = "False", order.reason
        return await self._change(lambda node: setattr(node, "conditions", [condition]))

    async def _deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        new = {
            uid: PodStatus(uid=uid, phase=phase, reason=reason, message=message)
            for uid, phase, reason, message, *_ in order.statuses
        }
        return await self._change(lambda node: node.pods.update(new))

    async def _change(self, change: Callable[[NodeObject], None]) -> Ending:
        """One after another, in a thread: it waits for the disk."""
        async with self._lock:
            # Kept even if the write fails: the next write has it too.
            change(self.node)
            data = msgspec.json.format(msgspec.json.encode(self.node), indent=2) + b"\n"
            try:
                await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)
            except OSError as error:
                return Ending("failed", f"{self._path}: {error.strerror}")
        return Ending()

    def _write(self, data: bytes) -> None:
        write_atomically(self._path, data, sync=True)
