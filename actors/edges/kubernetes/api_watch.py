"""Watches keep objects of one kind in memory as the API server has them.

After a break a watch continues at its place, and lists again only if the server has forgotten that. Bookmarks
move it while no object changes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient, LineStream, SilentStream
from ebbtide.actors.edges.kubernetes.known_pods import NO_LIST, KnownPod, PodObject, PodStore, project_pod
from ebbtide.actors.interfaces import NOTICE, WARNING, Outlet, Tell
from ebbtide.events import bounds
from ebbtide.events.facts import ApiRead

#: Random: watches must not all return together.
WATCH_SECONDS = (300, 600)
LIVENESS_PATH = "/readyz"
#: Short at first: a restarted server is soon back.
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
#: A loaded server may ask for minutes, when a shutdown would not know its pods.
RETRY_AFTER_SECONDS_MAX = 30.0
#: After a watch of this length the next begins without a pause.
LIVED_SECONDS = 1.0
#: After so many the server may never have had our place (a restored etcd).
REFUSALS_MAX = 5


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _StatusObject(msgspec.Struct):
    code: int = 0
    message: str = ""


_event_decoder = msgspec.json.Decoder(_WatchEvent)
_status_decoder = msgspec.json.Decoder(_StatusObject)

ItemT = TypeVar("ItemT")


class Watched(Generic[ItemT]):
    """``path`` makes the list's path from its query, ``project`` the stored item. ``part``: objects in a
    list's part. ``gather_seconds``: reads events within this time together.
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
        listed: Any = api.ListPart
        self.part_decoder: msgspec.json.Decoder[api.ListPart[Any]] = msgspec.json.Decoder(listed[kind])


class Store(Protocol[ItemT]):
    """``resource_version``: the watch's place; empty before the first list."""

    resource_version: str

    def replace(self, items: list[ItemT], resource_version: str, /) -> None: ...

    def put(self, item: ItemT, /) -> None: ...

    def remove(self, item: ItemT, /) -> None: ...


class Mirror(Generic[ItemT]):
    """``key``: the items' unique field. ``take(key, before, now)`` gets each change."""

    def __init__(self, key: str, take: Callable[[str, ItemT | None, ItemT | None], None]) -> None:
        self.resource_version = ""
        self.listed = trio.Event()
        self.kept: dict[str, ItemT] = {}
        self._key_of: Callable[[ItemT], str] = attrgetter(key)
        self._take = take

    def put(self, item: ItemT) -> None:
        key = self._key_of(item)
        before = self.kept.get(key)
        if before != item:
            self.kept[key] = item
            self._take(key, before, item)

    def remove(self, item: ItemT) -> None:
        key = self._key_of(item)
        before = self.kept.pop(key, None)
        if before is not None:
            self._take(key, before, None)

    def replace(self, items: list[ItemT], resource_version: str) -> None:
        self.resource_version = resource_version
        for gone in sorted(self.kept.keys() - set(map(self._key_of, items))):
            self.end(gone)
        for item in items:
            self.put(item)
        self.listed.set()

    def end(self, key: str) -> None:
        """A new list lacks this item."""
        self.remove(self.kept[key])


class Health(Protocol):
    """`ApiHealth` for the daemon, `Sees` for the controller."""

    def heard(self) -> None: ...

    async def answered(self) -> None: ...

    async def failed(self, error: str, since: float) -> None: ...


class _Silence:
    def __init__(self) -> None:
        self._failing_since = math.inf

    def is_away(self, since: float) -> bool:
        """A call that began at ``since`` failed, which proves little."""
        self._failing_since = min(self._failing_since, since)
        return trio.current_time() >= self._failing_since + bounds.now.api_away_seconds

    def end(self) -> None:
        self._failing_since = math.inf


