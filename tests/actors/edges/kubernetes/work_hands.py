"""The writes of controllers and drivers during an outage, and the watches' rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from ebbtide.actors.edges.kubernetes.work_view import VOLUMES_PATH
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, pod

SEEN = ["list", "watch"]
#: The watches' minimal rights; the tests that pass with them keep them minimal.
WORK_RULES = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumes"], "verbs": SEEN},
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments"], "verbs": SEEN},
]
DRIVER = "csi.example.test"
HOLD = "example.test/hold"


class Hands:
    """Acts as controllers, kubelets and drivers. ``made``: paths to delete at the end."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.api, self.made = bed, bed.api, list[str]()

    async def pod(self, name: str, node: str = "", owner: str = "", **spec: Any) -> str:
        """A finalizer holds it until the test releases it; returns the UID."""
        body = pod(name, node, **spec)
        body["metadata"]["finalizers"] = [HOLD]
        if owner:
            kind, _, called = owner.partition("/")
            by = {"apiVersion": "apps/v1", "kind": kind, "name": called, "uid": owner, "controller": True}
            body["metadata"]["ownerReferences"] = [by]
        self.made.append(f"{PODS}/{name}")
        return str((await self.api.post(PODS, body))["metadata"]["uid"])

    async def release(self, path: str) -> None:
        await self.api.patch(path, {"metadata": {"finalizers": None}})

    async def volume(self, name: str, claim: str = "") -> None:
        spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        spec["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{name}"}
        if claim:
            spec["claimRef"] = {"namespace": "default", "name": claim}
        self.made.append(f"{VOLUMES_PATH}/{name}")
        await self.api.post(VOLUMES_PATH, {"metadata": {"name": name}, "spec": spec})
        await self.api.patch(f"{VOLUMES_PATH}/{name}/status", {"status": {"phase": "Bound"}})

    async def remove(self) -> None:
        for path in self.made:
            with suppress(Refused):  # it is gone
                await self.release(path)
                await self.api.delete(f"{path}?gracePeriodSeconds=0")


@pytest.fixture
async def hands(api_bed: Bed) -> AsyncIterator[Hands]:
    made = Hands(api_bed)
    yield made
    await made.remove()
