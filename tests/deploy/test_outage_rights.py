"""The controller's role and policy with a real token: exactly its calls are permitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from ebbtide.actors.edges.kubernetes.leadership import LEASE
from ebbtide.actors.edges.kubernetes.node_view import NOTE_ANNOTATION, OUT_OF_SERVICE, QUARANTINE
from ebbtide.actors.edges.proof_sources.remediators import KINDS, MACHINES
from tests.deploy.granted import Asked, applied, denied, refusals, speaking, token
from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import Api, Object
from tests.waiting import until

pytestmark = pytest.mark.node

ACCOUNT = "/api/v1/namespaces/ebbtide/serviceaccounts/ebbtide-outage"
DRY = "dryRun=All"
#: Matches no object; ends after a second.
WATCH = "watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnever"
NODE = f"/api/v1/nodes/node-1?{DRY}"
CONFIG_MAPS = "/api/v1/namespaces/ebbtide/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ebbtide/leases"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
PIECE = {"metadata": {"name": "ebbtide-outage-1-0000000001"}, "immutable": True}
ANOTHER = {"metadata": {"name": "ebbtide-outage-config"}}
ABOUT = {"kind": "Node", "name": "node-1", "uid": "node-1"}
EVENT = {"metadata": {"name": "node-1.1"}, "involvedObject": ABOUT, "reason": "OutageWaits", "message": "m"}
OUR_LEASE = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "one"}}
TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}

NEEDED: dict[str, Asked] = {
    "nodes": ("GET", "/api/v1/nodes?limit=1", None),
    "watch-nodes": ("GET", f"/api/v1/nodes?{WATCH}", None),
    "a-node": ("GET", "/api/v1/nodes/node-1", None),
    "pods": ("GET", "/api/v1/pods?limit=1", None),
    "watch-pods": ("GET", f"/api/v1/pods?{WATCH}", None),
    "volumes": ("GET", "/api/v1/persistentvolumes?limit=1", None),
    "watch-volumes": ("GET", f"/api/v1/persistentvolumes?{WATCH}", None),
    "attachments": ("GET", f"{ATTACHMENTS}?limit=1", None),
    "watch-attachments": ("GET", f"{ATTACHMENTS}?{WATCH}", None),
    "budgets": ("GET", "/apis/policy/v1/poddisruptionbudgets?limit=1", None),
    "a-statefulset": ("GET", "/apis/apps/v1/namespaces/default/statefulsets/x", None),
    "a-replicaset": ("GET", "/apis/apps/v1/namespaces/default/replicasets/x", None),
    "a-job": ("GET", "/apis/batch/v1/namespaces/default/jobs/x", None),
    "a-replicationcontroller": ("GET", "/api/v1/namespaces/default/replicationcontrollers/x", None),
    "heartbeats": ("GET", f"{NODE_LEASES}?limit=1", None),
    "a-heartbeat": ("GET", f"{NODE_LEASES}/node-1", None),
    "watch-heartbeats": ("GET", f"{NODE_LEASES}?{WATCH}", None),
    "an-event": ("POST", f"/api/v1/namespaces/default/events?{DRY}", EVENT),
    "write-journal": ("POST", f"{CONFIG_MAPS}?{DRY}", PIECE),
    "journals": ("GET", CONFIG_MAPS, None),
    "begin-to-lead": ("POST", f"{LEASES}?{DRY}", OUR_LEASE),
    "may-lead": ("GET", f"{LEASES}/{LEASE}", None),
}
REFUSED: dict[str, Asked] = {
    "delete-a-pod": ("DELETE", f"/api/v1/namespaces/default/pods/x?{DRY}", None),
    "delete-a-volume": ("DELETE", f"/api/v1/persistentvolumes/x?{DRY}", None),
    "delete-an-attachment": ("DELETE", f"{ATTACHMENTS}/x?{DRY}", None),
    "delete-a-node": ("DELETE", NODE, None),
    "a-nodes-status": ("PATCH", f"/api/v1/nodes/node-1/status?{DRY}", {"status": {}}),
    "a-nodes-heartbeat": ("PATCH", f"{NODE_LEASES}/node-1?{DRY}", {"spec": {}}),
    "change-a-journal": ("PATCH", f"{CONFIG_MAPS}/x?{DRY}", {"data": {}}),
    "others-configmaps": ("GET", "/api/v1/configmaps", None),
    "another-lease": ("GET", f"{LEASES}/another", None),
    "secrets": ("GET", "/api/v1/namespaces/ebbtide/secrets", None),
    "the-kubelet": ("GET", "/api/v1/nodes/node-1/proxy/pods", None),
}


def of_node(**changed: Any) -> Asked:
    return ("PATCH", NODE, changed)


#: In the policy's own words.
ABUSES: dict[str, tuple[str, Asked]] = {
    "labels": ("labels, finalizers", of_node(metadata={"labels": {"node-role.kubernetes.io/x": ""}})),
    "finalizers": ("labels, finalizers", of_node(metadata={"finalizers": ["example.com/never"]})),
    "annotations": ("annotations of others", of_node(metadata={"annotations": {"example.com/role": "none"}})),
    "the daemon's": (
        "annotations of others",
        of_node(metadata={"annotations": {"ebbtide.dev/safe-to-detach": "{}"}}),
    ),
    "cordon": ("only taints", of_node(spec={"unschedulable": True})),
    "another ConfigMap": ("only its journals", ("POST", f"{CONFIG_MAPS}?{DRY}", ANOTHER)),
    "its configuration": ("only its journals", ("DELETE", f"{CONFIG_MAPS}/ebbtide-outage?{DRY}", None)),
    "another taint": ("taints of others", of_node(spec={"taints": [{"key": "x", "effect": "NoExecute"}]})),
}

#: No remediator is installed here: a permitted read gets 404.
OF_REMEDIATORS: dict[str, Asked] = {
    **{name: ("GET", f"{path}?limit=1", None) for name, (path, _) in KINDS.items()},
    "machine": ("GET", f"{MACHINES}/namespaces/default/machines/machine-1", None),
}
NOT_THERE, MAY_NOT, CHANGED = "404", "403", "409"


async def in_force(bed: Bed) -> None:
    anybody = speaking(bed, await token(bed, account=ACCOUNT))
    for name in ("cordon", "another ConfigMap"):
        said, (method, path, body) = ABUSES[name]
        await denied(said, partial(anybody.ask, method, path, body))


@pytest.fixture
async def granted(bed: Bed) -> AsyncIterator[Api]:
    # Its pods would wait for an image.
    async with applied(bed, "outage", ("Deployment", "PodDisruptionBudget"), in_force):
        yield speaking(bed, await token(bed, account=ACCOUNT))


async def test_all_that_is_needed_is_granted_and_nothing_else(bed: Bed, granted: Api) -> None:
    refused = await refusals(granted, NEEDED)
    # Objects that do not exist.
    assert {name: said for name, said in refused.items() if not said.startswith("404")} == {}

    async def taint() -> bool:
        found: Object = await granted.get("/api/v1/nodes/node-1")
        metadata = {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "annotations": {NOTE_ANNOTATION: "{}"},
        }
        ours = of_node(
            metadata=metadata, spec={"taints": [*found["spec"].get("taints", []), TAINT, QUARANTINE]}
        )
        said = await refusals(granted, {"taint": ours})
        # A kubelet writes its Node as well.
        assert not said or said["taint"].startswith(CHANGED), said
        return not said

    await until(taint, "somebody else always writes the Node first")
    said = await refusals(granted, REFUSED)
    assert {name for name in REFUSED if not said.get(name, "").startswith("403: ")} == set()
    said = await refusals(granted, {name: each for name, (_, each) in ABUSES.items()})
    assert {name: words for name, (words, _) in ABUSES.items() if words not in said.get(name, "")} == {}


async def test_no_other_account_writes_a_journal(bed: Bed, granted: Api) -> None:
    """Not even an administrator, who may delete it; a dry run is permitted, and the collector's changes."""
    path = f"{CONFIG_MAPS}/{PIECE['metadata']['name']}"
    assert await refusals(granted, {"write": ("POST", CONFIG_MAPS, PIECE)}) == {}
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    asked: dict[str, Asked] = {
        "forge": ("POST", CONFIG_MAPS, {"metadata": {"name": "ebbtide-outage-1-0000000002"}}),
        "change": ("PATCH", path, held),
    }
    said = await refusals(bed.api, asked)
    assert {name for name in asked if "only ebbtide-outage creates" in said[name]} == set(asked)
    permitted: dict[str, Asked] = {
        "try": ("POST", f"{CONFIG_MAPS}?{DRY}", {"metadata": {"name": "ebbtide-outage-1-0000000000"}}),
        "another": ("POST", f"{CONFIG_MAPS}?{DRY}", ANOTHER),
        "delete": ("DELETE", path, None),
    }
    assert await refusals(bed.api, permitted) == {}


async def test_what_other_remediators_say_is_a_right_of_its_own(bed: Bed, granted: Api) -> None:
    """Only the extra kustomization permits it, and nothing more."""

    async def told() -> set[str]:
        said = await refusals(granted, OF_REMEDIATORS)
        return {each.partition(":")[0].split()[0] for each in said.values()}

    assert await told() == {MAY_NOT}
    objects = rendered("outage/remediators")
    for each in objects:
        await bed.api.post(place(each), each)
    try:

        async def granted_now() -> bool:
            return await told() == {NOT_THERE}

        # The authorizer goes by a watch of its own.
        await until(granted_now, "the right does not come")
        said = await refusals(granted, REFUSED | {"machines": ("GET", f"{MACHINES}/machines", None)})
        assert {each.partition(":")[0].split()[0] for each in said.values()} == {MAY_NOT}
    finally:
        for each in objects:
            await bed.api.delete(f"{place(each)}/{each['metadata']['name']}")
