"""The warm watch against a real API server: it follows, it goes on, and it says when it cannot."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.calls import ApiCall, list_known_pods
from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes.rig import NODE, Rig, kubeconfig, linked, running
from tests.node.bed import Bed
from tests.node.client import Api
from tests.node.identities import ADMIN, TENANT, kubelet
from tests.node.pods import PODS, pod, static
from tests.node.pods import running as pods_running
from tests.waiting import WATCHDOG_SECONDS, until

pytestmark = [pytest.mark.node]


async def reachable(rig: Rig) -> None:
    await rig.outbox.wait_for(ApiRead, reachable=True)


async def test_static_pods(bed: Bed, tmp_path: Path) -> None:
    """A static pod is found by the UID that the runtime has for it, with its mirror's own for the API."""
    member = bed.members[NODE]
    async with running(bed.kubeconfig, tmp_path) as rig, static(bed, member, pod("still")) as path:
        mirror = await bed.api.get(path)
        uid = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        known = await until(lambda: rig.edge.find(uid), "the pod is known")
        assert known.static
        assert known.api_uid == mirror["metadata"]["uid"] != uid
        assert rig.edge.find_named("default", f"still-{NODE}") is not None


TENANTS = "/api/v1/namespaces/tenants"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenants"


@pytest.fixture
async def tenant(bed: Bed) -> AsyncIterator[Api]:
    """Somebody who may create pods in one namespace, and nothing else anywhere."""
    await bed.api.post("/api/v1/namespaces", {"metadata": {"name": "tenants"}})
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    await bed.api.post(f"{ROLES}/roles", {"metadata": {"name": "makes-pods"}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "makes-pods"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "makes-pods"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": TENANT.user}],
    }
    await bed.api.post(f"{ROLES}/rolebindings", binding)
    yield Api(bed.server, bed.secrets.authority, TENANT.token)
    await bed.api.delete(f"{TENANTS}/pods", {"gracePeriodSeconds": 0})
    await bed.api.delete(TENANTS)


def claiming(name: str, uid: str, node: dict[str, Any]) -> dict[str, Any]:
    """A pod that says in every way in which a kubelet's mirror does it that it is that static pod's."""
    meta = node["metadata"]
    made = pod(name, meta["name"], terminationGracePeriodSeconds=1)
    noted = {"mirror": uid, "hash": uid, "source": "file", "seen": "2026-01-01T00:00:00Z"}
    made["metadata"]["annotations"] = {f"kubernetes.io/config.{key}": value for key, value in noted.items()}
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"], "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


async def test_a_tenants_mirror(bed: Bed, tenant: Api, tmp_path: Path) -> None:
    """Whoever may create pods in a namespace says nothing of a stranger's pod, neither of one that the API
    server has nor of a static one: not in the list, not in the watch, not in a writer's list.
    """
    node, kubelet_name = await bed.api.get(f"/api/v1/nodes/{NODE}"), f"kubelet-{NODE}"
    async with static(bed, bed.members[NODE], pod("still", terminationGracePeriodSeconds=200)) as path:
        (web,) = await pods_running(bed, pod("web", NODE, terminationGracePeriodSeconds=300))
        mirror = await bed.api.get(path)
        uids = web["metadata"]["uid"], mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        # A kubelet deletes what mirrors no pod of its own, within seconds: here it has its time.
        await bed.inside.do("signal", name=kubelet_name, signal_number=signal.SIGSTOP)
        try:
            async with running(bed.kubeconfig, tmp_path / "before") as rig:
                await until(lambda: rig.names() == [f"still-{NODE}", "web"], "the pods are known")
                for name, uid in zip(("a", "b"), uids, strict=True):
                    await tenant.post(f"{TENANTS}/pods", claiming(f"{name}-{NODE}", uid, node))
                # The watch has come so far.
                await bed.api.post(PODS, pod("last", NODE))
                await until(lambda: "last" in rig.names(), "the pods are known")
                seen = [rig.edge.find(uid) for uid in uids]
            async with running(bed.kubeconfig, tmp_path / "after") as rig:
                await until(lambda: "last" in rig.names(), "the pods are known")
                seen += [rig.edge.find(uid) for uid in uids]
                assert rig.names() == ["last", f"still-{NODE}", "web"]
            async with linked(bed.kubeconfig) as link:
                listed = await list_known_pods(ApiCall(link, WATCHDOG_SECONDS, ""), NODE)
        finally:
            await bed.inside.do("signal", name=kubelet_name, signal_number=signal.SIGCONT)
    assert [each and (each.name, each.grace_seconds) for each in seen] == [
        ("web", 300),
        (f"still-{NODE}", 200),
    ] * 2
    assert [listed[uid].name for uid in uids] == ["web", f"still-{NODE}"]


@pytest.mark.parametrize(("client", "taint"), [(ADMIN, True), (kubelet(NODE), False)], ids=["admin", "node"])
async def test_taint(bed: Bed, tmp_path: Path, client: object, taint: bool) -> None:
    """A node's own identity is known not to be allowed to taint, though it may patch its Node."""
    async with running(kubeconfig(tmp_path / "it", bed, client), tmp_path / "state") as rig:
        await reachable(rig)
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True, taint=taint)]


async def test_a_server_that_is_killed(bed: Bed, tmp_path: Path) -> None:
    """A server that is gone for long is said to be, the pods stay known, and its return is noticed soon."""
    await pods_running(bed, pod("one", NODE))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"], "the pods are known")
        await reachable(rig)  # said after the list, when the rights are known too
        await bed.stop("kube-apiserver")
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, reachable=False)
        assert 2.9 <= trio.current_time() - began <= 6
        assert rig.names() == ["one"]
        await bed.start_api()
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, count=2, reachable=True)
        print(f"noticed {trio.current_time() - began:.2f} s after it was ready")
        await pods_running(bed, pod("two", NODE))
        await until(lambda: rig.names() == ["one", "two"], "the pods are known")
    assert [each.reachable for each in rig.outbox.of(ApiRead)] == [True, False, True]
    assert rig.outbox.of(ApiRead)[1].error.startswith("GET /api/v1/pods: ")


async def test_without_the_server_from_the_start(bed: Bed, tmp_path: Path) -> None:
    """What was known before is known again, with the API server gone from the start."""
    (made,) = await pods_running(bed, pod("one", NODE, priorityClassName="system-node-critical"))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"], "the pods are known")
    await bed.stop("kube-apiserver")
    async with running(bed.kubeconfig, tmp_path) as rig:
        known = await until(lambda: rig.edge.find(made["metadata"]["uid"]), "the pod is known")
        assert known.priority == 2_000_001_000
        await rig.outbox.wait_for(ApiRead, reachable=False)
        await bed.start_api()
        await reachable(rig)
        assert rig.names() == ["one"]
