"""What all writers share: a call that is repeated within one short time, several calls at a time, objects,
and finding pods.

A write in a shutdown has one short time, and a server that says "later" within it is asked again. Whoever
calls gets the server's last word or `Unanswered`, never an answer after the time. What the answers mean for
a pod that may have gone meanwhile is said here as well, once for all writers.

Each call that is out needs a connection of its own, and a new one costs both sides more of the processor
than the call (TLS), just when the pods' ends need it. So few go out together while the server answers at
once, and more where it is slow, when waiting is all that it costs.

Only the fields that a writer looks at are decoded; what it passes on unchanged stays a plain dictionary.

An order names a pod by the UID that the runtime knows; the API wants namespace, name and its own UID. The
watch knows them. A pod that it does not know may be gone, or the watch may not be there yet (after a
restart in mid-shutdown, after a boot): then one list of this node's pods answers for all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.known_pods import (
    Annotations,
    KnownPod,
    Owner,
    PodLookup,
    by_runtime_uid,
    mirrored_uid,
)
from ebbtide.actors.interfaces import Ending, known_text
from ebbtide.events import bounds
from ebbtide.events.units import bound_text

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Answer(NamedTuple):
    """HTTP's status code and body; ``retry_after_seconds`` as the server asks for it, else 0."""

    code: int
    body: bytes = b""
    retry_after_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300


class Unanswered(Exception):
    """No answer in time: the connection, TLS, a token that cannot be had, or a server that is silent.

    ``sent`` False: for certain nothing of the request has left us, so nobody can have done what it asks for.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class AnswerTooLong(Unanswered):
    """It answers more than is taken of one answer: whoever asked for a list may ask for a part of it."""


class ApiCaller(Protocol):
    """One call to the API server."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float,
        traceparent: str = "",
        accept: str = JSON,
    ) -> Answer:
        """``path`` with its query, ``body`` to be encoded as JSON. Raises Unanswered."""


HTTP_NOT_FOUND, HTTP_CONFLICT, HTTP_FORBIDDEN = 404, 409, 403
HTTP_GONE, HTTP_TOO_MANY, HTTP_TIMED_OUT = 410, 429, 504
#: Between two tries where the server names no time: doubled from the first, up to the last.
AGAIN_SECONDS = 0.05
AGAIN_SECONDS_MAX = 0.5
#: Of what an error is about, in our own words; the journal keeps it.
WHY_CHARACTERS_MAX = 200
#: By code, how the server says that the object of that name is another one by now (a patch's words, and a
#: delete's), and that it is not, or no longer, on the node whose identity asks (NodeRestriction, and the node
#: authorizer since 1.32).
GONE_TEXTS = {
    HTTP_NOT_FOUND: ("",),
    HTTP_CONFLICT: ("UID in precondition", "UID in the precondition"),
    HTTP_FORBIDDEN: ("with spec.nodeName set to itself", "no relationship found between node"),
}


#: What an API server may say beside its code, and nothing of it is an object's. Its other words may quote
#: one, and what was written, with all that its containers have said at their end.
API_TEXTS = (
    "cannot get resource",
    "cannot list resource",
    "cannot watch resource",
    "cannot create resource",
    "cannot update resource",
    "cannot patch resource",
    "cannot delete resource",
    "set to itself",
    "no relationship found between node",
    "is not allowed to modify taints",
    "not found",
    "admission webhook",
    "ValidatingAdmissionPolicy",
    "exceeded quota",
    "the object has been modified",
    "in precondition",
    "in the precondition",
    "required revision has been compacted",
    "storage is (re)initializing",
    "etcdserver: request timed out",
    "Timeout: request did not complete",
)


