"""API calls: repeated within an order's time, in parallel, at a limited rate; objects, lists, finding pods.

An order names a pod by the runtime's UID; the watch has the API's name and UID for it.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import known_pods
from ebbtide.actors.interfaces import Ending, TraceContext, known_text
from ebbtide.events import bounds
from ebbtide.events.facts import API_ANSWERED
from ebbtide.events.units import bound_text

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Answer(NamedTuple):
    code: int
    body: bytes = b""
    retry_after_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300


class Unanswered(Exception):
    """``sent`` False: the request certainly did not leave."""

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class AnswerTooLong(Unanswered):
    """Ask for the list in parts."""


class ApiCaller(Protocol):
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
        """``path`` with its query; ``body`` is encoded as JSON. Raises Unanswered."""


HTTP_NOT_FOUND, HTTP_CONFLICT, HTTP_FORBIDDEN = 404, 409, 403
HTTP_GONE, HTTP_TOO_MANY, HTTP_TIMED_OUT = 410, 429, 504
#: Between two tries; doubles.
AGAIN_SECONDS = 0.05
AGAIN_SECONDS_MAX = 0.5
#: In the journal.
WHY_CHARACTERS_MAX = 200
#: Texts for a new object of this name, or an object of another node (NodeRestriction, and the node authorizer
#: since 1.32).
GONE_TEXTS = {
    HTTP_NOT_FOUND: ("",),
    HTTP_CONFLICT: ("UID in precondition", "UID in the precondition"),
    HTTP_FORBIDDEN: ("with spec.nodeName set to itself", "no relationship found between node"),
}


#: These quote no object. Other texts may quote a container's output.
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
    "failed calling webhook",
    "because it is being terminated",
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
    """The calls of one order, repeated within its time if the server says "later"."""

    def __init__(self, caller: ApiCaller, seconds_max: float, traceparent: str) -> None:
        self._caller = caller
        self._traceparent = traceparent
        self.until = trio.current_time() + seconds_max
        #: The server may have taken a request without an answer.
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
        """Raises Unanswered."""
        bound = bounds.now.api_try_seconds if seconds_max is None else seconds_max
        seconds = min(bound, self.left_seconds)
        if seconds <= 0:
            raise Unanswered("there was no time left to ask", sent=False)
        try:
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
        """Repeat after 429, 5xx and silence. Raises Unanswered; AnswerTooLong at once."""
        again = AGAIN_SECONDS
        while True:
            last: Answer | Unanswered
            try:
                last = await self.once(method, path, body, content_type)
            except AnswerTooLong:
                raise
            except Unanswered as error:
                last = error
            if isinstance(last, Answer) and last.code != HTTP_TOO_MANY and last.code < 500:
                return last
            pause = (isinstance(last, Answer) and last.retry_after_seconds) or again
            if pause >= self.left_seconds:
                if isinstance(last, Unanswered):
                    raise last
                return last
            await trio.sleep(pause)
            again = min(again * 2, again_seconds_max)


class WriteParts(NamedTuple):
    """For every writer. ``context``: the ``traceparent`` of an order's key."""

    caller: ApiCaller
    lookup: known_pods.PodStore
    node: str
    context: TraceContext

    def call(self, order_key: str, seconds_max: float) -> ApiCall:
        return ApiCall(self.caller, seconds_max, self.context(order_key))


def answer_text(answer: Answer) -> str:
    return f"{answer.code} {known_text(answer.body.decode(errors='replace'), API_TEXTS)}".rstrip()


def is_gone(answer: Answer) -> bool:
    """True also if the object is no longer on this node."""
    said = answer.body.decode(errors="replace")
    return any(each in said for each in GONE_TEXTS.get(answer.code, ()))


def is_doubtful(answer: Answer) -> bool:
    """The server gave up, but may still have written."""
    return answer.code == HTTP_TIMED_OUT or (answer.code >= 500 and b"timed out" in answer.body)


