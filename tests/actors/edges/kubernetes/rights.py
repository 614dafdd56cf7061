"""Service accounts with exactly the rights that a test names, on the real API server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.deploy.granted import token
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.identities import Client

RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def granted(
    bed: Bed,
    name: str,
    rules: list[Object],
    cluster: list[Object] | None = None,
    others: dict[str, list[Object]] | None = None,
    server: str = "",
) -> Path:
    """The kubeconfig of an account in a namespace of that name, with ``rules`` there, ``cluster`` everywhere,
    and in other namespaces those of ``others``.
    """
    named = {"metadata": {"name": name}}
    space = f"/api/v1/namespaces/{name}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    group = "rbac.authorization.k8s.io"
    bodies: list[tuple[str, Object]] = [
        ("/api/v1/namespaces", named),
        (f"{space}/serviceaccounts", named),
    ]
    for kind, below, allowed in (
        ("Role", f"{RBAC}/namespaces/{name}", rules),
        ("ClusterRole", RBAC, cluster or []),
        *(("Role", f"{RBAC}/namespaces/{other}", them) for other, them in (others or {}).items()),
    ):
        binding = {
            **named,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [subject],
        }
        plural = kind.lower() + "s"
        bodies += [
            (f"{below}/{plural}", {**named, "rules": allowed}),
            (f"{below}/{plural[:-1]}bindings", binding),
        ]
    for path, body in bodies:
        with suppress(Refused):  # of an earlier test
            await bed.api.post(path, body)
    client = Client(await token(bed, account=f"{space}/serviceaccounts/{name}"), name)
    return bed.secrets.kubeconfig(client, server or bed.server, f"granted-{name}")