class ApiCall:
    """The calls of one order: to the same server, under the same trace, and within the same time."""

    def __init__(self, caller: ApiCaller, seconds_max: float, traceparent: str) -> None:
        self._caller = caller
        self._traceparent = traceparent
        self.until = trio.current_time() + seconds_max
        #: Something was sent, and nothing has said yet whether it was taken.
        self.in_doubt = False

    @property
    def left_seconds(self) -> float:
        return max(0.0, self.until - trio.current_time())

    async def once(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float | None = None,
    ) -> Answer:
        """One try, within what is left and ``seconds_max``. Raises Unanswered."""
        bound = bounds.now.api_try_seconds if seconds_max is None else seconds_max
        seconds = min(bound, self.left_seconds)
        if seconds <= 0:
            raise Unanswered("there was no time left to ask", sent=False)
        try:
            # A little later than the caller's own bound, which knows whether anything was sent.
            with trio.move_on_after(seconds + bounds.now.api_late_seconds):
                answer = await self._caller.call(
                    method,
                    path,
                    body=body,
                    content_type=content_type,
                    seconds_max=seconds,
                    traceparent=self._traceparent,
                )
                self.in_doubt = self.in_doubt or is_doubtful(answer)
                return answer
            raise Unanswered(f"no answer in {bound_text(seconds)}")
        except Unanswered as error:
            self.in_doubt = self.in_doubt or error.sent
            raise

    async def until_answered(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        again_seconds_max: float = AGAIN_SECONDS_MAX,
    ) -> Answer:
        """Again after 429, 5xx and silence while there is time. Raises Unanswered; AnswerTooLong at once:
        to the same question it would be the same answer.
        """
        again = AGAIN_SECONDS
        while True:
            last: Answer | Unanswered
            try:
                last = await self.once(method, path, body, content_type)
            except AnswerTooLong:
                raise
            except Unanswered as error:
                last = error
            # Any other answer stays what it is, however often the question is asked.
            if isinstance(last, Answer) and last.code != HTTP_TOO_MANY and last.code < 500:
                return last
            asked = last.retry_after_seconds if isinstance(last, Answer) else 0.0
            pause = asked or again
            # One that says "in ten seconds" to somebody who has two has refused.
            if pause >= self.left_seconds:
                if isinstance(last, Unanswered):
                    raise last
                return last
            await trio.sleep(pause)
            again = min(again * 2, again_seconds_max)


def answer_text(answer: Answer) -> str:
    """The code, and what is known of the server's words for it, for people."""
    return f"{answer.code} {known_text(answer.body.decode(errors='replace'), API_TEXTS)}".rstrip()


def is_gone(answer: Answer) -> bool:
    """Is what was asked for no longer there, or no longer on this node?"""
    said = answer.body.decode(errors="replace")
    return any(each in said for each in GONE_TEXTS.get(answer.code, ()))


def is_doubtful(answer: Answer) -> bool:
    """The server gave up on what it may still have written: its own time, or etcd's, was over."""
    return answer.code == HTTP_TIMED_OUT or (answer.code >= 500 and b"timed out" in answer.body)


def answer_ending(answer: Answer) -> Ending:
    """Of an order that was this one call."""
    return Ending() if answer.ok else Ending("failed", f"the API server answered {answer_text(answer)}")


def unanswered_ending(error: Unanswered) -> Ending:
    return Ending("timed-out", f"the API server: {str(error)[:WHY_CHARACTERS_MAX]}")


#: As many calls at once as the caller keeps connections.
AT_ONCE_MAX = 32
#: Of these, such as are answered at once: an answer takes milliseconds, so a wave is out in some tens.
QUICK_MAX = 8
#: One that is out for longer waits for the server, and another may go out beside it.
QUICK_SECONDS = 0.05

