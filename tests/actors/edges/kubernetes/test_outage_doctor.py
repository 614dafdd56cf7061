"""``ebbtide outage doctor`` on a real API server, with the shipped roles and a real source."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.actors.edges.kubernetes.outage_rig import UUID, Kubelet
from tests.actors.edges.kubernetes.rights import RBAC
from tests.actors.edges.kubernetes.work_hands import Hands, hands
from tests.beds.bmc import RedfishEmulator, redfish_emulator
from tests.beds.skipping import or_skip
from tests.commands import Ran, ebbtide
from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import Refused

__all__ = ["hands"]

pytestmark = [pytest.mark.node, pytest.mark.backend]

OURS, NEIGHBOUR = UUID.lower(), "99999999-9999-4999-8999-999999999999"
STORAGE = "/apis/storage.k8s.io/v1"
PATIENCE_SECONDS = 20.0


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[RedfishEmulator]:
    with (
        or_skip(),
        redfish_emulator(tmp_path, {OURS: "worker", NEIGHBOUR: "another"}, on_change=print) as made,
    ):
        yield made


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


def configuration(folder: Path, bmc: RedfishEmulator, **fields: Any) -> Path:
    written = folder / "outage.yaml"
    secrets = {"usernameFile": "username_file", "passwordFile": "password_file"}
    redfish = {"address": bmc.url, "certificate": str(bmc.ca_file)}
    redfish |= {name: str(bmc.secrets[key]) for name, key in secrets.items()}
    pool = {"name": "rack", "redfish": redfish | fields}
    document = {"apiVersion": "ebbtide/v1alpha1", "kind": "OutageConfiguration", "pools": [pool]}
    written.write_text(json.dumps(document))
    return written


async def doctor(bed: Bed, *arguments: str | Path, rights: Path | None = None) -> Ran:
    words: tuple[str | Path, ...] = ("outage", "doctor", *arguments, "--kubeconfig", rights or bed.kubeconfig)
    return await trio.to_thread.run_sync(partial(ebbtide, *words))


async def found(bed: Bed, *arguments: str | Path, rights: Path | None = None) -> list[str]:
    ran = await doctor(bed, *arguments, "-o", "json", rights=rights)
    assert ran.err == ""
    said = json.loads(ran.out)
    assert said["recoverable"] is (ran.code == 0)
    return [each["code"] for each in said["findings"]]


async def test_what_is_missing(
    api_bed: Bed, account: None, kubelet: Kubelet, hands: Hands, bmc: RedfishEmulator, tmp_path: Path
) -> None:
    """A right, the policy's binding, a driver on one node only, a pod that tolerates everything."""
    config, api = configuration(tmp_path, bmc), api_bed.api
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    binding = await api.get(f"{policies}/ebbtide-outage-only-our-taints")
    role = await api.get(f"{RBAC}/clusterroles/ebbtide-outage")
    neighbour = Kubelet(api_bed, "neighbour")
    await neighbour.register()
    try:
        await api.delete(f"{policies}/ebbtide-outage-only-our-taints")
        rules = [each for each in role["rules"] if "nodes" not in each["resources"]]
        await api.patch(f"{RBAC}/clusterroles/ebbtide-outage", {"rules": rules})
        everything = [{"operator": "Exists"}]
        await hands.pod("calm", "worker", "StatefulSet/calm", tolerations=everything)
        await hands.volume("pv-one", claim="data")
        driver = {"name": "csi.example.test"}
        hands.made += [f"{STORAGE}/csidrivers/csi.example.test", f"{STORAGE}/csinodes/worker"]
        await api.post(f"{STORAGE}/csidrivers", {"metadata": driver, "spec": {"attachRequired": True}})
        on_node = {"drivers": [{**driver, "nodeID": "worker"}]}
        await api.post(f"{STORAGE}/csinodes", {"metadata": {"name": "worker"}, "spec": on_node})
        # The authorizer and the lists follow a moment later.
        with trio.fail_after(20):
            while "rights" not in (codes := await found(api_bed, "--config", config)):
                pass
        assert codes == [
            "no-leader",
            "rights",
            "policy",
            "same-uuid",
            "tolerates",
            "driver-nowhere-else",
            "force-detach-timer",
            "may-lose",
            "no-csinode",
        ]
    finally:
        await neighbour.remove()
        binding["metadata"] = {"name": binding["metadata"]["name"]}
        await api.post(policies, binding)
