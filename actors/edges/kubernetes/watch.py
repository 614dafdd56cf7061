"""The warm watch: this node's pods in memory, as the API server has them, for as long as the daemon runs.

List once, then follow; after a break go on where it broke, and list again only when the server has forgotten
that place. Bookmarks move the place on while nothing happens to our own pods. Everything that may end a watch
does so often enough to be normal: the server's own limit, a restart, a rotated identity, a balancer.
"""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
import trio

from actors.edges.kubernetes.calling import Answer, Caller, Unanswered
from actors.edges.kubernetes.health import Health
from actors.edges.kubernetes.pages import GONE, Expired, Refused, check, of_node, whole
from actors.edges.kubernetes.projection import PodObject, known
from actors.edges.kubernetes.store import Store
from actors.edges.kubernetes.streams import Silent, Stream

#: The server ends a watch after so long, differently each time: its watches do not come back together.
WATCH_SECONDS = (300, 600)
#: A watch says at least a bookmark a minute; after so long without a byte the server is asked for a sign,
#: which is as often as a kubelet renews its lease.
SILENCE_SECONDS = 10.0
SIGN = "/readyz"
SIGN_SECONDS_MAX = 2.0
OPEN_SECONDS_MAX = 3.0
#: Between tries: begins short, since a restarted server is soon back, and ends where a cluster can bear it.
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
RETRY_AFTER_SECONDS_MAX = 30.0
#: A watch that lived so long was one: the next begins without a pause.
LIVED_SECONDS = 1.0
#: A server that refuses to go on from our place so often may never have been there (a restored etcd).
REFUSALS_MAX = 5


class Streamer(Caller, Protocol):
    """`actors.edges.kubernetes.link.Link`."""

    def stream(self, path: str, *, seconds_max: float) -> AbstractAsyncContextManager[Stream]:
        """GET what comes line by line. Raises Unanswered."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_events = msgspec.json.Decoder(_Event)
_pods = msgspec.json.Decoder(PodObject)
_statuses = msgspec.json.Decoder(_Status)


class Watch:
    """Keeps ``store`` as the API server has the pods of ``node``."""

    def __init__(self, link: Streamer, node: str, store: Store, health: Health) -> None:
        self._link = link
        self._node = node
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
                await self._round()
            except Expired:
                self._listed = False
                await self._wait(0.0)
            except Unanswered as error:
                since = trio.current_time() if self._since is None else self._since
                await self._health.failed(str(error), since)
                await self._wait(self._refused(error))

    def _refused(self, error: Unanswered) -> float:
        """Seconds that the server asks for; a place that it refuses again and again is given up."""
        if not isinstance(error, Refused):
            return 0.0
        self._refusals += 1
        self._listed = self._listed and self._refusals % REFUSALS_MAX != 0
        return error.retry_after_seconds

    async def _round(self) -> None:
        """One list if need be, and one watch, from its begin to its end."""
        self._since = trio.current_time()
        if not self._listed:
            self._store.replace(*await whole(self._link, self._node))
            self._listed = True
        self._since = began = trio.current_time()
        await self._watch()
        if trio.current_time() < began + LIVED_SECONDS:
            await self._wait(0.0)

    async def _wait(self, asked_seconds: float) -> None:
        """Longer each time, and differently for each node; at least what the server asked for."""
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(PAUSE_SECONDS_MAX, self._pause * 2)
        await trio.sleep(max(pause, min(asked_seconds, RETRY_AFTER_SECONDS_MAX)))

    async def _watch(self) -> None:
        path = of_node(
            self._node,
            watch=1,
            allowWatchBookmarks="true",
            resourceVersion=self._store.resource_version,
            timeoutSeconds=random.randint(*WATCH_SECONDS),
        )
        async with self._link.stream(path, seconds_max=OPEN_SECONDS_MAX) as stream:
            if stream.code != 200:
                check(await stream.answer(OPEN_SECONDS_MAX))
            await self._health.answered()
            self._since = None
            while (line := await self._next(stream)) is not None:
                self._take(line)
                self._pause, self._refusals = PAUSE_SECONDS_MIN, 0

    async def _next(self, stream: Stream) -> bytes | None:
        """Silence may be a server that has nothing to say, or one that is not there: a small call tells."""
        while True:
            try:
                return await stream.line(SILENCE_SECONDS)
            except Silent:
                await self._sign()

    async def _sign(self) -> None:
        """Any answer but a server's own failure is one, whatever it allows us."""
        self._since = trio.current_time()
        answer = await self._link.call("GET", SIGN, seconds_max=SIGN_SECONDS_MAX)
        if answer.code >= 500:
            check(answer)
        self._since = None

    def _take(self, line: bytes) -> None:
        """One event. What cannot be read means that we no longer know what there is: list again."""
        try:
            event = _events.decode(line)
            if event.type == "ERROR":
                raise _ended(_statuses.decode(event.object))
            pod = _pods.decode(event.object)
        except (ValueError, RecursionError) as error:
            self._listed = False
            raise Unanswered(f"an event of the watch that cannot be read: {error}") from None
        self._apply(event.type, pod)

    def _apply(self, kind: str, pod: PodObject) -> None:
        metadata = pod.metadata
        if kind == "DELETED":
            self._store.remove(metadata.uid)
        elif kind in ("ADDED", "MODIFIED"):
            self._store.put(known(pod))
        if metadata.resource_version:
            self._store.resource_version = metadata.resource_version


def _ended(status: _Status) -> Exception:
    """The same as a refusal of the watch would be."""
    if status.code == GONE:
        return Expired()
    return Refused(Answer(status.code, msgspec.json.encode(status)))
