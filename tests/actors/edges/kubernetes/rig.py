"""The edge beside a real API server, and a wire that a test can cut, stop or move."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_edge import KubernetesEdge
from tests.actors.edges.process.process_bed import Outbox
from tests.node.bed import Bed
from tests.node.identities import Client
from tests.node.parts import API_PORT

NODE = "node-1"


@contextlib.asynccontextmanager
async def linked(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    """Our client for this kubeconfig."""
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        yield link
        nursery.cancel_scope.cancel()


class Rig:
    """A running edge. ``told`` has its log lines."""

    def __init__(self, kubeconfig: Path | None, folder: Path, manifests: Path | None = None) -> None:
        self.outbox = Outbox()
        self.told: list[str] = []
        self.edge = KubernetesEdge(
            kubeconfig, NODE, folder, manifests=manifests, tell=lambda level, line: self.told.append(line)
        )

    def names(self) -> list[str]:
        return sorted(each.name for each in self.edge.pods.pods())


@contextlib.asynccontextmanager
async def running(kubeconfig: Path | None, folder: Path, manifests: Path | None = None) -> AsyncIterator[Rig]:
    rig = Rig(kubeconfig, folder, manifests)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        rig.edge.prewarm()
        yield rig
        nursery.cancel_scope.cancel()


class Wire:
    """A local port that leads to the API server. ``server`` is its address for a kubeconfig."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.server = bed, ""
        #: Unset: drop all bytes silently.
        self.open = trio.Event()
        self.open.set()
        self._ends: list[trio.CancelScope] = []

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.server = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, listeners)
            task_status.started()

    async def _serve(self, outer: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with outer, await self.bed.connect("127.0.0.1", API_PORT) as inner:
                with trio.CancelScope() as scope:
                    self._ends.append(scope)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._pump, outer, inner, scope)
                        await self._pump(inner, outer, scope)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, end: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for piece in source:
                await self.open.wait()
                await sink.send_all(piece)
        end.cancel()

    def block(self) -> None:
        """Drop bytes from now on, as a firewall does."""
        self.open = trio.Event()

    def cut(self) -> None:
        """Every connection ends, once."""
        for each in self._ends:
            each.cancel()
        self._ends.clear()


@contextlib.asynccontextmanager
async def wire(bed: Bed) -> AsyncIterator[Wire]:
    made = Wire(bed)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        yield made
        nursery.cancel_scope.cancel()


def kubeconfig(path: Path, bed: Bed, client: Client, server: str = "", **user: Any) -> Path:
    """This client's kubeconfig; ``user`` replaces its token."""
    document = json.loads(
        bed.secrets.kubeconfig(client, server or bed.server, f"{path.stem}-base").read_text()
    )
    if user:
        document["users"][0]["user"] = user
    written = path.with_suffix(".new")
    written.write_text(json.dumps(document))
    written.rename(path)
    return path