#: A server that has answered, and is slow, gets a whole wave at once: the connections of one session.
WIDE_MAX = 110

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class CallSlots:
    """For whatever goes out at the same time."""

    def __init__(self) -> None:
        self._all, self._quick = trio.Semaphore(AT_ONCE_MAX), trio.Semaphore(QUICK_MAX)
        self._wide = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the time of the block. What it raises comes in a group."""
        async with self._all:
            await self._quick.acquire()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._make_room)
                yield
                nursery.cancel_scope.cancel()

    def widen(self) -> None:
        """From now on there is a place for everybody."""
        if not self._wide:
            for each in (self._all, self._quick):
                for _ in range(WIDE_MAX):
                    each.release()
        self._wide = True

    async def _make_room(self) -> None:
        """Give the quick place back: when the work is done, which cancels this, or when it is slow."""
        try:
            await trio.sleep(QUICK_SECONDS)
        finally:
            self._quick.release()


async def for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[ResultT]]) -> list[ResultT]:
    """The results in the order of the items."""
    slots, given = CallSlots(), list(items)
    results: dict[int, ResultT] = {}

    async def one(at: int, item: ItemT) -> None:
        async with slots.one():
            results[at] = await work(item)

    async with trio.open_nursery() as nursery:
        for at, item in enumerate(given):
            nursery.start_soon(one, at, item)
    return [results[at] for at in range(len(given))]


JsonObject = dict[str, Any]

#: As the kubelet writes it (pkg/kubelet/nodeshutdown).
DISRUPTION = "DisruptionTarget"
DISRUPTION_REASON = "TerminationByKubelet"
DISRUPTION_MESSAGE = "Pod was terminated in response to imminent node shutdown."


class PodMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: Annotations = msgspec.field(default_factory=Annotations)
    owner_references: list[Owner] = []


class PodState(msgspec.Struct, rename="camel"):
    phase: str = ""
    observed_generation: int = 0
    conditions: list[JsonObject] = []
    init_container_statuses: list[JsonObject] = []
    container_statuses: list[JsonObject] = []


class ApiPod(msgspec.Struct):
    metadata: PodMeta
    status: PodState = msgspec.field(default_factory=PodState)


class NodeMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class NodeSpec(msgspec.Struct):
    taints: list[JsonObject] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeInfo(msgspec.Struct):
    boot_id: str = msgspec.field(default="", name="bootID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeAddress(msgspec.Struct):
    type: str = ""
    address: str = ""


class KubeletEndpoint(msgspec.Struct):
    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(msgspec.Struct, rename="camel"):
    kubelet_endpoint: KubeletEndpoint = msgspec.field(default_factory=KubeletEndpoint)


class NodeState(msgspec.Struct, rename="camel"):
    conditions: list[JsonObject] = []
    node_info: NodeInfo = msgspec.field(default_factory=NodeInfo)
    volumes_in_use: list[str] = []
    addresses: list[NodeAddress] = []
    daemon_endpoints: DaemonEndpoints = msgspec.field(default_factory=DaemonEndpoints)


class ApiNode(msgspec.Struct):
    metadata: NodeMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeState = msgspec.field(default_factory=NodeState)


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def node_path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


def rfc3339_now() -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes its times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_condition(
    conditions: list[JsonObject], kind: str, status: str, reason: str, message: str, **more: Any
) -> JsonObject:
    """A condition as it shall be; the time of its last transition moves only with its status."""
    before = find_condition(conditions, kind)
    moved = before is None or before.get("status") != status or not before.get("lastTransitionTime")
    since = rfc3339_now() if before is None or moved else before["lastTransitionTime"]
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": since, **more}


def find_condition(conditions: list[JsonObject], kind: str) -> JsonObject | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def delete_options(uid: str, grace_seconds: int) -> JsonObject:
    """A delete of this pod and of no later one of its name."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace_seconds,
        "preconditions": {"uid": uid},
    }


def disruption_target(conditions: list[JsonObject], **more: Any) -> JsonObject:
    """The reference's ``DisruptionTarget``."""
    return make_condition(conditions, DISRUPTION, "True", DISRUPTION_REASON, DISRUPTION_MESSAGE, **more)


class PartMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")


class ListPart(msgspec.Struct, Generic[ItemT]):
    """A list, or a part of one."""

    metadata: PartMetadata
    items: list[ItemT] | None


_part_decoder = msgspec.json.Decoder(ListPart[ApiPod])


class ListDenied(Exception):
    """The API server will not list this node's pods; says why."""


def pods_path(node: str, **fields: object) -> str:
    """The path of a list or a watch of this node's pods: all that the node's own identity may ask for."""
    query = {"fieldSelector": f"spec.nodeName={node}", **fields}
    return f"/api/v1/pods?{urlencode(query, quote_via=quote)}"


