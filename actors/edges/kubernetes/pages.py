"""The whole list of a node's pods, in parts, so that no answer is larger than it needs to be.

A pod object can be 1.5 MiB, and a list of them is one answer. So a list is asked for in parts, and after a
part that was large the next ones are smaller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote, urlencode

import msgspec

from actors.edges.kubernetes.calling import Answer, Caller, Known, Unanswered
from actors.edges.kubernetes.health import refusal
from actors.edges.kubernetes.projection import PodObject, known

PODS = "/api/v1/pods"
#: A pod is about 8 KiB: 400 KiB a part, 3 parts for a node that is full.
PART_PODS = 50
#: After a part beyond this, the next ones ask for fewer pods.
PART_BYTES = 4 * 1024 * 1024
#: A list from etcd of a large cluster takes its time; nothing waits for it but the watch.
PART_SECONDS_MAX = 10.0
GONE = 410


class Expired(Exception):
    """The server no longer knows that resource version: list again."""


class Refused(Unanswered):
    """An answer that is not what was asked for; ``retry_after_seconds`` as the server wants it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(refusal(answer))
        self.retry_after_seconds = answer.retry_after_seconds


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[PodObject] | None = None


def of_node(node: str, **fields: object) -> str:
    """The path of a list or a watch of this node's pods: all that the node's own identity may ask for."""
    query = {"fieldSelector": f"spec.nodeName={node}", **fields}
    return f"{PODS}?{urlencode(query, quote_via=quote)}"


def check(answer: Answer) -> None:
    """Raises Expired, Refused."""
    if answer.code == GONE:
        raise Expired
    if not answer.ok:
        raise Refused(answer)


async def whole(caller: Caller, node: str) -> tuple[list[Known], str]:
    """All pods, and the resource version that they are of. Raises Expired, Unanswered."""
    pods, version = [], ""
    async for part in _parts(caller, node):
        pods += [known(each) for each in part.items or ()]
        version = part.metadata.resource_version
    return pods, version


async def _parts(caller: Caller, node: str) -> AsyncIterator[_List]:
    limit, more = PART_PODS, ""
    while True:
        fields = {"limit": limit, "continue": more} if more else {"limit": limit}
        answer = await caller.call("GET", of_node(node, **fields), seconds_max=PART_SECONDS_MAX)
        check(answer)
        try:
            part = msgspec.json.decode(answer.body, type=_List)
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"a list of pods that cannot be read: {error}") from None
        yield part
        more = part.metadata.more
        if not more:
            return
        if len(answer.body) > PART_BYTES:
            limit = max(1, limit * PART_BYTES // len(answer.body))
