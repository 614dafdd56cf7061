"""Service accounts with exactly the rights that a test names, on the real API server."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.deploy.granted import token
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.identities import Client
from tests.waiting import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: The outage controller's rights; the tests that pass with them keep them minimal.
CLUSTER_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
LEASE_RULES: list[Object] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch"]}
]
JOURNAL_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete"]}
]
SEEN = ["list", "watch"]
WORK_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumes"], "verbs": SEEN},
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments"], "verbs": SEEN},
]


async def granted(
    bed: Bed,
    name: str,
    rules: list[Object],
    cluster: list[Object] | None = None,
    others: dict[str, list[Object]] | None = None,
) -> Path:
    """A kubeconfig with ``rules`` in its namespace, ``cluster`` everywhere and ``others`` elsewhere."""
    given = [(name, rule) for rule in rules] + [("", rule) for rule in cluster or []]
    given += [(space, rule) for space, them in (others or {}).items() for rule in them]
    named = {"metadata": {"name": name}}
    space = f"/api/v1/namespaces/{name}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    group = "rbac.authorization.k8s.io"
    bodies: list[tuple[str, Object]] = [("/api/v1/namespaces", named), (f"{space}/serviceaccounts", named)]
    for kind, below, allowed in (
        ("Role", f"{RBAC}/namespaces/{name}", rules),
        ("ClusterRole", RBAC, cluster or []),
        *(("Role", f"{RBAC}/namespaces/{other}", them) for other, them in (others or {}).items()),
    ):
        binding = {**named, "roleRef": {"apiGroup": group, "kind": kind, "name": name}, "subjects": [subject]}
        plural = kind.lower() + "s"
        bodies += [
            (f"{below}/{plural}", {**named, "rules": allowed}),
            (f"{below}/{plural[:-1]}bindings", binding),
        ]
    for path, body in bodies:
        with suppress(Refused):  # of an earlier test
            await bed.api.post(path, body)
    # The authorizer reads its own watches: new rights apply a moment later.
    user = f"system:serviceaccount:{name}:{name}"
    for namespace, rule in given:
        await until(partial(_allowed, bed, user, namespace, rule), f"{user} may {rule}")
    client = Client(await token(bed, account=f"{space}/serviceaccounts/{name}"), name)
    return bed.secrets.kubeconfig(client, bed.server, f"granted-{name}")


async def _allowed(bed: Bed, user: str, namespace: str, rule: Object) -> bool:
    resource, _, part = rule["resources"][-1].partition("/")
    what = {"namespace": namespace, "verb": rule["verbs"][-1], "resource": resource, "subresource": part}
    what |= {"group": rule["apiGroups"][-1], "name": rule.get("resourceNames", [""])[-1]}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    said = await bed.api.post(REVIEWS, review | {"spec": {"user": user, "resourceAttributes": what}})
    return bool(said["status"]["allowed"])
