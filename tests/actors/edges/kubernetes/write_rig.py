"""The writers' test rig: `Writes` on a real API server, with any client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.api_writes import Writes
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.edges.kubernetes.node_writes import JournalLink, no_link
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import DeletePod
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.process.process_bed import Outbox
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.identities import kubelet

NODE = "node-1"
#: The writers' minimal rights; the tests that pass with them keep them minimal.
RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
NODE_CLIENT = kubelet(NODE)
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def store_of(pods: Iterable[KnownPod]) -> PodStore:
    store = PodStore()
    store.replace(pods, "1")
    return store


def known(made: Object) -> KnownPod:
    """As the watch would have that pod."""
    meta = made["metadata"]
    mirror = meta.get("annotations", {}).get("kubernetes.io/config.mirror", "")
    return KnownPod(
        uid=mirror or meta["uid"],
        api_uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        resource_version=meta["resourceVersion"],
        phase=made["status"].get("phase", ""),
        static=bool(mirror),
    )


class Hand:
    """The writers, a watch that knows these pods, and their messages."""

    def __init__(self, caller: ApiCaller, pods: Iterable[KnownPod] = (), link: JournalLink = no_link) -> None:
        self.outbox, self.told = Outbox(), list[str]()
        self.writes = Writes(
            caller,
            store_of(pods),
            NODE,
            lambda key: TRACEPARENT,
            lambda level, line: self.told.append(line),
            link=link,
        )

    async def do(self, order: Order) -> Ending:
        effect: Any = self.writes.effects[type(order)]
        ended = await effect(order, self.outbox)
        assert isinstance(ended, Ending)
        return ended


def delete(made: Object, grace_seconds: int = 5, uid: str = "") -> DeletePod:
    meta = made["metadata"]
    return DeletePod(
        key=f"HookActor/delete/{meta['uid']}/0",
        uid=uid or meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        grace_seconds=grace_seconds,
    )


@asynccontextmanager
async def writing(bed: Bed, pods: Iterable[KnownPod] = ()) -> AsyncIterator[Hand]:
    """The writers with the node's identity and these pods."""
    async with linked(bed.secrets.kubeconfig(NODE_CLIENT, bed.server, "write")) as link:
        yield Hand(link, pods)


def of_kind(thing: Object, kind: str) -> Object:
    """A condition; empty where there is none."""
    found = [each for each in thing["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else {}
