"""What hangs on a node, on a real API server: with exactly the rights that are documented, and whatever
happens to watches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from ebbtide.actors.edges.kubernetes.work_edge import WorkEdge
from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, VOLUMES_PATH, WorkView
from ebbtide.actors.interfaces import Ending
from ebbtide.events.outage import (
    Attachment,
    AttachmentGone,
    AttachmentRead,
    ElsewhereRead,
    ListWork,
    LostPod,
    LostPodGone,
    LostPodRead,
    WorkListed,
)
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.process.process_bed import Outbox
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, pod
from tests.waiting import until

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-work"
SEEN = ["list", "watch"]
#: What the watches need, and nothing else: kept by the tests that pass with it.
WORK_RULES = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumes"], "verbs": SEEN},
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments"], "verbs": SEEN},
]
DRIVER = "csi.example.test"
HOLD = "example.test/hold"
NODE, OTHER = "worker", "worker-2"
BACK_SECONDS_MAX = 60.0


class Hands:
    """What controllers, kubelets and drivers write. ``made`` are the paths that go at the end."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.api, self.made = bed, bed.api, list[str]()

    async def pod(self, name: str, node: str = "", owner: str = "", **spec: Any) -> str:
        """Held by a finalizer, so that it goes when a test says so; its UID."""
        body = pod(name, node, **spec)
        body["metadata"]["finalizers"] = [HOLD]
        if owner:
            kind, _, called = owner.partition("/")
            by = {"apiVersion": "apps/v1", "kind": kind, "name": called, "uid": owner, "controller": True}
            body["metadata"]["ownerReferences"] = [by]
        self.made.append(f"{PODS}/{name}")
        return str((await self.api.post(PODS, body))["metadata"]["uid"])

    async def bind(self, name: str, node: str) -> None:
        await self.api.post(
            f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        )

    async def status(self, name: str, **status: Any) -> None:
        await self.api.patch(f"{PODS}/{name}/status", {"status": status})

    async def ready(self, name: str) -> None:
        await self.status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])

    async def delete(self, name: str) -> None:
        """Its deletion is asked for."""
        await self.api.delete(f"{PODS}/{name}?gracePeriodSeconds=30")

    async def release(self, path: str) -> None:
        """Nothing holds it any more, so that it goes."""
        await self.api.patch(path, {"metadata": {"finalizers": None}})

    async def gone(self, name: str) -> None:
        await self.release(f"{PODS}/{name}")
        await self.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")

    async def volume(self, name: str, claim: str = "") -> None:
        spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        spec["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{name}"}
        if claim:
            spec["claimRef"] = {"namespace": "default", "name": claim}
        self.made.append(f"{VOLUMES_PATH}/{name}")
        await self.api.post(VOLUMES_PATH, {"metadata": {"name": name}, "spec": spec})
        await self.api.patch(f"{VOLUMES_PATH}/{name}/status", {"status": {"phase": "Bound"}})

    async def attach(self, name: str, node: str = NODE) -> None:
        finalizers = [f"external-attacher/{DRIVER.replace('.', '-')}"]
        source = {"persistentVolumeName": f"pv-{name}"}
        self.made.append(f"{ATTACHMENTS_PATH}/{name}")
        await self.api.post(
            ATTACHMENTS_PATH,
            {
                "metadata": {"name": name, "finalizers": finalizers},
                "spec": {"attacher": DRIVER, "nodeName": node, "source": source},
            },
        )

    async def refuse(self, name: str, message: str) -> None:
        error = {"message": message, "time": "2026-01-01T00:00:00Z"}
        await self.api.patch(
            f"{ATTACHMENTS_PATH}/{name}/status", {"status": {"attached": True, "detachError": error}}
        )

    async def remove(self) -> None:
        for path in self.made:
            with suppress(Refused):  # it is gone
                await self.release(path)
                await self.api.delete(f"{path}?gracePeriodSeconds=0")


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, [], WORK_RULES)


@pytest.fixture
async def hands(api_bed: Bed) -> AsyncIterator[Hands]:
    made = Hands(api_bed)
    yield made
    await made.remove()


