"""The role and the policy with real tokens: exactly Ebbtide's calls are permitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
import pytest

from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, ApiPod
from ebbtide.actors.edges.kubernetes.api_watch import LIVENESS_PATH
from ebbtide.actors.edges.kubernetes.api_writes import event_object, final_status
from ebbtide.actors.edges.kubernetes.node_writes import conditions_patch
from ebbtide.actors.node_marks import (
    DETECTED_MESSAGE,
    DOWN_CONDITIONS,
    EVENT_REASON,
    NODE_MESSAGE,
    NODE_REASON,
)
from ebbtide.actors.node_status import KILLED_REASON, POD_REASON
from ebbtide.events.decisions import PostEvent
from tests.deploy.granted import Asked, applied, refusals, speaking, token
from tests.deploy.rendering import Object
from tests.node.bed import Bed
from tests.node.client import STRATEGIC, Api
from tests.node.identities import kubelet
from tests.node.pods import PODS, pod, running

pytestmark = pytest.mark.node

DRY = "dryRun=All"
NODE = "/api/v1/nodes/node-1"
NODE_DRY, STATUS_DRY = f"{NODE}?{DRY}", f"{NODE}/status?{DRY}"
#: A kubelet's bounds for images and names, and more of the rest than a node has.
IMAGES, NAMES, VOLUMES, CONTAINERS = 50, 5, 250, 100
OWN = "/api/v1/namespaces/ebbtide/pods"
OURS, THEIRS = f"{PODS}/ours", f"{PODS}/theirs"
TAINT = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-2", "uid": "0"}
DISRUPTED = {
    "status": {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    }
}
DRAINED = {"status": {"conditions": [{"type": "Drained", "status": "True", "reason": "NodeShutdown"}]}}
NOTED = {"metadata": {"annotations": {"ebbtide.dev/changed": "{}"}}}
DELETE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5, "dryRun": ["All"]}
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
MAY_I = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "delete", "resource": "pods"}},
}
EVICTION = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "ours", "namespace": "default"},
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"


def condition(kind: str, status: str, reason: str) -> Object:
    return {"type": kind, "status": status, "reason": reason}


#: As the daemon's own code makes them.
ON_NODE = event_object(
    PostEvent(key="1", kind="Node", name="", reason=EVENT_REASON, message=DETECTED_MESSAGE),
    "node-1",
    "0" * 32,
)
ON_WORKLOAD = event_object(
    PostEvent(
        key="2",
        kind="DaemonSet",
        name="x",
        namespace="kube-system",
        reason=KILLED_REASON,
        message="Pod x-1 had to be killed",
        warning=True,
    ),
    "node-1",
    "",
)

#: The edge's calls, one row per kind: the writers and the watch.
NEEDED: dict[str, Asked] = {
    "list": ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", None),
    "watch": ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&watch=1&timeoutSeconds=1", None),
    "is-it-there": ("GET", LIVENESS_PATH, None),
    "get-pod": ("GET", OURS, None),
    "delete-pod": ("DELETE", OURS, DELETE),
    "pod-status": ("PATCH", f"{OURS}/status?{DRY}", DISRUPTED),
    "pod-rejected": (
        "PATCH",
        f"{OURS}/status?{DRY}",
        {"status": {"phase": "Failed", "reason": "NodeShutdown"}},
    ),
    "get-node": ("GET", NODE, None),
    "cordon": ("PATCH", NODE_DRY, {"spec": {"unschedulable": True}}),
    "note": ("PATCH", NODE_DRY, NOTED),
    "note-in-status": ("PATCH", STATUS_DRY, NOTED | DRAINED),
    "node-status": ("PATCH", STATUS_DRY, DRAINED),
    "event": ("POST", f"/api/v1/namespaces/default/events?{DRY}", ON_NODE),
    "event-elsewhere": ("POST", f"/api/v1/namespaces/kube-system/events?{DRY}", ON_WORKLOAD),
    "who-am-i": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW),
    "may-i": ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", MAY_I),
}
#: A thief's calls.
REFUSED: dict[str, Asked] = {
    "secrets": ("GET", "/api/v1/secrets", None),
    "a-secret": ("GET", "/api/v1/namespaces/ebbtide/secrets/x", None),
    "make-a-secret": ("POST", f"/api/v1/namespaces/default/secrets?{DRY}", SECRET),
    "configmaps": ("GET", "/api/v1/configmaps", None),
    "make-a-pod": ("POST", f"{PODS}?{DRY}", pod("another", "node-1")),
    "change-a-pod": ("PATCH", f"{OURS}?{DRY}", {"metadata": {"labels": {"a": "b"}}}),
    "all-pods-at-once": ("DELETE", f"{PODS}?{DRY}", None),
    "exec": ("POST", f"{OURS}/exec?command=sh&stdout=1", None),
    "evict": ("POST", f"{OURS}/eviction?{DRY}", EVICTION),
    "a-token": ("POST", "/api/v1/namespaces/ebbtide/serviceaccounts/ebbtide/token", TOKEN),
    "delete-the-node": ("DELETE", f"/api/v1/nodes/node-1?{DRY}", None),
    "all-nodes": ("GET", "/api/v1/nodes", None),
    "the-kubelet": ("GET", "/api/v1/nodes/node-1/proxy/pods", None),
    "events": ("GET", "/api/v1/events", None),
    "more-rights": ("PATCH", f"{RBAC}/clusterroles/ebbtide?{DRY}", {"rules": []}),
    "no-policy": ("DELETE", f"{ADMISSION}/validatingadmissionpolicies/ebbtide-own-node-only?{DRY}", None),
}


class Abuse(NamedTuple):
    """A thief's calls; ``said``: our policy's refusal, empty for reads."""

    said: str
    method: str
    path: str
    body: Any = None


def of_node(said: str, name: str = "node-1", part: str = "", **changed: Any) -> Abuse:
    return Abuse(said, "PATCH", f"/api/v1/nodes/{name}{part}?{DRY}", changed)


def of_node_status(**changed: Any) -> Abuse:
    said = "of a node's conditions" if "conditions" in changed else "only conditions are"
    return of_node(said, part="/status", status=changed)


def of_pod_status(said: str, pod: str = OURS, **status: Any) -> Abuse:
    return Abuse(said, "PATCH", f"{pod}/status?{DRY}", {"status": status})


def of_pod_meta(**changed: Any) -> Abuse:
    return Abuse("labels, annotations and", "PATCH", f"{OURS}/status?{DRY}", {"metadata": changed})


def of_event(said: str, base: Object, **changed: Any) -> Abuse:
    made = base | changed
    namespace = made["metadata"]["namespace"]
    return Abuse(said, "POST", f"/api/v1/namespaces/{namespace}/events?{DRY}", made)


BY_OTHERS, OF_OTHERS, FIELDS = "only Events by ebbtide", "only Events of a shutdown", "no such fields"
ABUSES: dict[str, Abuse] = {
    "list another node's pods": Abuse("", "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2"),
    "list all pods": Abuse("", "GET", "/api/v1/pods"),
    "read another node's pod": Abuse("", "GET", THEIRS),
    "read another node": Abuse("", "GET", "/api/v1/nodes/node-2"),
    "delete another node's pod": Abuse("only pods of node-1", "DELETE", THEIRS, DELETE),
    "another node's pod": Abuse("only pods of node-1", "PATCH", f"{THEIRS}/status?{DRY}", DISRUPTED),
    "another node": of_node("only the node node-1", "node-2", spec={"unschedulable": True}),
    "another node's status": of_node("only the node node-1", "node-2", "/status", **DRAINED),
    "labels": of_node("labels of a node", metadata={"labels": {"node-role.kubernetes.io/x": ""}}),
    "labels through the status": of_node(
        "labels of a node", part="/status", metadata={"labels": {"node-role.kubernetes.io/x": ""}}
    ),
    "annotations": of_node("annotations of others", metadata={"annotations": {"example.com/role": "none"}}),
    "annotations through the status": of_node(
        "annotations of others", part="/status", metadata={"annotations": {"example.com/role": "none"}}
    ),
    "no annotations": of_node(
        "annotations of others", metadata={"annotations": {"node.alpha.kubernetes.io/ttl": None}}
    ),
    "finalizers": of_node("finalizers and owners", metadata={"finalizers": ["example.com/never"]}),
    "owners": of_node("finalizers and owners", metadata={"ownerReferences": [OWNER]}),
    "provider": of_node("only taints and unschedulable", spec={"providerID": "elsewhere://node-1"}),
    "taints": of_node("taints of others", spec={"taints": [TAINT, {"key": "x", "effect": "NoExecute"}]}),
    "address": of_node_status(addresses=[{"type": "InternalIP", "address": "203.0.113.66"}]),
    "kubelet's port": of_node_status(daemonEndpoints={"kubeletEndpoint": {"Port": 6666}}),
    "room": of_node_status(capacity={"cpu": "512"}, allocatable={"cpu": "512"}),
    "boot": of_node_status(nodeInfo={"bootID": "another"}),
    "Ready": of_node_status(conditions=[condition("Ready", "True", "Restored")]),
    "Ready by another reason": of_node_status(conditions=[condition("Ready", "False", "Broken")]),
    "Ready away": of_node_status(conditions=[{"$patch": "delete", "type": "Ready"}]),
    "pressure": of_node_status(conditions=[condition("DiskPressure", "True", "KubeletHasDiskPressure")]),
    "pod's address": of_pod_status(
        "only how it ended", podIP="203.0.113.66", podIPs=[{"$patch": "replace"}, {"ip": "203.0.113.66"}]
    ),
    "pod's phase": of_pod_status("only to its end", phase="Pending"),
    "pod's end by another reason": of_pod_status("only to its end", phase="Failed", reason="Evicted"),
    "pod's Ready": of_pod_status("only Ready=False", conditions=[condition("Ready", "True", "Restored")]),
    "pod's conditions": of_pod_status(
        "only Ready=False", conditions=[condition("x.io/gate", "True", "Open")]
    ),
    "pod's disruption": of_pod_status(
        "only Ready=False", conditions=[condition("DisruptionTarget", "True", "PreemptionByScheduler")]
    ),
    "pod's container": of_pod_status(
        "that it has ended", containerStatuses=[{"name": "main", "image": "x", "imageID": "x", "ready": True}]
    ),
    "pod's labels": of_pod_meta(labels={"app": "theirs"}),
    "pod's annotations": of_pod_meta(annotations={"example.com/role": "none"}),
    "pod's finalizers": of_pod_meta(finalizers=["example.com/never"]),
    "Event elsewhere": of_event(
        OF_OTHERS,
        ON_NODE,
        metadata=ON_NODE["metadata"] | {"namespace": "kube-system"},
        involvedObject=ON_NODE["involvedObject"] | {"namespace": "kube-system"},
    ),
    "Event on another node": of_event(
        OF_OTHERS, ON_NODE, involvedObject=ON_NODE["involvedObject"] | {"name": "node-2", "uid": "node-2"}
    ),
    "Event of another node": of_event(
        BY_OTHERS, ON_NODE, reportingInstance="node-2", source=ON_NODE["source"] | {"host": "node-2"}
    ),
    "Event by the kubelet": of_event(
        BY_OTHERS, ON_NODE, reportingComponent="kubelet", source=ON_NODE["source"] | {"component": "kubelet"}
    ),
    "Event with another reason": of_event(OF_OTHERS, ON_WORKLOAD, reason="Scheduled", type="Normal"),
    "Event with an owner": of_event(
        FIELDS, ON_NODE, metadata=ON_NODE["metadata"] | {"ownerReferences": [OWNER]}
    ),
    "Event with annotations": of_event(
        FIELDS, ON_NODE, metadata=ON_NODE["metadata"] | {"annotations": {"example.com/role": "none"}}
    ),
    "Event with an action": of_event(FIELDS, ON_NODE, action="Binding"),
}

#: Policies do not see reads, and RBAC has no field selectors.
LEFT_TO_THE_ACCOUNT = {
    "list another node's pods",
    "list all pods",
    "read another node's pod",
    "read another node",
}
#: By NodeRestriction and the Node authorizer. Other calls look like the kubelet's own.
KEPT_FROM_THE_NODE = {
    *LEFT_TO_THE_ACCOUNT,
    "delete another node's pod",
    "another node's pod",
    "another node",
    "another node's status",
    "labels",
    "labels through the status",
    "owners",
    "taints",
    "pod's labels",
}


@pytest.fixture
async def granted(bed: Bed) -> AsyncIterator[Api]:
    """The account on node-1, with a pod there and one elsewhere."""
    async with applied(bed):
        await running(bed, pod("ours", "node-1"), pod("theirs", "node-2"))
        yield speaking(bed, await token(bed, NODE))


async def abused(api: Api) -> dict[str, str]:
    return await refusals(api, {name: each[1:] for name, each in ABUSES.items()})


async def test_all_that_is_needed_is_granted(granted: Api) -> None:
    # A taint patch must keep other taints: a busy node has some.
    taints = (await granted.get(NODE))["spec"].get("taints", [])
    tainting = ("PATCH", f"/api/v1/nodes/node-1?{DRY}", {"spec": {"taints": [*taints, TAINT]}})
    assert await refusals(granted, {**NEEDED, "taint": tainting}) == {}


async def test_nothing_else_is_granted(granted: Api) -> None:
    """No secrets, tokens, new pods, exec or more rights."""
    found = await refusals(granted, REFUSED)
    assert set(REFUSED) - set(found) == set()
    assert [name for name, said in found.items() if not said.startswith("403: ")] == []


async def test_a_token_reaches_no_further_than_its_work(bed: Bed, granted: Api) -> None:
    """The policies' refusals for unit and DaemonSet, whatever the role permits. Reads remain."""
    await bed.api.post(
        OWN, pod("own", "node-1", serviceAccountName="ebbtide", terminationGracePeriodSeconds=1)
    )
    for each in (granted, speaking(bed, await token(bed, f"{OWN}/own"))):
        found = await abused(each)
        assert set(ABUSES) - set(found) == LEFT_TO_THE_ACCOUNT
        assert [name for name, said in found.items() if ABUSES[name].said not in said] == []