class Sees:
    """``since``: when the watch began to see; infinite: it does not see. ``turned`` is called at a change."""

    def __init__(self, name: str, tell: Tell, turned: Callable[[], None]) -> None:
        self.since = math.inf
        self._name, self._tell, self._turned = name, tell, turned
        self._silence, self._is_told = _Silence(), False

    def heard(self) -> None:
        """No-op: the owner asks the server before it acts."""

    async def answered(self) -> None:
        self._silence.end()
        if self._is_told:
            self._tell(NOTICE, f"Kubernetes API: {self._name} are seen again")
            self._is_told = False
        if self.since == math.inf:
            self.since = trio.current_time()
            self._turned()

    async def failed(self, error: str, since: float) -> None:
        if self._silence.is_away(since) and not self._is_told:
            self._tell(WARNING, f"Kubernetes API: {self._name} are not seen: {error}")
            self._is_told = True
        if self.since != math.inf:
            self.since = math.inf
            self._turned()


class Watch(Generic[ItemT]):
    def __init__(self, link: ApiClient, watched: Watched[ItemT], store: Store[ItemT], health: Health) -> None:
        self._link = link
        self._watched = watched
        self._store = store
        self._health = health
        self._pause = PAUSE_SECONDS_MIN
        self._listed = False
        self._refusals = 0
        #: When the open question was asked; None: it only listens.
        self._since: float | None = None

    async def run(self) -> None:
        """Never fails."""
        while True:
            try:
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
                        self.apply_event(line)
                        self._pause, self._refusals = PAUSE_SECONDS_MIN, 0
                if trio.current_time() < began + LIVED_SECONDS:
                    await self._wait(0.0)
            except VersionExpired:
                self._listed = False
                await self._wait(0.0)
            except api.Unanswered as error:
                since = trio.current_time() if self._since is None else self._since
                await self._health.failed(str(error), since)
                asked_seconds = 0.0
                if isinstance(error, ApiRefused):
                    asked_seconds = error.retry_after_seconds
                    self._refusals += 1
                    self._listed = self._listed and self._refusals % REFUSALS_MAX != 0
                await self._wait(asked_seconds)

    def apply_event(self, line: bytes) -> None:
        try:
            event = _event_decoder.decode(line)
            if event.type == "ERROR":
                status = _status_decoder.decode(event.object)
                raise_unless_ok(api.Answer(status.code, msgspec.json.encode(status)))
            found = self._watched.decoder.decode(event.object)
        except (ValueError, RecursionError) as error:
            self._listed = False
            raise api.Unanswered(f"an event of the watch that cannot be read: {error}") from None
        # A bookmark only moves the version.
        if event.type == "DELETED":
            self._store.remove(self._watched.project(found))
        elif event.type in ("ADDED", "MODIFIED"):
            self._store.put(self._watched.project(found))
        if found.metadata.resource_version:
            self._store.resource_version = found.metadata.resource_version

    async def _wait(self, asked_seconds: float) -> None:
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(PAUSE_SECONDS_MAX, self._pause * 2)
        await trio.sleep(max(pause, min(asked_seconds, RETRY_AFTER_SECONDS_MAX)))

    async def _next(self, stream: LineStream) -> bytes | None:
        """A silent server may be away: a small call shows it."""
        while True:
            if self._watched.gather_seconds and not stream.has_line:
                await trio.sleep(self._watched.gather_seconds)
            try:
                line = await stream.line(bounds.now.watch_silence_seconds)
                self._health.heard()
                return line
            except SilentStream:
                self._since = trio.current_time()
                await ask_liveness(self._link)
                self._since = None


def pods_of(node: str) -> Watched[KnownPod]:
    return Watched(partial(api.pods_path, node), PodObject, project_pod, api.PART_PODS)


async def ask_liveness(caller: api.ApiCaller) -> None:
    """Raises Unanswered, also for an unwell server."""
    answer = await caller.call("GET", LIVENESS_PATH, seconds_max=bounds.now.api_liveness_seconds)
    if answer.code >= 500:
        raise_unless_ok(answer)


class VersionExpired(Exception):
    """List again."""


class ApiRefused(api.Unanswered):
    def __init__(self, answer: api.Answer) -> None:
        super().__init__(api.answer_text(answer))
        self.retry_after_seconds = answer.retry_after_seconds


