"""A Node without a machine on the real API server. The test acts as its kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.api_calls import LEASES_PATH, Answer
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.outage_events import NodeRead, ReadNode, RemoveTaint, SetQuarantine, SetTaint
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.process.process_bed import Outbox
from tests.commands import Ran, ebbtide
from tests.node.bed import Bed
from tests.node.client import Object

NODES = "/api/v1/nodes"
OTHERS = {"key": "example.test/other", "effect": "NoSchedule"}
UUID = "4C4C4544-0042-3510-8052-B4C04F4D3132"


class Kubelet:
    """Writes like a kubelet. ``uid``: the Node's."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.bed, self.name, self.path = bed, name, f"{NODES}/{name}"
        self.lease_path = f"{LEASES_PATH}/{name}"
        self.uid, self.uuid = "", UUID
        self._beats = 0

    async def register(self, ready: str = "True") -> None:
        spec = {"providerID": f"test://{self.name}", "taints": [OTHERS]}
        made = await self.bed.api.post(NODES, {"metadata": {"name": self.name}, "spec": spec})
        self.uid = made["metadata"]["uid"]
        lease = {"metadata": {"name": self.name}, "spec": {"holderIdentity": self.name}}
        lease["spec"] |= {"leaseDurationSeconds": 40, "renewTime": self._time()}
        await self.bed.api.post(LEASES_PATH, lease)
        await self.report(ready=ready)

    def _time(self) -> str:
        self._beats += 1
        return f"2026-01-01T00:{self._beats // 60:02d}:{self._beats % 60:02d}.000000Z"

    async def renew(self) -> str:
        said = await self.bed.api.patch(self.lease_path, {"spec": {"renewTime": self._time()}})
        return str(said["spec"]["renewTime"])

    async def report(self, boot: str = "boot-1", ready: str = "True") -> str:
        mark = self._time().replace(".000000", "")
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": mark, "lastTransitionTime": mark}
        info = {"bootID": boot, "systemUUID": self.uuid}
        status = {"conditions": [condition], "nodeInfo": info}
        await self.bed.api.patch(f"{self.path}/status", {"status": status})
        return mark

    async def unheard(self) -> None:
        """Write the node lifecycle controller's conditions; keep the heartbeat."""
        found = await self.bed.api.get(self.path)
        (condition,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
        await self.bed.api.patch(
            f"{self.path}/status", {"status": {"conditions": [{**condition, "status": "Unknown"}]}}
        )

    async def taints(self) -> list[Object]:
        found = (await self.bed.api.get(self.path))["spec"].get("taints", [])
        return [each for each in found if not each["key"].startswith("node.kubernetes.io/not-ready")]

    async def annotations(self) -> dict[str, str]:
        return dict((await self.bed.api.get(self.path))["metadata"].get("annotations", {}))

    async def remove(self) -> None:
        await self.bed.api.delete(self.path)
        await self.bed.api.delete(self.lease_path)


@asynccontextmanager
async def nodes(bed: Bed, *names: str, uuid: str = UUID) -> AsyncIterator[list[Kubelet]]:
    """The last one misses no renewal. ``uuid``: the first one's."""
    made = [Kubelet(bed, name) for name in names]
    made[0].uuid = uuid
    for each in made:
        await each.register()
    await bed.api.patch(made[-1].lease_path, {"spec": {"leaseDurationSeconds": 3600}})
    try:
        yield made
    finally:
        with trio.CancelScope(shield=True):
            for each in made:
                await each.remove()


async def outage(rights: Path, *words: str | Path) -> Ran:
    """``ebbtide outage``."""
    return await trio.to_thread.run_sync(partial(ebbtide, "outage", *words, "--kubeconfig", rights))


class Between:
    """A caller with a callback before, or instead of, a request."""

    def __init__(self, caller: ApiClient) -> None:
        self._caller = caller
        #: By method: awaited once before the request.
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        #: Replaces the next PATCH; the callback may send it.
        self.instead: Callable[[Callable[[], Awaitable[Answer]]], Awaitable[Answer]] | None = None
        self.patches = 0

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        if (first := self.before.pop(method, None)) is not None:
            await first()

        async def send() -> Answer:
            return await self._caller.call(method, path, **fields)

        if method == "PATCH":
            self.patches += 1
            instead, self.instead = self.instead, None
            if instead is not None:
                return await instead(send)
        return await send()


class Hand:
    """The edge of one Node, and its facts."""

    def __init__(self, link: ApiClient, view: ClusterView, kubelet: Kubelet) -> None:
        self.caller, self.kubelet, self.outbox = Between(link), kubelet, Outbox()
        self.view = view
        self.edge = NodeEdge(self.caller, view, kubelet.name, kubelet.uid)
        self._orders = 0

    async def do(self, order: Order) -> Ending:
        effect: Any = self.edge.effects[type(order)]
        ended = await effect(order, self.outbox)
        assert isinstance(ended, Ending)
        return ended

    def _key(self) -> str:
        self._orders += 1
        return f"OutageActor/order//{self._orders}"

    async def read(self) -> Ending:
        return await self.do(ReadNode(key=self._key()))

    def last(self) -> NodeRead:
        return self.outbox.of(NodeRead)[-1]

    def taint(self, **fields: Any) -> SetTaint:
        """An actor's order after the last report; ``fields`` override it."""
        read = self.last()
        said: dict[str, Any] = {
            "node": self.kubelet.name,
            "node_uid": read.uid,
            "boot_id": read.boot_id,
            "resource_version": read.resource_version,
            "effect": "NoExecute",
            "ready": read.ready,
            "lease_mark": read.lease_mark,
            "status_mark": read.status_mark,
        }
        return SetTaint(**{"key": self._key()} | said | fields)

    def untaint(self) -> RemoveTaint:
        return RemoveTaint(key=self._key(), node=self.kubelet.name, node_uid=self.kubelet.uid)

    def quarantine(self) -> SetQuarantine:
        return SetQuarantine(key=self._key(), node=self.kubelet.name, node_uid=self.kubelet.uid)


@asynccontextmanager
async def asking(rights: Path, kubelet: Kubelet) -> AsyncIterator[Hand]:
    """An edge without watches: it knows only its own reads."""
    async with linked(rights) as link:
        hand = Hand(link, ClusterView(), kubelet)
        assert await hand.read() == Ending()
        yield hand
