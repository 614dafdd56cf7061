"""The connection to the API server: calls with bounds, streams, and an identity that follows its files.

The client is asyncio's; trio-asyncio lends it a loop, and Trio's tasks wait for its calls. This module is
the only one that knows either, and it is imported once the node is armed (`actors.edges.kubernetes.edge`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio_asyncio

from actors.edges.kubernetes import light
from actors.edges.kubernetes.calling import JSON, Answer, Unanswered
from actors.edges.kubernetes.credentials import Credentials
from actors.edges.kubernetes.idle import Idle
from actors.edges.kubernetes.kubeconfig import Access, Unusable
from actors.edges.kubernetes.session import Session, noticing
from actors.edges.kubernetes.streams import Stream
from actors.edges.kubernetes.unsaid import reason

#: A session, and aiohttp's response whose body is still to come.
Begun = tuple[Session, Any]
Tell = Callable[[int, str], None]
WARNING, NOTICE = 4, 5

USER_AGENT = "ebbtide"
UNAUTHORIZED = 401
#: How soon a rotated token or certificate is noticed, when nothing has failed; and when something has.
FILES_SECONDS = 5.0
DOUBT_SECONDS = 0.2
#: Calls under way keep the connections that they began on; none of them is allowed to take longer.
OLD_SESSION_SECONDS = 30.0
#: The largest answer that anything here asks for is a part of a list; a body beyond this is no answer.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
#: Connections end while the loop is still there; there is little to wait for.
END_SECONDS_MAX = 1.0
#: What others still do with the connection when all of us are cancelled is over at once.
IDLE_SECONDS_MAX = 1.0


class Link:
    """``kubeconfig`` None: as the pod that we run in. ``tell``: a line for the operator, with its level."""

    def __init__(self, kubeconfig: Path | None, tell: Tell = lambda level, line: None) -> None:
        self._credentials = Credentials(kubeconfig)
        self._tell = tell
        self._told = ""
        self._client: light.Client | None = None
        self._loop: trio_asyncio.BaseTrioEventLoop | None = None
        self._nursery: trio.Nursery | None = None
        self._session: Session | None = None
        self._idle = Idle()
        #: A call failed: the files may say that the server is elsewhere now.
        self._doubt = trio.Event()
        #: Why there is no session yet.
        self._unusable = "it is not connected yet"

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; calls fail before it has started. Raises light.Missing."""
        self._client = await trio.to_thread.run_sync(light.load)
        async with trio_asyncio.open_loop() as loop, trio.open_nursery() as nursery:
            self._loop, self._nursery = loop, nursery
            await self._renew()
            task_status.started()
            try:
                await self._follow_files()
            finally:
                self._loop = None
                with trio.CancelScope(shield=True):
                    await self._close(loop)

    async def _close(self, loop: trio_asyncio.BaseTrioEventLoop) -> None:
        with trio.move_on_after(IDLE_SECONDS_MAX):
            await self._idle.wait()
        if self._session is not None:
            await self._end(loop, self._session)

    @staticmethod
    async def _end(loop: trio_asyncio.BaseTrioEventLoop, session: Session) -> None:
        await loop.run_aio_coroutine(session.close())
        await session.end(END_SECONDS_MAX)

    # --- identity --------------------------------------------------------------------------------

    async def _follow_files(self) -> None:
        while True:
            await trio.sleep(DOUBT_SECONDS)
            with trio.move_on_after(FILES_SECONDS):
                await self._doubt.wait()
            self._doubt = trio.Event()
            await self._renew()

    async def _renew(self, *, refused: bool = False) -> None:
        """Take what changed. What is unusable is said once, and the last good stays."""
        assert self._client is not None
        try:
            access = await self._credentials.refresh(refused=refused)
            if self._session is None or self._session.key != access.connection():
                self._replace(
                    await trio.to_thread.run_sync(Session, self._client, access, abandon_on_cancel=True)
                )
        except Unusable as error:
            self._say_unusable(str(error))
            return
        if self._told:
            self._tell(NOTICE, "Kubernetes API: the credentials can be used again")
        self._told = ""

    def _say_unusable(self, error: str) -> None:
        if self._session is None:
            self._unusable = error
        if error != self._told:
            self._tell(WARNING, f"Kubernetes API: {error}")
        self._told = error

    def _replace(self, session: Session) -> None:
        old, self._session = self._session, session
        if old is not None and self._nursery is not None:
            self._nursery.start_soon(self._retire, old)

    async def _retire(self, old: Session) -> None:
        loop = self._loop
        assert loop is not None
        old.hang_up()
        try:
            await trio.sleep(OLD_SESSION_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await self._end(loop, old)

    # --- calls -----------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float,
        traceparent: str = "",
    ) -> Answer:
        """One call; again with fresh credentials where the server refused the old. Raises Unanswered."""
        headers = _headers(content_type, traceparent)
        with noticing() as sending:
            try:
                with trio.move_on_after(seconds_max):
                    used = self._credentials.access
                    answer = await self._send(method, path, headers, body)
                    if answer.code == UNAUTHORIZED and await self._has_newer(used):
                        answer = await self._send(method, path, headers, body)
                    return answer
                raise self._silent(f"{method} {_place(path)}", seconds_max)
            except Unanswered as error:
                error.sent = sending.begun
                raise

    async def _has_newer(self, used: Access | None) -> bool:
        """Others may have been refused at the same moment, and have seen to it."""
        if self._credentials.access is used:
            await self._renew(refused=True)
        return self._credentials.access is not used

    async def _send(self, method: str, path: str, headers: dict[str, str], body: object) -> Answer:
        answer: Answer = await self._run(self._exchange(method, path, headers, body), method, path)
        return answer

    async def _exchange(self, method: str, path: str, headers: dict[str, str], body: object) -> Answer:
        _, response = await self._request(method, path, headers, body)
        async with response:
            pieces, size = [], 0
            async for piece in response.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    raise Unanswered(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            return Answer(response.status, b"".join(pieces), _retry_after(response.headers))

    async def _request(self, method: str, path: str, headers: dict[str, str], body: object) -> Begun:
        session, access = self._session, self._credentials.access
        if session is None or access is None:
            raise Unanswered(self._unusable)
        bearer = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        return session, await session.request(method, path, headers | bearer, body)

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[Stream]:
        """GET what comes piece by piece; ``seconds_max`` is for the answer to begin. Raises Unanswered."""
        begun: Begun | None = None
        with trio.move_on_after(seconds_max):
            begun = await self._run(self._request("GET", path, _headers(JSON, ""), None), "GET", path)
        if begun is None:
            raise self._silent(f"GET {_place(path)}", seconds_max)
        session, response = begun
        with self._idle.busy(), session.holding(response):
            if response.status == UNAUTHORIZED:
                await self._renew(refused=True)
            yield Stream(
                response.status,
                lambda: self._run(response.content.readany(), "GET", path),
                _retry_after(response.headers),
            )

    def _silent(self, what: str, seconds: float) -> Unanswered:
        self._doubt.set()
        return Unanswered(f"{what}: no answer in {seconds:g} s")

    async def _run(self, work: Coroutine[Any, Any, Any], method: str, path: str) -> Any:
        if self._loop is None:
            work.close()
            raise Unanswered("the connection to the API server is closed")
        try:
            with self._idle.busy():
                return await self._loop.run_aio_coroutine(work)
        except (Exception, asyncio.CancelledError) as error:
            # The client is somebody else's: whatever it raises, and it cancels those who wait for one of its
            # connections when it closes, is no answer. Our own cancelling is Trio's, and passes.
            self._doubt.set()
            raise Unanswered(f"{method} {_place(path)}: {reason(error)}") from None


def _headers(content_type: str, traceparent: str) -> dict[str, str]:
    # Compressed answers cost this machine's processor more than they save on the way to a server nearby.
    headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
    headers["Content-Type"] = content_type
    return headers | ({"traceparent": traceparent} if traceparent else {})


def _place(path: str) -> str:
    return path.partition("?")[0]


def _retry_after(headers: Any) -> float:
    """Seconds; a date, which the API server never says, counts as nothing."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0
