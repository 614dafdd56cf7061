"""Other remediators' objects on a real API server, written as they write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.node_view import (
    ClusterView,
)
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from ebbtide.actors.edges.proof_sources.remediators import (
    CLUSTER_API,
    KINDS,
    MACHINES,
    NODE_NAME_ANNOTATION,
    Machines,
    Remediations,
    RemediatorSource,
)
from tests.actors.edges.kubernetes.outage_rig import Kubelet
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import CLUSTER_RULES, LEASE_RULES, granted
from tests.actors.edges.kubernetes.test_outage_program import rights as running_rights
from tests.node.bed import Bed
from tests.node.client import Object

__all__ = ["running_rights"]

pytestmark = [pytest.mark.node]

FAR, _ = KINDS
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNT = "ebbtide-sees-remediators"
LIST_RULES = [
    {"apiGroups": [path.split("/")[2]], "resources": [path.split("/")[4]], "verbs": ["list"]}
    for path, _ in KINDS.values()
] + [{"apiGroups": ["cluster.x-k8s.io"], "resources": ["machines"], "verbs": ["get"]}]
LISTED = {name: path for name, (path, _) in KINDS.items()} | {CLUSTER_API: f"{MACHINES}/machines"}
SERVED_SECONDS_MAX = 20.0
NOT_YET = Said("unknown", error="it has not fenced the machine yet")


def definition(path: str, kind: str) -> Object:
    """With a status of its own, as the operators install it; fields as they come."""
    _, _, group, version, plural = path.split("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


class Remediator:
    """What the operator of one kind does."""

    def __init__(self, bed: Bed, name: str, kind: str) -> None:
        self.bed, self.kind = bed, kind
        self.listed = LISTED[name]
        group = self.listed.rpartition("/")[0]
        self.path = f"{group}/namespaces/default/{self.listed.rpartition('/')[2]}"
        self._group = group.removeprefix("/apis/")

    async def install(self) -> None:
        made = definition(self.listed, self.kind)
        await self.bed.api.post(DEFINITIONS, made)
        with trio.fail_after(SERVED_SECONDS_MAX):
            while True:
                try:
                    await self.bed.api.get(self.listed)
                    return
                except Exception:  # not served yet
                    await trio.sleep(0.1)

    async def uninstall(self) -> None:
        _, _, group, _, plural = self.listed.split("/")
        await self.bed.api.delete(f"{DEFINITIONS}/{plural}.{group}")

    async def begin(self, name: str, node: str = "", finalizer: str = "") -> None:
        meta: Object = {"name": name, "finalizers": [finalizer] if finalizer else []}
        if node:
            meta["annotations"] = {NODE_NAME_ANNOTATION: node}
        await self.bed.api.post(
            self.path, {"apiVersion": self._group, "kind": self.kind, "metadata": meta, "spec": {}}
        )

    async def says(self, name: str, **status: object) -> None:
        await self.bed.api.patch(f"{self.path}/{name}/status", {"status": status})


@asynccontextmanager
async def installed(bed: Bed, name: str, kind: str) -> AsyncIterator[Remediator]:
    made = Remediator(bed, name, kind)
    await made.install()
    try:
        yield made
    finally:
        with trio.CancelScope(shield=True):
            await made.uninstall()


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    rules = [*CLUSTER_RULES, *LIST_RULES]
    return await granted(api_bed, ACCOUNT, [], rules, {"kube-node-lease": LEASE_RULES})


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register(ready="Unknown")
    yield made
    await made.remove()


@asynccontextmanager
async def asking(
    rights: Path, kubelet: Kubelet, name: str
) -> AsyncIterator[tuple[RemediatorSource, ClusterView]]:
    async with linked(rights) as link, trio.open_nursery() as nursery:
        view = ClusterView()
        nursery.start_soon(view.run, link)
        await view.listed()
        made = Machines(link, view) if name == CLUSTER_API else Remediations(link, name)
        yield RemediatorSource(made, view, kubelet.name), view
        nursery.cancel_scope.cancel()


def machine(kubelet: Kubelet, boot: str = "boot-1") -> Machine:
    return Machine(kubelet.name, kubelet.uid, boot, "", "")


CONDITION = "FenceAgentActionSucceeded"


async def test_a_fence_agent_that_has_succeeded(rights: Path, kubelet: Kubelet, api_bed: Bed) -> None:
    """While we looked on. Not one that has not yet, nor another node's, nor one that is being deleted."""
    off = Said("off", "nodeUID", kubelet.uid)
    async with asking(rights, kubelet, FAR) as (source, _):
        # Not installed at all, and so it stays for a minute.
        assert await source.read(machine(kubelet)) is None
    async with (
        installed(api_bed, FAR, "FenceAgentsRemediation") as far,
        asking(rights, kubelet, FAR) as (source, _),
    ):
        assert await source.read(machine(kubelet)) is None
        await far.begin("other")
        await far.says("other", conditions=[{"type": CONDITION, "status": "True"}])
        assert await source.read(machine(kubelet)) is None
        await far.begin(kubelet.name, finalizer="medik8s.io/test")
        for said in ("Unknown", "False"):
            await far.says(kubelet.name, conditions=[{"type": CONDITION, "status": said}])
            assert await source.read(machine(kubelet)) == NOT_YET
        await far.says(kubelet.name, conditions=[{"type": CONDITION, "status": "True"}])
        assert await source.read(machine(kubelet)) == off
        assert await source.read(machine(kubelet)) == off
        await api_bed.api.delete(f"{far.path}/{kubelet.name}")
        assert await source.read(machine(kubelet)) is None
        await api_bed.api.patch(f"{far.path}/{kubelet.name}", {"metadata": {"finalizers": None}})
