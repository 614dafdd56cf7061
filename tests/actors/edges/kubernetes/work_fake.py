"""An API server in memory for watches: versions, events, breaks, and forgotten places."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import LEASES_PATH, NODES_PATH, Answer, Unanswered
from ebbtide.actors.edges.kubernetes.api_client import LineStream
from ebbtide.actors.edges.kubernetes.api_watch import LIVENESS_PATH
from ebbtide.actors.edges.kubernetes.node_view import OUT_OF_SERVICE
from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, PODS_PATH, VOLUMES_PATH

Object = dict[str, Any]
PATHS = (PODS_PATH, ATTACHMENTS_PATH, VOLUMES_PATH, NODES_PATH, LEASES_PATH)


def pod(name: str, node: str = "", uid: str = "", **fields: Any) -> Object:
    """``owner``: its controller as ``Kind/name``. ``meta``, ``spec``, ``status``: more fields."""
    meta: Object = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    if owner := fields.get("owner"):
        kind, _, called = owner.partition("/")
        by = {"apiVersion": "apps/v1", "kind": kind, "name": called, "uid": owner, "controller": True}
        meta["ownerReferences"] = [{"kind": "Other", "name": "o", "uid": "o"}, by]
    spec = {"nodeName": node} if node else {}
    return {
        "metadata": meta | fields.get("meta", {}),
        "spec": spec | fields.get("spec", {}),
        "status": fields.get("status", {"phase": "Running"}),
    }


def ready(status: str = "True", **fields: Any) -> Object:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": status, **fields}]}


def tolerating(**fields: Any) -> Object:
    return {"tolerations": [{"key": OUT_OF_SERVICE, "operator": "Exists", **fields}]}


def attachment(name: str, node: str = "worker", error: Object | None = None, **meta: Any) -> Object:
    """``error``: ``detachError``."""
    finalizers = {"finalizers": ["external-attacher/csi-example-test"]}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **finalizers, **meta},
        "spec": {
            "attacher": "csi.example.test",
            "nodeName": node,
            "source": {"persistentVolumeName": f"pv-{name}"},
        },
        "status": {"attached": True} | ({"detachError": error} if error is not None else {}),
    }


def volume(name: str, claim: str = "", phase: str = "Bound", **spec: Any) -> Object:
    """``claim``: the claim's name."""
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def csi(handle: str) -> Object:
    return {"csi": {"driver": "csi.example.test", "volumeHandle": handle}}


class Server:
    """``objects`` by path and name. `cut` ends all watches; places before ``forgotten`` are gone."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {path: {} for path in PATHS}
        self.version = 1
        self.forgotten = 0
        self.reachable = True
        self._events: list[tuple[int, str, bytes]] = []
        self._news = trio.Event()
        self._cuts = 0

    # --- what a test does

    def put(self, path: str, made: Object) -> None:
        meta = made["metadata"]
        name = meta.get("uid", meta["name"])
        what = "MODIFIED" if name in self.objects[path] else "ADDED"
        self.objects[path][name] = made
        self._say(path, what, made)

    def remove(self, path: str, name: str) -> None:
        self._say(path, "DELETED", self.objects[path].pop(name))

    def pod(self, made: Object) -> None:
        self.put(PODS_PATH, made)

    def attach(self, made: Object) -> None:
        self.put(ATTACHMENTS_PATH, made)

    def cut(self) -> None:
        self._cuts += 1
        self._wake()

    def forget(self) -> None:
        """Forget every place: watchers must list again."""
        self.forgotten = self.version = self.version + 1
        self.cut()

    def _say(self, path: str, what: str, made: Object) -> None:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        line = msgspec.json.encode({"type": what, "object": made}) + b"\n"
        self._events.append((self.version, path, line))
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # --- what it answers

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        await trio.sleep(0.01)
        if not self.reachable:
            raise Unanswered("nobody is there")
        if path == LIVENESS_PATH:
            return Answer(200)
        items = list(self.objects[urlsplit(path).path].values())
        body = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        return Answer(200, msgspec.json.encode(body))

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[LineStream]:
        await trio.sleep(0.01)
        if not self.reachable:
            raise Unanswered("nobody is there")
        where, query = urlsplit(path).path, dict(parse_qsl(urlsplit(path).query))
        since, cuts = int(query["resourceVersion"]), self._cuts

        async def read() -> bytes:
            nonlocal since
            while True:
                if self._cuts != cuts or not self.reachable:
                    raise Unanswered("the connection was lost")
                lines = [line for at, of, line in self._events if of == where and at > since]
                since = self.version
                if lines:
                    return b"".join(lines)
                await self._news.wait()

        yield LineStream(
            410 if since < self.forgotten else 200, read if since >= self.forgotten else _nothing
        )


async def _nothing() -> bytes:
    await trio.lowlevel.checkpoint()
    return b""
