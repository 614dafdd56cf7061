"""The role and the policy, by real tokens: all that Ebbtide asks for is granted, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ebbtide.doctor.api_server import examine_api_server
from ebbtide.doctor.snapshot import ApiServerState as Seen
from tests.actors.edges.kubernetes.rig import linked
from tests.deploy.granted import account, applied, token
from tests.deploy.rendering import Object
from tests.node.bed import Bed
from tests.node.client import Api, Refused
from tests.node.identities import Client
from tests.node.pods import PODS, pod, running

pytestmark = pytest.mark.node

DRY = "dryRun=All"
OURS, THEIRS = f"{PODS}/ours", f"{PODS}/theirs"
TAINT = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-2", "uid": "0"}
DISRUPTED = {
    "status": {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    }
}
DRAINED = {"status": {"conditions": [{"type": "Drained", "status": "True", "reason": "NodeShutdown"}]}}
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


def event(**about: str) -> Object:
    namespace = about.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "node-1.0", "namespace": namespace},
        "involvedObject": about,
        "reason": "Shutdown",
        "message": "none",
        "type": "Normal",
    }


#: What the edge asks for, one row a kind of call: the writers and the watch beside it.
NEEDED: dict[str, tuple[str, str, Any]] = {
    "list": ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", None),
    "watch": ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&watch=1&timeoutSeconds=1", None),
    "get-pod": ("GET", OURS, None),
    "delete-pod": ("DELETE", OURS, DELETE),
    "pod-status": ("PATCH", f"{OURS}/status?{DRY}", DISRUPTED),
    "get-node": ("GET", "/api/v1/nodes/node-1", None),
    "taint-and-cordon": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"spec": {"taints": [TAINT], "unschedulable": True}},
    ),
    "note": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"metadata": {"annotations": {"ebbtide.dev/changed": "{}"}}},
    ),
    "note-in-status": (
        "PATCH",
        f"/api/v1/nodes/node-1/status?{DRY}",
        {"metadata": {"annotations": {"ebbtide.dev/changed": "{}"}}, **DRAINED},
    ),
    "node-status": ("PATCH", f"/api/v1/nodes/node-1/status?{DRY}", DRAINED),
    "event": (
        "POST",
        f"/api/v1/namespaces/default/events?{DRY}",
        event(kind="Node", name="node-1", uid="node-1"),
    ),
    "event-elsewhere": (
        "POST",
        f"/api/v1/namespaces/kube-system/events?{DRY}",
        event(kind="DaemonSet", name="x", namespace="kube-system"),
    ),
    "who-am-i": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW),
    "may-i": ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", MAY_I),
}
#: What a stolen token would be wanted for.
REFUSED: dict[str, tuple[str, str, Any]] = {
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
#: What the role alone would allow: whose refusal it is, is in its words.
KEPT_TO_ITS_NODE: dict[str, tuple[str, str, Any]] = {
    "only pods of node-1": ("DELETE", THEIRS, DELETE),
    "only pods of node-1 may": ("PATCH", f"{THEIRS}/status?{DRY}", DISRUPTED),
    "only the node node-1": ("PATCH", f"/api/v1/nodes/node-2?{DRY}", {"spec": {"unschedulable": True}}),
    "only the node node-1 may": ("PATCH", f"/api/v1/nodes/node-2/status?{DRY}", DRAINED),
    "labels of a node": ("PATCH", f"/api/v1/nodes/node-1?{DRY}", {"metadata": {"labels": {"role": "none"}}}),
    "labels of a node are": (
        "PATCH",
        f"/api/v1/nodes/node-1/status?{DRY}",
        {"metadata": {"labels": {"role": "none"}}},
    ),
    "annotations of others": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"metadata": {"annotations": {"example.com/role": "none"}}},
    ),
    "annotations of others are": (
        "PATCH",
        f"/api/v1/nodes/node-1/status?{DRY}",
        {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": None}}},
    ),
    "annotations of others are not": (
        "PATCH",
        f"/api/v1/nodes/node-1/status?{DRY}",
        {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "3600"}}},
    ),
    "finalizers and owners": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"metadata": {"finalizers": ["example.com/never"]}},
    ),
    "finalizers and owners of": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"metadata": {"ownerReferences": [OWNER]}},
    ),
    "only taints and unschedulable": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"spec": {"providerID": "elsewhere://node-1"}},
    ),
    "taints of others": (
        "PATCH",
        f"/api/v1/nodes/node-1?{DRY}",
        {"spec": {"taints": [TAINT, {"key": "x", "effect": "NoExecute"}]}},
    ),
}


@pytest.fixture
async def granted(bed: Bed) -> AsyncIterator[Api]:
    """The account as it is on node-1, with a pod there and one elsewhere."""
    async with applied(bed):
        await running(bed, pod("ours", "node-1"), pod("theirs", "node-2"))
        yield await account(bed, "node-1")


async def refusals(api: Api, asked: dict[str, tuple[str, str, Any]]) -> dict[str, str]:
    """What is refused, and in which words; every row is asked."""
    found = {}
    for name, (method, path, body) in asked.items():
        try:
            await api.ask(method, path, body)
        except Refused as error:
            found[name] = str(error)
    return found


async def test_all_that_is_needed_is_granted(granted: Api) -> None:
    """Each call of the edge, as a dry run where it would change something."""
    assert await refusals(granted, NEEDED) == {}


async def test_nothing_else_is_granted(granted: Api) -> None:
    """Neither secrets nor tokens, neither new pods nor ways into running ones, nor more rights."""
    found = await refusals(granted, REFUSED)
    assert set(REFUSED) - set(found) == set()
    assert [name for name, said in found.items() if not said.startswith("403: ")] == []


async def test_a_token_reaches_no_further_than_its_node(granted: Api) -> None:
    """The policy's own words: other nodes, their pods, labels, and the annotations and taints of others."""
    found = await refusals(granted, KEPT_TO_ITS_NODE)
    assert [name for name in KEPT_TO_ITS_NODE if name not in found.get(name, "")] == []


async def test_a_token_without_a_node_changes_nothing(bed: Bed, granted: Api) -> None:
    """One that was made by hand for the account alone reads, and no more."""
    nobodys = await account(bed)
    changes = {name: row for name, row in NEEDED.items() if row[0] in ("PATCH", "DELETE")}
    found = await refusals(nobodys, changes)
    assert [name for name in changes if "names no node" not in found.get(name, "")] == []
    assert await refusals(nobodys, {"list": NEEDED["list"]}) == {}


async def test_the_policy_is_about_nobody_else(bed: Bed, granted: Api) -> None:
    """An administrator still deletes whatever he likes."""
    assert await refusals(bed.api, KEPT_TO_ITS_NODE) == {}


async def test_a_node_that_somebody_else_has_tainted(bed: Bed, granted: Api) -> None:
    """The doctor finds that it may be tainted, since a dry run with all taints loses nobody's."""
    theirs = {"key": "example.com/theirs", "effect": "NoSchedule"}
    await bed.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": [theirs]}})
    try:
        client = Client(await token(bed, "node-1"), "ebbtide-doctor")
        async with linked(bed.secrets.kubeconfig(client, bed.server, "doctor")) as link:
            said, _ = await examine_api_server(link, Seen(), "node-1")
        assert (said.problem, said.taint) == ("", True)
        assert (await bed.api.get("/api/v1/nodes/node-1"))["spec"]["taints"] == [theirs]
    finally:
        await bed.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": None}})