async def list_known_pods(call: ApiCall, node: str) -> dict[str, KnownPod]:
    """This node's pods by the runtime's UID. Raises Unanswered, ListDenied."""
    try:
        return by_runtime_uid(map(_known_of_object, await list_pod_objects(call, node)))
    except AnswerTooLong:
        # Parts come from etcd, where the server's cache gives a list as a whole only: so not at once.
        parts = await list_in_parts(
            lambda path: _ask_for_list(call, path),
            partial(pods_path, node),
            _part_decoder,
            _known_of_object,
            LARGE_PART_PODS,
        )
        return by_runtime_uid(parts[0])


async def list_pod_objects(call: ApiCall, node: str) -> list[ApiPod]:
    """The same as what a writer reads of each. Raises AnswerTooLong, Unanswered, ListDenied."""
    # From the server's cache (``resourceVersion=0``): an old answer can only miss what is final by now.
    answer = await _ask_for_list(call, pods_path(node, resourceVersion=0))
    try:
        return _part_decoder.decode(answer.body).items or []
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"the list of pods cannot be read: {error}") from None


async def _ask_for_list(call: ApiCall, path: str) -> Answer:
    """Raises Unanswered, ListDenied."""
    answer = await call.once("GET", path)
    if not answer.ok:
        kind = Unanswered if answer.code >= 429 or answer.code == HTTP_GONE else ListDenied
        raise kind(f"the list of pods: {answer_text(answer)}")
    return answer


# A pod object can be 1.5 MiB, and a list of them is one answer. So a list is asked for in parts, and after a
# part that was large the next ones are smaller.

#: A pod is about 8 KiB: 400 KiB a part, 3 parts for a node that is full.
PART_PODS = 50
#: After a part beyond this, the next ones ask for fewer pods.
PART_BYTES = 4 * 1024 * 1024
#: After a part that was too long to be taken, so many times fewer: of the largest pods 50 have 75 MiB.
TOO_LONG_DIVISOR = 4
#: Where all of them have been too long already.
LARGE_PART_PODS = PART_PODS // TOO_LONG_DIVISOR


async def list_in_parts(
    ask: Callable[[str], Awaitable[Answer]],
    path: Callable[..., str],
    decoder: msgspec.json.Decoder[ListPart[ItemT]],
    project: Callable[[ItemT], ResultT],
    limit: int,
) -> tuple[list[ResultT], str]:
    """What is made of each object, and the resource version that they are of; ``path``: of the list, from its
    query's fields; ``limit``: so many in the first part. Raises Unanswered, and what ``ask`` raises.
    """
    found: list[ResultT] = []
    version = await take_parts(ask, path, decoder, lambda part: found.extend(map(project, part)), limit)
    return found, version


async def take_parts(
    ask: Callable[[str], Awaitable[Answer]],
    path: Callable[..., str],
    decoder: msgspec.json.Decoder[ListPart[ItemT]],
    take: Callable[[Sequence[ItemT]], None],
    limit: int,
) -> str:
    """The same of a list that need not be in memory as a whole: ``take`` is given each part."""
    more = ""
    while True:
        fields = {"limit": limit, "continue": more} if more else {"limit": limit}
        try:
            answer = await ask(path(**fields))
        except AnswerTooLong:
            if limit == 1:
                raise
            limit = max(1, limit // TOO_LONG_DIVISOR)
            continue
        try:
            part = decoder.decode(answer.body)
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"a list that cannot be read: {error}") from None
        take(part.items or ())
        more = part.metadata.more
        if not more:
            return part.metadata.resource_version
        if len(answer.body) > PART_BYTES:
            limit = max(1, limit * PART_BYTES // len(answer.body))


def _known_of_object(pod: ApiPod) -> KnownPod:
    meta = pod.metadata
    return KnownPod(
        uid=mirrored_uid(meta.name, meta.annotations, meta.owner_references) or meta.uid,
        api_uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        phase=pod.status.phase,
        static=meta.annotations.mirror is not None,
    )


async def find_pods(
    lookup: PodLookup, uids: Iterable[str], call: ApiCall, node: str
) -> dict[str, KnownPod | None]:
    """None: gone from the API. Raises Unanswered, ListDenied where that could not be told."""
    found = {uid: lookup.find(uid) for uid in uids}
    if any(pod is None for pod in found.values()):
        seen = await list_known_pods(call, node)
        found = {uid: pod or seen.get(uid) for uid, pod in found.items()}
    return found
