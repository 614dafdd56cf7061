"""Ebbtide's service account on the real API server, with role, policy and tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import STRATEGIC, Api, Refused
from tests.waiting import until

ACCOUNT = "/api/v1/namespaces/ebbtide/serviceaccounts/ebbtide"
TOKEN_SECONDS = 3600
NOBODYS_EVENT = {"metadata": {"name": "never"}, "involvedObject": {"kind": "Node", "name": "never"}}

#: Method, path and body.
Asked = tuple[str, str, Any]
#: Waits until a policy counts.
Probe = Callable[[Bed], Awaitable[None]]


@contextlib.asynccontextmanager
async def applied(
    bed: Bed, name: str = "rbac", without: Collection[str] = (), probe: Probe | None = None
) -> AsyncIterator[None]:
    """A kustomization's objects for the block, without kinds ``without``; ``probe`` waits for the policy."""
    objects = [each for each in rendered(name) if each["kind"] not in without]
    for each in objects:
        await bed.api.post(place(each), each)
    try:
        await (probe or in_force)(bed)
        yield
    finally:
        for each in reversed(objects):
            await bed.api.delete(f"{place(each)}/{each['metadata']['name']}")
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"]
        await bed.api.until(
            "/api/v1/namespaces",
            lambda found: not any(each["metadata"]["name"] in names for each in found["items"]),
        )


def speaking(bed: Bed, token: str) -> Api:
    return Api(bed.server, bed.secrets.authority, token)


async def token(bed: Bed, to: str = "", account: str = ACCOUNT) -> str:
    """A service account token. ``to``: the path of its bound Node or Pod; empty: unbound."""
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_SECONDS}
    if to:
        found = await bed.api.get(to)
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": found["kind"], "name": name, "uid": uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    said = await bed.api.post(f"{account}/token", request)
    return str(said["status"]["token"])


async def in_force(bed: Bed, account: str = ACCOUNT) -> None:
    """Wait until the last policy denies: the API server applies them in order."""
    nobodys = speaking(bed, await token(bed, account=account))
    await denied(
        "names no node", partial(nobodys.post, "/api/v1/namespaces/default/events?dryRun=All", NOBODYS_EVENT)
    )


async def refusals(api: Api, asked: Mapping[str, Asked]) -> dict[str, str]:
    found = {}
    for name, (method, path, body) in asked.items():
        # A merge would replace a status' lists.
        kind = STRATEGIC if method == "PATCH" and "/status?" in path else ""
        try:
            await api.ask(method, path, body, kind)
        except Refused as error:
            found[name] = str(error)
    return found


async def denied(said: str, ask: Callable[[], Awaitable[object]]) -> None:
    """Wait for this denial: a policy works once it is compiled."""

    async def holds() -> bool:
        try:
            await ask()
        except Refused as error:
            return said in str(error)
        return False

    await until(holds, "the policy does not come into force")