def answer_ending(answer: Answer) -> Ending:
    return Ending() if answer.ok else Ending("failed", f"{API_ANSWERED} {answer_text(answer)}")


def unanswered_ending(error: Unanswered) -> Ending:
    return Ending("timed-out", f"the API server: {str(error)[:WHY_CHARACTERS_MAX]}")


AT_ONCE_MAX = 32
QUICK_MAX = 8
#: A longer call waits for the server, so another may start.
QUICK_SECONDS = 0.05

WIDE_MAX = 110

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class CallSlots:
    """A new connection (TLS) costs more processor time than a call, just when the pods' ends need it. So only
    a slow server gets many calls in parallel.
    """

    def __init__(self) -> None:
        self._all, self._quick = trio.Semaphore(AT_ONCE_MAX), trio.Semaphore(QUICK_MAX)
        self._wide = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Exceptions come in a group."""

        async def make_room() -> None:
            try:
                await trio.sleep(QUICK_SECONDS)
            finally:
                self._quick.release()

        async with self._all:
            await self._quick.acquire()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(make_room)
                yield
                nursery.cancel_scope.cancel()

    def widen(self) -> None:
        if not self._wide:
            for each in (self._all, self._quick):
                for _ in range(WIDE_MAX):
                    each.release()
        self._wide = True


async def for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[ResultT]]) -> list[ResultT]:
    """Results in the order of the items."""
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


class PodState(msgspec.Struct, rename="camel"):
    phase: str = ""
    observed_generation: int = 0
    conditions: list[JsonObject] = []
    init_container_statuses: list[JsonObject] = []
    container_statuses: list[JsonObject] = []


class ApiPod(msgspec.Struct):
    metadata: known_pods.Metadata
    status: PodState = msgspec.field(default_factory=PodState)


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Not for pods: their annotations can be large."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
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
    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeState = msgspec.field(default_factory=NodeState)


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


NODES_PATH = "/api/v1/nodes"
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def node_path(node: str) -> str:
    return f"{NODES_PATH}/{quote(node, safe='')}"


#: As Kubernetes writes it.
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"


def rfc3339_now() -> str:
    return datetime.now(UTC).strftime(TIME_FORM)


def make_condition(
    conditions: list[JsonObject], kind: str, status: str, reason: str, message: str, **more: Any
) -> JsonObject:
    """``lastTransitionTime`` changes only with the status."""
    before = find_condition(conditions, kind)
    moved = before is None or before.get("status") != status or not before.get("lastTransitionTime")
    since = rfc3339_now() if before is None or moved else before["lastTransitionTime"]
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": since, **more}


def find_condition(conditions: list[JsonObject], kind: str) -> JsonObject | None:
    return next((each for each in conditions if each.get("type") == kind), None)


SELF_SUBJECT_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_SUBJECT_REVIEW: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
SELF_SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def access_review(attributes: JsonObject) -> JsonObject:
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


class User(msgspec.Struct):
    username: str = ""


class ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: User = msgspec.field(default_factory=User)
    allowed: bool | None = None


class Review(msgspec.Struct):
    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


def reviewed(answer: Answer) -> ReviewStatus:
    """Empty for an error. Raises ValueError, RecursionError."""
    return msgspec.json.decode(answer.body, type=Review).status if answer.ok else ReviewStatus()


def delete_options(uid: str, grace_seconds: int) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace_seconds,
        "preconditions": {"uid": uid},
    }


def disruption_target(conditions: list[JsonObject], **more: Any) -> JsonObject:
    return make_condition(conditions, DISRUPTION, "True", DISRUPTION_REASON, DISRUPTION_MESSAGE, **more)


class PartMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")


class ListPart(msgspec.Struct, Generic[ItemT]):
    metadata: PartMetadata
    items: list[ItemT] | None


_part_decoder = msgspec.json.Decoder(ListPart[ApiPod])


class ListDenied(Exception):
    """The API server refuses to list this node's pods."""


