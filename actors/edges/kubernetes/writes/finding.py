"""An order names a pod by the UID that the runtime knows; the API wants namespace, name and its own UID.

The watch knows them. A pod that it does not know may be gone, or the watch may not be there yet (after a
restart in mid-shutdown, after a boot): then one list of this node's pods answers for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from actors.edges.kubernetes.calling import Known, Lookup, Unanswered
from actors.edges.kubernetes.writes.insisting import Call, words
from actors.edges.kubernetes.writes.shapes import PodObject


class _Pods(msgspec.Struct):
    items: list[PodObject]


_DECODER = msgspec.json.Decoder(_Pods)


class Denied(Exception):
    """The API server will not list this node's pods; says why."""


def list_path(node: str) -> str:
    """From the server's cache (``resourceVersion=0``): an old answer can only miss what is final by now."""
    return f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}&resourceVersion=0"


async def listed(call: Call, node: str) -> dict[str, Known]:
    """This node's pods by the runtime's UID. Raises Unanswered, Denied."""
    return {pod.uid: pod for pod in map(_known, await objects(call, node))}


async def objects(call: Call, node: str) -> list[PodObject]:
    """The same as what a writer reads of each. Raises Unanswered, Denied."""
    answer = await call.once("GET", list_path(node))
    if not answer.ok:
        raise (Unanswered if answer.code >= 429 else Denied)(f"the list of pods: {words(answer)}")
    try:
        return _DECODER.decode(answer.body).items
    except msgspec.DecodeError as error:
        raise Unanswered(f"the list of pods cannot be read: {error}") from None


def _known(pod: PodObject) -> Known:
    meta = pod.metadata
    mirror = meta.annotations.mirror
    return Known(
        uid=mirror or meta.uid,
        api_uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        phase=pod.status.phase,
        static=bool(mirror),
    )


async def find_all(lookup: Lookup, uids: Iterable[str], call: Call, node: str) -> dict[str, Known | None]:
    """None: gone from the API. Raises Unanswered, Denied where that could not be told."""
    found = {uid: lookup.find(uid) for uid in uids}
    if any(pod is None for pod in found.values()):
        seen = await listed(call, node)
        found = {uid: pod or seen.get(uid) for uid, pod in found.items()}
    return found