class Told:
    """An edge of `NODE` that runs, with the watches behind it."""

    def __init__(self, view: WorkView) -> None:
        self.view, self.edge, self.outbox = view, WorkEdge(view, NODE), Outbox()

    async def list(self) -> WorkListed:
        before = len(self.outbox.facts)
        effect: Any = self.edge.effects[ListWork]
        with trio.fail_after(BACK_SECONDS_MAX):
            assert await effect(ListWork(key="k", node=NODE), self.outbox) == Ending()
        listed = self.outbox.facts[before]
        assert isinstance(listed, WorkListed)
        return listed

    async def hears(self, fact: Any, seconds: float = 20.0) -> None:
        await until(lambda: fact in self.outbox.facts, "FACT")


@asynccontextmanager
async def seeing(rights: Path) -> AsyncIterator[Told]:
    async with linked(rights) as link, trio.open_nursery() as nursery:
        told = Told(WorkView())
        nursery.start_soon(told.view.run, link)
        nursery.start_soon(told.edge.run, told.outbox)
        yield told
        nursery.cancel_scope.cancel()


def lost(uid: str, name: str, **fields: Any) -> LostPod:
    return LostPod(uid=uid, namespace="default", name=name, finalizers=(HOLD,), **fields)


OF_DB = {"owner_uid": "StatefulSet/db", "owner": "StatefulSet/db", "same_name": True}
CLAIM = {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data-db-0"}}]}


async def test_an_outage_from_list_to_end(rights: Path, hands: Hands) -> None:
    """A StatefulSet's pod with its volume, a Deployment's and a bare one, beside what is not to be told."""
    await hands.volume("pv-va", "data-db-0")
    db = await hands.pod("db-0", NODE, "StatefulSet/db", **CLAIM)
    web = await hands.pod("web-a", NODE, "ReplicaSet/web")
    there = await hands.pod("web-b", OTHER, "ReplicaSet/web")
    bare = await hands.pod("bare", NODE, tolerations=[{"operator": "Exists"}])
    await hands.pod("done", NODE, "Job/once")
    await hands.status("done", phase="Succeeded")
    await hands.attach("va")
    await hands.attach("va-2", OTHER)
    async with seeing(rights) as told:
        va = Attachment(
            name="va", volume="pv-va", driver=DRIVER, unique_name=f"kubernetes.io/csi/{DRIVER}^handle-pv-va"
        )
        lost_db = lost(db, "db-0", volumes=("pv-va",), **OF_DB)
        assert await told.list() == WorkListed(
            key="k",
            pods=(
                lost(bare, "bare", tolerates=True),
                lost_db,
                lost(web, "web-a", owner_uid="ReplicaSet/web", owner="ReplicaSet/web"),
            ),
            attachments=(va,),
            elsewhere={"ReplicaSet/web": (there,)},
        )
        await hands.delete("db-0")
        await told.hears(LostPodRead(pod=msgspec.structs.replace(lost_db, terminating=True)))
        await hands.gone("db-0")
        await told.hears(LostPodGone(uid=db))

        await hands.api.delete(f"{ATTACHMENTS_PATH}/va")
        deleting = msgspec.structs.replace(va, deleting=True)
        await told.hears(AttachmentRead(attachment=deleting))
        await hands.refuse("va", "rpc error: code = Internal desc = the array says: token=secret")
        refused = msgspec.structs.replace(deleting, error="its driver refuses: INTERNAL")
        await told.hears(AttachmentRead(attachment=refused))

        again = await hands.pod("db-0", "", "StatefulSet/db", **CLAIM)
        new = ElsewhereRead(uid=again, namespace="default", name="db-0", owner_uid="StatefulSet/db")
        await told.hears(msgspec.structs.replace(new, waiting="a new pod is not Ready: no node yet"))
        said = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "x: Too many pods",
            }
        ]
        await hands.status("db-0", phase="Pending", conditions=said)
        why = "a new pod is not Ready: Unschedulable: Too many pods"
        await told.hears(msgspec.structs.replace(new, waiting=why))
        await hands.bind("db-0", OTHER)
        await hands.release(f"{ATTACHMENTS_PATH}/va")
        await told.hears(AttachmentGone(name="va"))
        await hands.ready("db-0")
        await told.hears(msgspec.structs.replace(new, node=OTHER, ready=True))
        about = {getattr(fact, "uid", "") for fact in told.outbox.of(ElsewhereRead)}
        assert about == {again}
        assert "secret" not in str(told.outbox.facts)