def listed_path(path: str, **fields: object) -> str:
    return f"{path}?{urlencode(fields, quote_via=quote)}"


def pods_path(node: str, **fields: object) -> str:
    """The node's own identity may list no others."""
    return listed_path("/api/v1/pods", fieldSelector=f"spec.nodeName={node}", **fields)


async def list_known_pods(call: ApiCall, node: str) -> dict[str, known_pods.KnownPod]:
    """By the runtime's UID. Raises Unanswered, ListDenied."""

    def known(pod: ApiPod) -> known_pods.KnownPod:
        meta = pod.metadata
        return known_pods.KnownPod(
            uid=known_pods.mirrored_uid(meta.name, meta.annotations, meta.owner_references) or meta.uid,
            api_uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            resource_version=meta.resource_version,
            phase=pod.status.phase,
            static=meta.annotations is not None and meta.annotations.mirror is not None,
        )

    return known_pods.by_runtime_uid(map(known, await list_pod_objects(call, node)))


async def list_pod_objects(call: ApiCall, node: str) -> list[ApiPod]:
    """Raises Unanswered, ListDenied."""

    async def ask(path: str) -> Answer:
        answer = await call.once("GET", path)
        if not answer.ok:
            kind = Unanswered if answer.code >= 429 or answer.code == HTTP_GONE else ListDenied
            raise kind(f"the list of pods: {answer_text(answer)}")
        return answer

    try:
        # From the server's cache: an old answer can only miss a final phase.
        answer = await ask(pods_path(node, resourceVersion=0))
        return _part_decoder.decode(answer.body).items or []
    except AnswerTooLong:
        # Parts come from etcd; the server's cache gives only whole lists.
        path = partial(pods_path, node)
        return (await list_in_parts(ask, path, _part_decoder, lambda pod: pod, LARGE_PART_PODS))[0]
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"the list of pods cannot be read: {error}") from None


#: A pod has about 8 KiB: 3 parts of 400 KiB for a full node.
PART_PODS = 50
#: The 50 largest possible pods have 75 MiB, and decoding takes up to 15 times as much.
PART_BYTES_MAX = 4 * 1024 * 1024
TOO_LONG_DIVISOR = 4
LARGE_PART_PODS = PART_PODS // TOO_LONG_DIVISOR


def is_part(path: str) -> bool:
    """Is it a part of a list, with several objects?"""
    limit = re.search(r"[?&]limit=([0-9]+)", path)
    return limit is not None and int(limit[1]) > 1


