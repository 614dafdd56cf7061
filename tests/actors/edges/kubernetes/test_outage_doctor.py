"""``ebbtide outage doctor`` on a real API server, with the shipped roles."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import trio

from ebbtide.actors.edges.kubernetes.work_view import VOLUMES_PATH
from tests.actors.edges.kubernetes.outage_rig import Kubelet, outage
from tests.actors.edges.kubernetes.rights import RBAC
from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, pod

pytestmark = [pytest.mark.node]

STORAGE = "/apis/storage.k8s.io/v1"
PATIENCE_SECONDS = 20.0
DRIVER = "csi.example.test"
#: Of a driver on the node "worker" alone.
OBJECTS: dict[str, Object] = {
    f"{STORAGE}/csidrivers": {"metadata": {"name": DRIVER}, "spec": {"attachRequired": True}},
    f"{STORAGE}/csinodes": {
        "metadata": {"name": "worker"},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": "worker"}]},
    },
    VOLUMES_PATH: {
        "metadata": {"name": "pv-one"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": "handle"},
            "claimRef": {"namespace": "default", "name": "data"},
        },
    },
    PODS: pod("calm", "worker", tolerations=[{"operator": "Exists"}]),
}


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register()
    yield made
    await made.remove()


@pytest.fixture
async def account(api_bed: Bed) -> AsyncIterator[None]:
    """All shipped objects but the pods. The namespace stays: no controller here would delete it."""
    objects = [
        each for each in rendered("outage") if each["kind"] not in ("Deployment", "PodDisruptionBudget")
    ]
    for each in objects:
        try:
            await api_bed.api.post(place(each), each)
        except Refused:
            # Leftovers of an earlier test. Other existing objects are not shipped ones.
            if each["kind"] != "Namespace":
                raise
    # The authorizer follows the store a moment later.
    with trio.fail_after(PATIENCE_SECONDS):
        while "rights" in await found(api_bed):
            pass
    yield
    for each in reversed(objects):
        if each["kind"] != "Namespace":
            await api_bed.api.delete(f"{place(each)}/{each['metadata']['name']}")


async def found(bed: Bed) -> list[str]:
    ran = await outage(bed.kubeconfig, "doctor", "-o", "json")
    assert ran.err == ""
    said = json.loads(ran.out)
    assert said["recoverable"] is (ran.code == 0)
    return [each["code"] for each in said["findings"]]


async def test_what_is_missing(api_bed: Bed, account: None, kubelet: Kubelet) -> None:
    """A right, the policy's binding, a driver on one node only, a pod that tolerates everything."""
    api = api_bed.api
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    binding = await api.get(f"{policies}/ebbtide-outage-only-our-taints")
    role = await api.get(f"{RBAC}/clusterroles/ebbtide-outage")
    neighbour = Kubelet(api_bed, "neighbour")
    await neighbour.register()
    try:
        await api.delete(f"{policies}/ebbtide-outage-only-our-taints")
        rules = [each for each in role["rules"] if "nodes" not in each["resources"]]
        await api.patch(f"{RBAC}/clusterroles/ebbtide-outage", {"rules": rules})
        for path, made in OBJECTS.items():
            await api.post(path, made)
        await api.patch(f"{VOLUMES_PATH}/pv-one/status", {"status": {"phase": "Bound"}})
        # The authorizer and the lists follow a moment later.
        with trio.fail_after(20):
            while "rights" not in (codes := await found(api_bed)):
                pass
        assert codes == [
            "no-leader",
            "rights",
            "policy",
            "same-uuid",
            "no-source",
            "tolerates",
            "driver-nowhere-else",
            "force-detach-timer",
            "no-configuration",
            "may-lose",
            "no-csinode",
        ]
    finally:
        await neighbour.remove()
        for path, made in OBJECTS.items():
            await api.delete(f"{path}/{made['metadata']['name']}?gracePeriodSeconds=0")
        binding["metadata"] = {"name": binding["metadata"]["name"]}
        await api.post(policies, binding)