async def test_what_the_nodes_own_identity_is_kept_from(bed: Bed, granted: Api) -> None:
    """The API server refuses other nodes, their pods and secrets. Its kubelet needs the rest."""
    found = await abused(speaking(bed, kubelet("node-1").token))
    assert set(found) == KEPT_FROM_THE_NODE


async def test_a_token_without_a_node_changes_nothing(bed: Bed, granted: Api) -> None:
    """A hand-made token of the account only reads."""
    nobodys = speaking(bed, await token(bed))
    changes = {name: row for name, row in NEEDED.items() if row[0] != "GET" and "review" not in row[1]}
    found = await refusals(nobodys, changes)
    assert [name for name in changes if "names no node" not in found.get(name, "")] == []
    assert await refusals(nobodys, {"list": NEEDED["list"]}) == {}


async def test_a_crowded_node_is_within_what_a_policy_may_cost(bed: Bed, granted: Api) -> None:
    """Comparisons grow with node and pods; above a cost limit the server refuses every change."""
    await bed.api.post("/api/v1/nodes", {"metadata": {"name": "crowded"}})
    containers = [{"name": f"c{number}", "image": "none"} for number in range(CONTAINERS)]
    made = pod("crowded", "crowded", containers=containers)
    try:
        await bed.api.patch("/api/v1/nodes/crowded/status", {"status": crowded()})
        await bed.api.post(PODS, made)
        running = [
            {"image": "none", "imageID": "none", "ready": True, "restartCount": 0, "name": each["name"]}
            | {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
            for each in containers
        ]
        then = await bed.api.patch(f"{PODS}/crowded/status", {"status": {"containerStatuses": running}})
        ended = final_status(
            msgspec.convert(then, ApiPod, strict=False), "Failed", POD_REASON, "Pod was terminated"
        )
        node = msgspec.convert(await bed.api.get("/api/v1/nodes/crowded"), ApiNode)
        shown = conditions_patch(node, DOWN_CONDITIONS, {"reason": NODE_REASON, "message": NODE_MESSAGE})
        theirs = speaking(bed, await token(bed, "/api/v1/nodes/crowded"))
        assert shown is not None
        for path, body in ((f"{PODS}/crowded/status", ended), ("/api/v1/nodes/crowded/status", shown)):
            # Controllers write too: this node has no kubelet.
            del body["metadata"]["resourceVersion"]
            await theirs.ask("PATCH", path, body, STRATEGIC)
        after = await bed.api.get(f"{PODS}/crowded")
        assert after["status"]["phase"] == "Failed"
        assert all("terminated" in each["state"] for each in after["status"]["containerStatuses"])
    finally:
        await bed.api.delete(f"{PODS}/crowded", {"gracePeriodSeconds": 0})
        await bed.api.delete("/api/v1/nodes/crowded")


def crowded() -> Object:
    """A Node's status with a kubelet's maximum of images (nodeStatusMaxImages) and many volumes."""
    names = [f"registry.example.com/a/long/name/of/an/image-{number}" for number in range(NAMES)]
    volumes = [f"kubernetes.io/csi/disk.example.com^volume-{number}" for number in range(VOLUMES)]
    return {
        "images": [
            {"names": [f"{name}:{number}" for name in names], "sizeBytes": 1} for number in range(IMAGES)
        ],
        "volumesInUse": volumes,
        "volumesAttached": [{"name": each, "devicePath": ""} for each in volumes],
        "conditions": [condition(f"example.com/problem-{number}", "False", "None") for number in range(50)],
    }


async def test_the_policies_are_about_nobody_else(bed: Bed, granted: Api) -> None:
    """An administrator is unaffected; impossible objects get the API server's own refusal."""
    found = await abused(bed.api)
    assert [name for name, said in found.items() if "ebbtide-own" in said] == []
