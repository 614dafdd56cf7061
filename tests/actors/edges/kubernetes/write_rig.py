"""The writers' test rig: `Writes` on a real API server, with any client."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_writes import Writes
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.edges.kubernetes.node_writes import JournalLink, no_link
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import DeletePod
from tests.actors.edges.process.process_bed import Outbox
from tests.deploy.granted import in_force, token
from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.identities import ADMIN, Client, kubelet

NODE = "node-1"
#: The writers' minimal rights; the tests that pass with them keep them minimal.
RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
ACCOUNT = "ebbtide-writes"
NODE_CLIENT = kubelet(NODE)
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def store_of(pods: Iterable[KnownPod]) -> PodStore:
    store = PodStore()
    store.replace(pods, "1")
    return store


def known(made: Object, **fields: Any) -> KnownPod:
    """As the watch would have that pod."""
    meta = made["metadata"]
    mirror = meta.get("annotations", {}).get("kubernetes.io/config.mirror", "")
    return KnownPod(
        **{
            "uid": mirror or meta["uid"],
            "api_uid": meta["uid"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "resource_version": meta["resourceVersion"],
            "phase": made["status"].get("phase", ""),
            "static": bool(mirror),
            **fields,
        }
    )


class Hand:
    """The writers, a watch that knows these pods, and their messages."""

    def __init__(
        self,
        caller: ApiCaller,
        pods: Iterable[KnownPod] = (),
        folder: Path | None = None,
        link: JournalLink = no_link,
    ) -> None:
        self.outbox, self.told = Outbox(), list[str]()
        self.writes = Writes(
            caller,
            store_of(pods),
            NODE,
            lambda key: TRACEPARENT,
            lambda level, line: self.told.append(line),
            folder,
            link,
        )

    async def do(self, order: Order) -> Ending:
        effect: Any = self.writes.effects[type(order)]
        ended = await effect(order, self.outbox)
        assert isinstance(ended, Ending)
        return ended


def delete(made: Object, grace_seconds: int = 5, uid: str = "", **fields: bool) -> DeletePod:
    meta = made["metadata"]
    return DeletePod(
        key=f"HookActor/delete/{meta['uid']}/0",
        uid=uid or meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        grace_seconds=grace_seconds,
        **fields,
    )


@asynccontextmanager
async def writing(
    bed: Bed,
    pods: Iterable[KnownPod] = (),
    client: Client = ADMIN,
    server: str = "",
    folder: Path | None = None,
) -> AsyncIterator[Hand]:
    """The writers with this client and these pods."""
    kubeconfig = bed.secrets.kubeconfig(
        client, server or bed.server, f"write-{client.user.replace(':', '-')}"
    )
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        yield Hand(link, pods, folder)
        nursery.cancel_scope.cancel()


async def account(bed: Bed) -> Client:
    """A service account with `RULES`, limited by the policies in ``deploy``."""
    named = {"metadata": {"name": ACCOUNT}}
    binding = {
        **named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }
    for path, body in (
        (ACCOUNTS, named),
        (f"{RBAC}/clusterroles", {**named, "rules": RULES}),
        (f"{RBAC}/clusterrolebindings", binding),
        *((place(each), each) for each in _policies()),
    ):
        names = [each["metadata"]["name"] for each in (await bed.api.get(path))["items"]]
        if body["metadata"]["name"] not in names:
            await bed.api.post(path, body)
    account = f"{ACCOUNTS}/{ACCOUNT}"
    await in_force(bed, account)
    return Client(await token(bed, f"/api/v1/nodes/{NODE}", account), ACCOUNT)


def _policies() -> list[Object]:
    """The policies of ``deploy``, rewritten for this account."""
    text = json.dumps([each for each in rendered("rbac") if each["kind"].startswith("ValidatingAdmission")])
    text = text.replace("serviceaccount:ebbtide:ebbtide", f"serviceaccount:default:{ACCOUNT}")
    made: list[Object] = json.loads(re.sub(r"ebbtide-own-\w+-only", r"writes-\g<0>", text))
    return made


def of_kind(thing: Object, kind: str) -> Object:
    """A condition; empty where there is none."""
    found = [each for each in thing["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else {}