def raise_unless_ok(answer: api.Answer) -> None:
    """Raises VersionExpired, ApiRefused."""
    if answer.code == api.HTTP_GONE:
        raise VersionExpired
    if not answer.ok:
        raise ApiRefused(answer)


async def list_watched(caller: api.ApiCaller, watched: Watched[ItemT]) -> tuple[list[ItemT], str]:
    """Returns the resource version too. Raises VersionExpired, Unanswered."""

    async def ask(path: str) -> api.Answer:
        answer = await caller.call("GET", path, seconds_max=bounds.now.api_unhurried_seconds)
        raise_unless_ok(answer)
        return answer

    return await api.list_in_parts(ask, watched.path, watched.part_decoder, watched.project, watched.part)


ERROR_CHARS_MAX = 300
NODE_USER = "system:node:"


async def may_taint(caller: api.ApiCaller, node: str, before: bool = True) -> bool:
    """``before``: if it cannot be learned. Whatever RBAC allows, NodeRestriction refuses changed taints from
    the node's own identity.
    """

    async def review(path: str, body: api.JsonObject) -> api.ReviewStatus:
        answer = await caller.call("POST", path, body=body, seconds_max=bounds.now.api_review_seconds)
        try:
            return api.reviewed(answer)
        except (ValueError, RecursionError):
            return api.ReviewStatus()

    try:
        who = await review(api.SELF_SUBJECT_REVIEWS, api.SELF_SUBJECT_REVIEW)
        if who.user_info.username.startswith(NODE_USER):
            return False
        asked = api.access_review({"verb": "patch", "resource": "nodes", "name": node})
        may = await review(api.SELF_SUBJECT_ACCESS_REVIEWS, asked)
    except api.Unanswered:
        return before
    return before if may.allowed is None else may.allowed


class ApiHealth:
    """The writers' caller. Reports changes as `ApiRead`, also to ``store``."""

    def __init__(self, caller: api.ApiCaller, node: str, outlet: Outlet, store: PodStore) -> None:
        self._caller, self._node, self._outlet, self._store = caller, node, outlet, store
        self._silence = _Silence()
        self._said: ApiRead | None = None
        self._taint = True
        #: Why a write got no answer, and when it began.
        self._doubt: tuple[str, float] | None = None
        self._news = trio.Event()

    def heard(self) -> None:
        self._doubt = None
        self._silence.end()
        if self._said is not None and not self._said.reachable:
            self._news.set()

    async def call(self, method: str, path: str, **fields: Any) -> api.Answer:
        """Raises Unanswered."""
        began = trio.current_time()
        try:
            answer = await self._caller.call(method, path, **fields)
        except api.Unanswered as error:
            if self._doubt is None:
                self._doubt = str(error), began
                self._news.set()
            raise
        # An overloaded or failing server is of no use.
        if answer.code < 500 and answer.code != api.HTTP_TOO_MANY:
            self.heard()
        return answer

    async def follow(self) -> None:
        """Check unanswered writes: the watch notices silence too late, and one write proves little."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            if self._doubt is None:
                await self.answered()
                continue
            error, since = self._doubt
            try:
                await ask_liveness(self._caller)
            except api.Unanswered:
                await trio.sleep_until(since + bounds.now.api_away_seconds)
                if self._doubt is not None:
                    await self.failed(error, since)
            self._doubt = None

    async def answered(self) -> None:
        """Checks our rights too: they change."""
        self._silence.end()
        self._taint = await may_taint(self._caller, self._node, self._taint)
        await self._say(ApiRead(reachable=True, taint=self._taint))

    async def failed(self, error: str, since: float) -> None:
        if self._silence.is_away(since) and (self._said is None or self._said.reachable):
            await self._say(ApiRead(reachable=False, error=error[:ERROR_CHARS_MAX], taint=self._taint))

    async def _say(self, fact: ApiRead) -> None:
        self._store.why_no_list = "" if fact.reachable else NO_LIST
        if fact != self._said:
            self._said = fact
            await self._outlet.put(fact)
