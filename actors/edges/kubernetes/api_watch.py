"""Watches: objects of one kind in memory, as the API server has them, for as long as the process runs.

The daemon's is of its node's pods; the controller's are of nodes and of leases. List once, then follow; after
a break go on where it broke, and list again only when the server has forgotten that place. Bookmarks move the
place on while nothing happens to what is watched. Everything that may end a watch does so often enough to be
normal: the server's own limit, a restart, a rotated identity, a balancer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_GONE,
    HTTP_TOO_MANY,
    JSON,
    PART_PODS,
    Answer,
    ApiCaller,
    ListPart,
    Unanswered,
    answer_text,
    list_in_parts,
    pods_path,
)
from ebbtide.actors.edges.kubernetes.api_client import LineStream, SilentStream
from ebbtide.actors.edges.kubernetes.known_pods import (
    NO_LIST,
    KnownPod,
    PodStore,
)
from ebbtide.actors.edges.kubernetes.pod_object import PodObject, project_pod
from ebbtide.actors.interfaces import NOTICE, WARNING, Outlet, Tell
from ebbtide.events import bounds
from ebbtide.events.facts import ApiRead

#: The server ends a watch after so long, differently each time: its watches do not come back together.
WATCH_SECONDS = (300, 600)
LIVENESS_PATH = "/readyz"
#: Between tries: begins short, since a restarted server is soon back, and ends where a cluster can bear it.
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
#: A server under load may ask for minutes; a shutdown in them would know nothing of its pods.
RETRY_AFTER_SECONDS_MAX = 30.0
#: A watch that lived so long was one: the next begins without a pause.
LIVED_SECONDS = 1.0
#: A server that refuses to go on from our place so often may never have been there (a restored etcd).
REFUSALS_MAX = 5


class Streamer(ApiCaller, Protocol):
    """`actors.edges.kubernetes.api_client.ApiClient`."""

    def stream(self, path: str, *, seconds_max: float) -> AbstractAsyncContextManager[LineStream]:
        """GET what comes line by line. Raises Unanswered."""


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _StatusObject(msgspec.Struct):
    code: int = 0
    message: str = ""


_event_decoder = msgspec.json.Decoder(_WatchEvent)
_status_decoder = msgspec.json.Decoder(_StatusObject)

ItemT = TypeVar("ItemT")


def listed_path(path: str, **fields: object) -> str:
    """Of a list or a watch of all objects there."""
    return f"{path}?{urlencode(fields, quote_via=quote)}"


class Watched(Generic[ItemT]):
    """What is watched: ``path`` of its list from the query's fields, the ``kind`` of its objects as far as
    they are decoded, what ``project`` keeps of each, and how many are asked for in one part of a list.
    ``gather_seconds``: what comes within so long is read together, because each reading costs more than what
    is read; 0: at once.
    """

    def __init__(
        self,
        path: Callable[..., str],
        kind: type[Any],
        project: Callable[[Any], ItemT],
        part: int,
        gather_seconds: float = 0.0,
    ) -> None:
        self.path, self.project, self.part = path, project, part
        self.gather_seconds = gather_seconds
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        listed: Any = ListPart
        self.part_decoder: msgspec.json.Decoder[ListPart[Any]] = msgspec.json.Decoder(listed[kind])


class Store(Protocol[ItemT]):
    """Where it is kept. ``resource_version``: where a watch goes on, empty before the first list;
    ``why_no_list``: why none is to be expected for now.
    """

    resource_version: str
    why_no_list: str

    def replace(self, items: list[ItemT], resource_version: str, /) -> None: ...

    def put(self, item: ItemT, /) -> None: ...

    def remove(self, item: ItemT, /) -> None: ...


class Health(Protocol):
    """Hears how the watch goes. `ApiHealth`."""

    @property
    def away(self) -> bool: ...

    def heard(self) -> None: ...

    async def answered(self) -> None: ...

    async def failed(self, error: str, since: float) -> None: ...


class Unheeded:
    """`Health` of a watch whose owner asks for itself before it acts."""

    away = False

    def heard(self) -> None: ...

    async def answered(self) -> None: ...

    async def failed(self, error: str, since: float) -> None: ...


class Sees(Unheeded):
    """Whether a watch sees what happens. ``since`` when; infinite: it does not. ``turned`` hears of each
    change, and ``tell`` what ``name`` says is not seen, once.
    """

    def __init__(self, name: str, tell: Tell, turned: Callable[[], None]) -> None:
        self.since = math.inf
        self._name, self._tell, self._turned = name, tell, turned
        self._failing_since = math.inf
        self._is_told = False

    async def answered(self) -> None:
        self._failing_since = math.inf
        if self._is_told:
            self._tell(NOTICE, f"Kubernetes API: {self._name} are seen again")
            self._is_told = False
        if self.since == math.inf:
            self.since = trio.current_time()
            self._turned()

    async def failed(self, error: str, since: float) -> None:
        now = trio.current_time()
        self._failing_since = min(self._failing_since, since)
        if now >= self._failing_since + bounds.now.api_away_seconds and not self._is_told:
            self._tell(WARNING, f"Kubernetes API: {self._name} are not seen: {error}")
            self._is_told = True
        if self.since != math.inf:
            self.since = math.inf
            self._turned()


class Watch(Generic[ItemT]):
    """Keeps ``store`` as the API server has what is watched."""

    def __init__(self, link: Streamer, watched: Watched[ItemT], store: Store[ItemT], health: Health) -> None:
        self._link = link
        self._watched = watched
        self._store = store
        self._health = health
        self._pause = PAUSE_SECONDS_MIN
        self._listed = False
        self._refusals = 0
        #: When what is asked at this moment was asked; None while there is only to listen.
        self._since: float | None = None

    async def run(self) -> None:
        """Until cancelled; never fails."""
        while True:
            try:
                # One list if need be, and one watch, from its begin to its end.
                self._since = trio.current_time()
                if not self._listed:
                    self._store.replace(*await list_watched(self._link, self._watched))
                    self._listed = True
                self._since = began = trio.current_time()
                path = self._watched.path(
                    watch=1,
                    allowWatchBookmarks="true",
                    resourceVersion=self._store.resource_version,
                    timeoutSeconds=random.randint(*WATCH_SECONDS),
                )
                async with self._link.stream(path, seconds_max=bounds.now.watch_open_seconds) as stream:
                    if stream.code != 200:
                        raise_unless_ok(await stream.answer(bounds.now.watch_open_seconds))
                    await self._health.answered()
                    self._since = None
                    while (line := await self._next(stream)) is not None:
                        self._apply_event(line)
                        self._pause, self._refusals = PAUSE_SECONDS_MIN, 0
                if trio.current_time() < began + LIVED_SECONDS:
                    await self._wait(0.0)
            except VersionExpired:
                self._listed = False
                await self._wait(0.0)
            except Unanswered as error:
                since = trio.current_time() if self._since is None else self._since
                await self._health.failed(str(error), since)
                self._store.why_no_list = NO_LIST if self._health.away else ""
                asked_seconds = 0.0
                if isinstance(error, ApiRefused):
                    asked_seconds = error.retry_after_seconds
                    # A place that the server refuses again and again is given up.
                    self._refusals += 1
                    self._listed = self._listed and self._refusals % REFUSALS_MAX != 0
                await self._wait(asked_seconds)

    def _apply_event(self, line: bytes) -> None:
        try:
            event = _event_decoder.decode(line)
            if event.type == "ERROR":
                # The same as a refusal of the watch would be.
                status = _status_decoder.decode(event.object)
                raise_unless_ok(Answer(status.code, msgspec.json.encode(status)))
            found = self._watched.decoder.decode(event.object)
        except (ValueError, RecursionError) as error:
            # We no longer know what there is: list again.
            self._listed = False
            raise Unanswered(f"an event of the watch that cannot be read: {error}") from None
        # Whatever else comes (a bookmark) only moves the version on.
        if event.type == "DELETED":
            self._store.remove(self._watched.project(found))
        elif event.type in ("ADDED", "MODIFIED"):
            self._store.put(self._watched.project(found))
        if found.metadata.resource_version:
            self._store.resource_version = found.metadata.resource_version

    async def _wait(self, asked_seconds: float) -> None:
        """Longer each time, and differently for each node; at least what the server asked for."""
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(PAUSE_SECONDS_MAX, self._pause * 2)
        await trio.sleep(max(pause, min(asked_seconds, RETRY_AFTER_SECONDS_MAX)))

    async def _next(self, stream: LineStream) -> bytes | None:
        """Silence may be a server that has nothing to say, or one that is not there: a small call tells."""
        while True:
            if self._watched.gather_seconds and not stream.has_line:
                stream.hold(True)
                try:
                    await trio.sleep(self._watched.gather_seconds)
                finally:
                    stream.hold(False)
            try:
                line = await stream.line(bounds.now.watch_silence_seconds)
                self._health.heard()
                return line
            except SilentStream:
                # Any answer but a server's own failure is one, whatever it allows us.
                self._since = trio.current_time()
                await ask_liveness(self._link)
                self._since = None


def pods_of(node: str) -> Watched[KnownPod]:
    """A node's pods."""
    return Watched(partial(pods_path, node), PodObject, project_pod, PART_PODS)


