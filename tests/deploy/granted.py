"""Ebbtide's service account on the real API server: role and policy applied, and tokens of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trio

from tests.deploy.rendering import Object, place, rendered
from tests.node.bed import Bed
from tests.node.client import POLL_SECONDS, Api, Refused

ACCOUNT = "/api/v1/namespaces/ebbtide/serviceaccounts/ebbtide"
TOKEN_SECONDS = 3600
#: A policy counts from the moment on at which the API server has compiled it.
IN_FORCE_SECONDS_MAX = 20
LABEL_OF_OURS = {"metadata": {"labels": {"ebbtide.dev/never": "set"}}}


@contextlib.asynccontextmanager
async def applied(bed: Bed, name: str = "rbac") -> AsyncIterator[None]:
    """The objects of a kustomization for the time of the block, the policy in force."""
    objects = rendered(name)
    for each in objects:
        await bed.api.post(place(each), each)
    try:
        await _in_force(bed)
        yield
    finally:
        for each in reversed(objects):
            await bed.api.delete(f"{place(each)}/{each['metadata']['name']}")
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"]
        await bed.api.until("/api/v1/namespaces", lambda found: not _among(names, found))


def _among(names: list[str], found: Object) -> bool:
    return any(each["metadata"]["name"] in names for each in found["items"])


async def account(bed: Bed, node: str = "") -> Api:
    """The service account, by a real token, as one of that node; of none where it is empty."""
    return Api(bed.server, bed.secrets.authority, await token(bed, node))


async def token(bed: Bed, node: str = "") -> str:
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_SECONDS}
    if node:
        found = await bed.api.get(f"/api/v1/nodes/{node}")
        bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": found["metadata"]["uid"]}
        spec["boundObjectRef"] = bound
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    said = await bed.api.post(f"{ACCOUNT}/token", request)
    return str(said["status"]["token"])


async def _in_force(bed: Bed) -> None:
    """Until it denies what it is there to deny."""
    nobodys = await account(bed)
    node = next(iter(bed.members))
    with trio.move_on_after(IN_FORCE_SECONDS_MAX):
        while True:
            try:
                await nobodys.patch(f"/api/v1/nodes/{node}?dryRun=All", LABEL_OF_OURS)
            except Refused as error:
                if "names no node" in str(error):
                    return
            await trio.sleep(POLL_SECONDS)
    raise AssertionError("the policy does not come into force")