async def list_in_parts(
    ask: Callable[[str], Awaitable[Answer]],
    path: Callable[..., str],
    decoder: msgspec.json.Decoder[ListPart[ItemT]],
    project: Callable[[ItemT], ResultT],
    limit: int,
) -> tuple[list[ResultT], str]:
    """``path`` makes the list's path from its query. ``limit``: objects in a part; smaller after a part that
    is too long. Raises Unanswered, and the errors of ``ask``.
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
    """`list_in_parts` without the whole list in memory."""
    more, limit_max = "", limit
    while True:
        fields = {"limit": limit, "continue": more} if more else {"limit": limit}
        try:
            answer = await ask(path(**fields))
            if len(answer.body) > PART_BYTES_MAX and limit > 1:
                raise AnswerTooLong(f"a part of a list of more than {PART_BYTES_MAX} bytes")
        except AnswerTooLong:
            if limit == 1:
                raise
            limit = max(1, limit // TOO_LONG_DIVISOR)
            continue
        if len(answer.body) < PART_BYTES_MAX // TOO_LONG_DIVISOR:
            limit = min(limit_max, limit * TOO_LONG_DIVISOR)
        try:
            part = decoder.decode(answer.body)
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"a list that cannot be read: {error}") from None
        take(part.items or ())
        more = part.metadata.more
        if not more:
            return part.metadata.resource_version


async def find_pods(
    lookup: known_pods.PodStore, uids: Iterable[str], call: ApiCall, node: str
) -> dict[str, known_pods.KnownPod | None]:
    """One list shows whether unknown pods are gone (None). Raises Unanswered, ListDenied."""
    found = {uid: lookup.find(uid) for uid in uids}
    if any(pod is None for pod in found.values()):
        seen = await list_known_pods(call, node)
        found = {uid: pod or seen.get(uid) for uid, pod in found.items()}
    return found


#: The documentation promises 20: with the burst no ten seconds have more.
REQUESTS_PER_SECOND = 19
INTERVAL_SECONDS = 1 / REQUESTS_PER_SECOND
#: One outage begins with fewer, so it is not delayed.
BURST = 10
FIRST_EVERY = 4
#: A call may wait for this part of its time.
WAIT_FRACTION = 0.5

NODE, JOURNAL, OTHER, EVENT = range(4)


def rank_of(method: str, path: str) -> int:
    """The lowest goes first. Lists (with a query) and deletes can wait."""
    parts = path.split("/")
    if parts[-1] == "events":
        return EVENT
    if "?" in path or method == "DELETE":
        return OTHER
    if path.startswith((f"{NODES_PATH}/", f"{LEASES_PATH}/")):
        return NODE
    # A piece: "/api/v1/namespaces/ebbtide/configmaps", or one by name.
    return JOURNAL if "configmaps" in parts[5:6] else OTHER


class _Turn:
    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number
        self.news = trio.Event()


class Waiting(NamedTuple):
    nodes: int
    journals: int
    others: int
    events: int


class PacedCaller:
    """Limits the controller's requests: a hundred nodes that die at once begin a hundred journals.

    First come a Node and its lease, then the journals, because actions wait for them, and Events last. Every
    fourth request is the oldest of all. A call that is not sent in time raises Unanswered; if its task asks
    again, it keeps its place.
    """

    def __init__(self, caller: ApiCaller) -> None:
        self._caller = caller
        #: When all requests so far would have been sent at an even rate.
        self._even_at = -float("inf")
        #: By rank.
        self._turns: tuple[list[_Turn], ...] = ([], [], [], [])
        self._numbers: WeakKeyDictionary[trio.lowlevel.Task, int] = WeakKeyDictionary()
        self._came = self._sent = 0

    @property
    def waiting(self) -> Waiting:
        return Waiting(*map(len, self._turns))

    async def call(self, method: str, path: str, *, seconds_max: float, **fields: Any) -> Answer:
        began = trio.current_time()
        with trio.move_on_after(seconds_max * WAIT_FRACTION) as waiting:
            await self._turn(rank_of(method, path))
        if waiting.cancelled_caught:
            raise Unanswered("too many requests of our own wait to be sent", sent=False)
        left = seconds_max - (trio.current_time() - began)
        return await self._caller.call(method, path, seconds_max=left, **fields)

    async def _turn(self, rank: int) -> None:
        task = trio.lowlevel.current_task()
        self._came += 1
        turn = _Turn(rank, self._numbers.pop(task, self._came))
        insort(self._turns[rank], turn, key=lambda each: each.number)
        is_sent = False
        try:
            while not is_sent:
                now, at = trio.current_time(), self._even_at - (BURST - 1) * INTERVAL_SECONDS
                if self._next() is not turn:
                    await turn.news.wait()
                    turn.news = trio.Event()
                elif now < at:
                    await trio.sleep_until(at)
                else:
                    self._even_at = max(self._even_at, now) + INTERVAL_SECONDS
                    self._sent += 1
                    is_sent = True
        finally:
            self._turns[rank].remove(turn)
            if not is_sent:
                self._numbers[task] = turn.number
            if (following := self._next()) is not None:
                following.news.set()

    def _next(self) -> _Turn | None:
        heads = [turns[0] for turns in self._turns[:EVENT] if turns] or self._turns[EVENT][:1]
        if self._sent % FIRST_EVERY == FIRST_EVERY - 1:
            return min(heads, key=lambda each: each.number, default=None)
        return heads[0] if heads else None