class PodWatch(Watch[KnownPod]):
    """Keeps ``store`` as the API server has the pods of ``node``."""

    def __init__(self, link: Streamer, node: str, store: PodStore, health: Health) -> None:
        super().__init__(link, pods_of(node), store, health)


async def ask_liveness(caller: ApiCaller) -> None:
    """Raises Unanswered also where a server only says that it is not well."""
    answer = await caller.call("GET", LIVENESS_PATH, seconds_max=bounds.now.api_liveness_seconds)
    if answer.code >= 500:
        raise_unless_ok(answer)


class VersionExpired(Exception):
    """The server no longer knows that resource version: list again."""


class ApiRefused(Unanswered):
    """An answer that is not what was asked for; ``retry_after_seconds`` as the server wants it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer_text(answer))
        self.retry_after_seconds = answer.retry_after_seconds


def raise_unless_ok(answer: Answer) -> None:
    """Raises VersionExpired, ApiRefused."""
    if answer.code == HTTP_GONE:
        raise VersionExpired
    if not answer.ok:
        raise ApiRefused(answer)


async def list_all(caller: ApiCaller, node: str) -> tuple[list[KnownPod], str]:
    """All pods of a node, and the resource version that they are of. Raises as `list_watched`."""
    return await list_watched(caller, pods_of(node))


async def list_watched(caller: ApiCaller, watched: Watched[ItemT]) -> tuple[list[ItemT], str]:
    """All of it, and the resource version that it is of. Raises VersionExpired, Unanswered."""

    async def ask(path: str) -> Answer:
        answer = await caller.call("GET", path, seconds_max=bounds.now.api_unhurried_seconds)
        raise_unless_ok(answer)
        return answer

    return await list_in_parts(ask, watched.path, watched.part_decoder, watched.project, watched.part)


# A call that fails says little: a restart of the API server, one of three behind a balancer that went. Only
# when nothing was answered for a while is it away, and the first answer brings it back.


#: The journal keeps it; a client's words may have no end.
ERROR_CHARS_MAX = 300
NODE_USER = "system:node:"

SELF_SUBJECT_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)
    allowed: bool = True


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def may_taint(caller: ApiCaller, node: str, before: bool = True) -> bool:
    """Whether we may change the node's taints; what was known ``before`` where it cannot be learned.

    A node's own identity may patch its Node, but NodeRestriction refuses changed taints to it, whatever
    RBAC allows (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
    """
    try:
        who = await _review(caller, SELF_SUBJECT_REVIEWS, "authentication.k8s.io/v1", "SelfSubjectReview", {})
        if who is not None and who.user_info.username.startswith(NODE_USER):
            return False
        spec = {"resourceAttributes": {"verb": "patch", "resource": "nodes", "name": node}}
        may = await _review(
            caller, SELF_SUBJECT_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SelfSubjectAccessReview", spec
        )
    except Unanswered:
        return before
    return before if may is None else may.allowed


async def _review(
    caller: ApiCaller, path: str, version: str, kind: str, spec: object
) -> _ReviewStatus | None:
    body = (
        {"apiVersion": version, "kind": kind, "spec": spec} if spec else {"apiVersion": version, "kind": kind}
    )
    answer = await caller.call("POST", path, body=body, seconds_max=bounds.now.api_review_seconds)
    try:
        return msgspec.json.decode(answer.body, type=_Review).status if answer.ok else None
    except (ValueError, RecursionError):
        return None


class ApiHealth:
    """Hears how calls went, and puts `ApiRead` on a change, which is also what an operator reads."""

    def __init__(self, caller: ApiCaller, node: str, outlet: Outlet) -> None:
        self._caller = caller
        self._node = node
        self._outlet = outlet
        self._failing_since: float | None = None
        self._said: ApiRead | None = None
        self._taint = True
        #: A write that was not answered: why, and when it began. Cleared by any answer.
        self._doubt: tuple[str, float] | None = None
        self._news = trio.Event()

    def heard(self) -> None:
        """The server has said something."""
        self._doubt = self._failing_since = None
        if self._said is not None and not self._said.reachable:
            self._news.set()

    def unheard(self, error: str, since: float) -> None:
        """A write that began at ``since`` was not answered."""
        if self._doubt is None:
            self._doubt = error, since
            self._news.set()

    async def follow(self) -> None:
        """Until cancelled: what writes have met is looked into, and put on record.

        The watch would notice silence after some ten seconds only, and a shutdown is over by then. A write
        has little time, so one that is not answered is no proof: the server is asked whether it is there.
        """
        while True:
            await self._news.wait()
            self._news = trio.Event()
            if self._doubt is None:
                await self.answered()
                continue
            error, since = self._doubt
            try:
                await ask_liveness(self._caller)
            except Unanswered:
                await trio.sleep_until(since + bounds.now.api_away_seconds)
                if self._doubt is not None:
                    await self.failed(error, since)
            # The next write that is not answered begins anew.
            self._doubt = None

    @property
    def away(self) -> bool:
        """Is it on record as away?"""
        return self._said is not None and not self._said.reachable

    async def answered(self) -> None:
        """What we need was answered; also looks what we may do there, since rights change."""
        self._failing_since = None
        self._taint = await may_taint(self._caller, self._node, self._taint)
        await self._say(ApiRead(reachable=True, taint=self._taint))

    async def failed(self, error: str, since: float) -> None:
        """A call that began at ``since`` failed, be it that it was not answered or that it was refused."""
        now = trio.current_time()
        self._failing_since = since if self._failing_since is None else min(since, self._failing_since)
        is_away = now >= self._failing_since + bounds.now.api_away_seconds
        if is_away and (self._said is None or self._said.reachable):
            await self._say(ApiRead(reachable=False, error=error[:ERROR_CHARS_MAX], taint=self._taint))

    async def _say(self, fact: ApiRead) -> None:
        if fact != self._said:
            self._said = fact
            await self._outlet.put(fact)


class HeardCaller:
    """The writers' caller: what they meet tells of the server's health too, once it is listened to."""

    def __init__(self, caller: ApiCaller) -> None:
        self._caller = caller
        self.health: ApiHealth | None = None

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
        """Raises Unanswered."""
        began = trio.current_time()
        try:
            answer = await self._caller.call(
                method,
                path,
                body=body,
                content_type=content_type,
                seconds_max=seconds_max,
                traceparent=traceparent,
                accept=accept,
            )
        except Unanswered as error:
            if self.health is not None:
                self.health.unheard(str(error), began)
            raise
        # One that says "later", or that it failed, is there, but of no use: that tells nothing.
        if self.health is not None and answer.code < 500 and answer.code != HTTP_TOO_MANY:
            self.health.heard()
        return answer
