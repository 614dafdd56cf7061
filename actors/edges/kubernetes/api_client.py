"""The client of the API server: bounded calls, streams, and an identity that follows its files.

It runs on asyncio, in a loop by trio-asyncio; only this module knows either.

Of the package `kubernetes` it loads only settings and connection: all of it takes 47 MiB. Python imports a
package's ``__init__`` first, so empty modules replace the packages during the import.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from weakref import WeakSet

import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.credentials import Access, Credentials, UnusableCredentials, failure_text
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events.units import size_text, span_s
from ebbtide.extras import install_command

if TYPE_CHECKING:
    import trio_asyncio

PACKAGE = "kubernetes"
SKIPPED_PACKAGES = (PACKAGE, f"{PACKAGE}.aio", f"{PACKAGE}.aio.client", f"{PACKAGE}.aio.utils")
CONNECTION_MODULE = f"{PACKAGE}.aio.client.rest"
SETTINGS_MODULE = f"{PACKAGE}.aio.client.configuration"

_importing = Lock()


class ClientMissing(Exception):
    """The text names the extra to install."""


class ClientPackage(NamedTuple):
    rest: Any
    configuration: Any
    aiohttp: Any
    url: Any
    open_loop: Any


def load_client() -> ClientPackage:
    """Takes about 0.3 s: for a thread. Raises ClientMissing."""
    try:
        with _importing, _without_parents():
            rest, settings = import_module(CONNECTION_MODULE), import_module(SETTINGS_MODULE)
            aiohttp, url = import_module("aiohttp"), import_module("yarl").URL
            open_loop = import_module("trio_asyncio").open_loop
    except ImportError as error:
        text = f"the Kubernetes client cannot be loaded ({error}): {install_command('node')}"
        raise ClientMissing(text) from None
    return ClientPackage(rest.RESTClientObject, settings.Configuration, aiohttp, url, open_loop)


@contextmanager
def _without_parents() -> Iterator[None]:
    if PACKAGE in sys.modules:
        yield
        return
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"no package {PACKAGE}")
    folder = Path(spec.submodule_search_locations[0])
    for name in SKIPPED_PACKAGES:
        stand_in = ModuleType(name)
        stand_in.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = stand_in
    try:
        yield
    finally:
        for name in [each for each in sys.modules if each.split(".")[0] == PACKAGE]:
            del sys.modules[name]


#: A slow server gets a whole wave's deletes at once, beside the watch.
CONNECTIONS_MAX = 128
#: Two waves may be half a minute apart; a new connection costs 2 ms of the processor.
KEEPALIVE_SECONDS = 60.0
#: The kernel closes once both directions are shut, mostly before the first look.
CLOSING_LOOK_SECONDS, CLOSING_LOOKS_MAX = 0.005, 200
READ_BUFFER_BYTES = 64 * 1024


#: Not empty once the present call's head has left.
_sent: ContextVar[list[None] | None] = ContextVar("_sent", default=None)


async def _note_sent(*ignored: object) -> None:
    if (sent := _sent.get()) is not None:
        sent.append(None)


async def _refuse_redirect(*ignored: object) -> NoReturn:
    """The token is only for the API server, which never redirects."""
    raise api.Unanswered("the API server answered with a redirect, which is not followed")


#: A message's first byte is its channel.
EXEC_PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, ENDED = 1, 2, 3


class CommandResult(NamedTuple):
    """``ended``: a ``Status`` as JSON; empty: the connection was lost."""

    out: bytes
    err: bytes
    ended: bytes


class ApiSession:
    """Make it in a thread: it reads the machine's trust. Raises UnusableCredentials."""

    def __init__(self, client: ClientPackage, access: Access) -> None:
        self.key = access.connection()
        self._url, self._server = client.url, access.server
        self._refused = client.aiohttp.WSServerHandshakeError
        self._timeout = client.aiohttp.ClientTimeout(total=None)
        #: `hang_up` ends these; calls may finish.
        self._streams: set[Any] = set()
        sockets = self._sockets = WeakSet[socket.socket]()

        def open_socket(address: Any) -> socket.socket:
            sockets.add(made := socket.socket(*address[:3]))
            return made

        try:
            made = client.aiohttp.TraceConfig()
            made.on_request_headers_sent.append(_note_sent)
            made.on_request_redirect.append(_refuse_redirect)
            settings = client.configuration(
                host=access.server,
                ca_cert_data=access.authority.decode("ascii", "replace") or None,
                verify_ssl=not access.insecure,
                tls_server_name=access.server_name or None,
                proxy=access.proxy or None,
                # A .netrc or proxy of the environment is not for this connection.
                client_session_kwargs={
                    "trust_env": False,
                    "read_bufsize": READ_BUFFER_BYTES,
                    "trace_configs": [made],
                },
            )
            # Clusters' authorities often lack what Python 3.13 requires, and other clients accept them.
            settings.disable_strict_ssl_verification = True

            class Connector(client.aiohttp.TCPConnector):  # type: ignore[misc,name-defined]  # loaded late
                def _release(self, key: Any, protocol: Any, **fields: Any) -> None:
                    """The last one is used next. aiohttp takes connections in turn, which keeps all open,
                    with a third of a MiB each.
                    """
                    super()._release(key, protocol, **fields)
                    kept = self._conns.get(key)
                    if kept and kept[-1][0] is protocol:
                        kept.rotate(1)

            class Rest(client.rest):  # type: ignore[misc,name-defined]  # loaded late
                def _create_connector(self) -> Any:
                    return Connector(
                        limit=CONNECTIONS_MAX,
                        ssl=self.ssl_context,
                        keepalive_timeout=KEEPALIVE_SECONDS,
                        socket_factory=open_socket,
                    )

            self._rest = Rest(settings)
            if access.certificate:
                # Python reads only files. The key must not be on a disk.
                descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
                try:
                    os.write(descriptor, access.certificate + b"\n" + access.key)
                    self._rest.ssl_context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: "")
                finally:
                    os.close(descriptor)
        except (ssl.SSLError, OSError) as error:
            raise UnusableCredentials(
                f"the certificates for {access.server} cannot be used: {error}"
            ) from None
        except ValueError as error:
            # Its text may quote the certificate.
            what = f"the certificates for {access.server} cannot be used: {type(error).__name__}"
            raise UnusableCredentials(what) from None

    async def request(self, method: str, path: str, headers: dict[str, str], body: object) -> Any:
        """On asyncio."""
        url = self._url(self._server + path, encoded=True)
        made = await self._rest.request(
            method, url, headers=headers, body=body, _request_timeout=self._timeout
        )
        return made.response

    async def execute(self, path: str, headers: dict[str, str], bytes_max: int) -> CommandResult | int:
        """On asyncio. Returns the HTTP code of a refusal."""
        pieces: dict[int, bytearray] = {number: bytearray() for number in (STDOUT, STDERR, ENDED)}
        self._rest.pool_manager = self._rest.pool_manager or self._rest._create_pool_manager()
        asked = self._rest.pool_manager.ws_connect(
            self._url(self._server + path, encoded=True),
            headers=headers,
            protocols=(EXEC_PROTOCOL,),
            proxy=self._rest.proxy,
            server_hostname=self._rest.configuration.tls_server_name,
            max_msg_size=bytes_max,
        )
        try:
            async with asked as channels:
                async for message in channels:
                    # A channel's first and last message are empty.
                    if isinstance(message.data, bytes) and message.data[:1] and message.data[0] in pieces:
                        pieces[message.data[0]] += message.data[1:]
                    if sum(map(len, pieces.values())) > bytes_max:
                        raise api.AnswerTooLong(f"a command that says more than {bytes_max} bytes")
        except self._refused as error:
            code: int = error.status
            return code
        return CommandResult(bytes(pieces[STDOUT]), bytes(pieces[STDERR]), bytes(pieces[ENDED]))

    @contextmanager
    def holding(self, response: Any) -> Iterator[None]:
        self._streams.add(response)
        try:
            yield
        finally:
            self._streams.discard(response)
            response.close()

    async def close(self) -> None:
        """On asyncio."""
        self.hang_up()
        await self._rest.close()
        # Both sides end TLS, and a silent server would delay that for 30 s.
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(CLOSING_LOOKS_MAX):
            if all(each.fileno() < 0 for each in self._sockets):
                break
            await asyncio.sleep(CLOSING_LOOK_SECONDS)

    def hang_up(self) -> None:
        """On asyncio. The streams' readers open new ones."""
        for response in list(self._streams):
            response.close()


#: Each author may nest an object's ``managedFields`` 10 000 deep: no decoder can skip that. It has no lists.
unmanaged = partial(re.compile(rb'"managedFields":\[([^"\[\]]++|"([^"\\]++|\\.)*+")*+\]').sub, b'"":0')

#: etcd takes objects of 1.5 MiB; JSON may double it.
LINE_BYTES_MAX = 16 * 1024 * 1024


class SilentStream(api.Unanswered):
    """The stream may be read again."""


class LineStream:
    """``read`` returns the next piece, or an empty one at the end; raises Unanswered."""

    def __init__(
        self, code: int, read: Callable[[], Awaitable[bytes]], retry_after_seconds: float = 0.0
    ) -> None:
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self._read = read
        self._pieces: list[bytes] = []
        self._size = 0
        self._lines: list[bytes] = []

    @property
    def has_line(self) -> bool:
        return bool(self._lines)

    async def line(self, silence_seconds_max: float) -> bytes | None:
        """None at the end. Raises SilentStream and Unanswered."""
        while not self._lines:
            with trio.move_on_after(silence_seconds_max) as silence:
                piece = await self._read()
            if silence.cancelled_caught:
                raise SilentStream(f"silent for {span_s(silence_seconds_max)}")
            if not piece:
                return None
            *ended, rest = piece.split(b"\n")
            if ended:
                ended[0] = b"".join((*self._pieces, ended[0]))
                self._lines = ended[::-1]
                self._pieces, self._size = [], 0
            self._pieces.append(rest)
            self._size += len(rest)
            if self._size > LINE_BYTES_MAX:
                raise api.Unanswered(f"a line of more than {size_text(LINE_BYTES_MAX)}")
        return unmanaged(self._lines.pop())

    async def answer(self, silence_seconds_max: float) -> api.Answer:
        """Raises as `line` does."""
        lines = []
        while (line := await self.line(silence_seconds_max)) is not None:
            lines.append(line)
        return api.Answer(self.code, b"\n".join((*lines, *self._pieces)), self.retry_after_seconds)


#: A session, and aiohttp's response with its body unread.
BegunAnswer = tuple[ApiSession, Any]

USER_AGENT = "ebbtide"
UNAUTHORIZED = 401
#: Between two looks at the credentials' files.
FILES_SECONDS = 5.0
#: Open calls keep their connections, and none takes longer.
OLD_SESSION_SECONDS = 30.0
#: A node's pods have some megabytes. An answer is in memory twice for a moment.
ANSWER_BYTES_MAX = 24 * 1024 * 1024


class ApiClient:
    """``kubeconfig`` None: the pod's own access. ``context`` empty: the current one."""

    def __init__(
        self, kubeconfig: Path | None, tell: Tell = lambda level, line: None, context: str = ""
    ) -> None:
        self._credentials = Credentials(kubeconfig, context)
        self._tell = tell
        self._reported = ""
        self._client: ClientPackage | None = None
        self._loop: trio_asyncio.BaseTrioEventLoop | None = None
        self._nursery: trio.Nursery | None = None
        self._session: ApiSession | None = None
        self._unusable = "it is not connected yet"

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Raises ClientMissing."""
        self._client = await trio.to_thread.run_sync(load_client)
        async with self._client.open_loop() as loop, trio.open_nursery() as nursery:
            self._loop, self._nursery = loop, nursery
            await self._renew()
            task_status.started()
            try:
                while True:
                    await trio.sleep(FILES_SECONDS)
                    await self._renew()
            finally:
                self._loop = None
                if self._session is not None:
                    with trio.CancelScope(shield=True):
                        await loop.run_aio_coroutine(self._session.close())

    async def _renew(self, *, refused: bool = False) -> None:
        """Unusable credentials are logged once, and the last good ones stay."""
        assert self._client is not None
        try:
            access = await self._credentials.refresh(refused=refused)
            if self._session is None or self._session.key != access.connection():
                session = await trio.to_thread.run_sync(
                    ApiSession, self._client, access, abandon_on_cancel=True
                )
                old, self._session = self._session, session
                if old is not None and self._nursery is not None:
                    self._nursery.start_soon(self._retire, old)
        except UnusableCredentials as error:
            if self._session is None:
                self._unusable = str(error)
            if str(error) != self._reported:
                self._tell(WARNING, f"Kubernetes API: {error}")
            self._reported = str(error)
            return
        if self._reported:
            self._tell(NOTICE, "Kubernetes API: the credentials can be used again")
        self._reported = ""

    async def _retire(self, old: ApiSession) -> None:
        loop = self._loop
        assert loop is not None
        old.hang_up()
        try:
            await trio.sleep(OLD_SESSION_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await loop.run_aio_coroutine(old.close())

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = api.JSON,
        seconds_max: float,
        traceparent: str = "",
        accept: str = api.JSON,
    ) -> api.Answer:
        """Tries again with fresh credentials if the server refused them. Raises Unanswered."""
        headers = _request_headers(content_type, traceparent, accept)
        _sent.set(sent := list[None]())
        try:
            with trio.move_on_after(seconds_max):
                used = self._credentials.access
                answer = await self._send(method, path, headers, body)
                if answer.code == UNAUTHORIZED:
                    # Another call may have renewed them.
                    if self._credentials.access is used:
                        await self._renew(refused=True)
                    if self._credentials.access is not used:
                        answer = await self._send(method, path, headers, body)
                return answer
            raise _silent(method, path, seconds_max)
        except api.Unanswered as error:
            error.sent = bool(sent)
            raise

    async def _send(self, method: str, path: str, headers: dict[str, str], body: object) -> api.Answer:
        async def exchange() -> api.Answer:
            _, response = await self._request(method, path, headers, body)
            async with response:
                pieces, size = [], 0
                size_max = (
                    min(ANSWER_BYTES_MAX, api.PART_BYTES_MAX) if api.is_part(path) else ANSWER_BYTES_MAX
                )
                async for piece in response.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    if size > size_max:
                        # The error's frames are a cycle, which may stay in memory for long.
                        pieces.clear()
                        raise api.AnswerTooLong(f"an answer of more than {size_text(size_max)}")
                said = unmanaged(b"".join(pieces))
                return api.Answer(response.status, said, _retry_after(response.headers))

        answer: api.Answer = await self._run(exchange(), method, path)
        return answer

    async def _request(self, method: str, path: str, headers: dict[str, str], body: object) -> BegunAnswer:
        session, bearer = self._connected()
        return session, await session.request(method, path, headers | bearer, body)

    def _connected(self) -> tuple[ApiSession, dict[str, str]]:
        session, access = self._session, self._credentials.access
        if session is None or access is None:
            raise api.Unanswered(self._unusable)
        return session, {"Authorization": f"Bearer {access.token}"} if access.token else {}

    async def execute(self, path: str, *, seconds_max: float, bytes_max: int) -> CommandResult | api.Answer:
        """``path``: a pod's ``exec``. Returns the server's refusal. Raises Unanswered."""
        with trio.move_on_after(seconds_max):
            session, bearer = self._connected()
            work = session.execute(path, {"User-Agent": USER_AGENT} | bearer, bytes_max)
            done: CommandResult | int = await self._run(work, "GET", path)
            if not isinstance(done, int):
                return done
            # A refused upgrade has only a code. A plain request gets the reason.
            if done in (UNAUTHORIZED, api.HTTP_FORBIDDEN, api.HTTP_NOT_FOUND):
                return await self.call("GET", path, seconds_max=seconds_max)
            return api.Answer(done)
        raise _silent("GET", path, seconds_max)

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[LineStream]:
        """``seconds_max``: until the answer begins. Raises Unanswered."""
        begun: BegunAnswer | None = None
        with trio.move_on_after(seconds_max):
            begun = await self._run(
                self._request("GET", path, _request_headers(api.JSON, ""), None), "GET", path
            )
        if begun is None:
            raise _silent("GET", path, seconds_max)
        session, response = begun
        with session.holding(response):
            if response.status == UNAUTHORIZED:
                await self._renew(refused=True)
            yield LineStream(
                response.status,
                lambda: self._run(response.content.readany(), "GET", path),
                _retry_after(response.headers),
            )

    async def _run(self, work: Coroutine[Any, Any, Any], method: str, path: str) -> Any:
        if self._loop is None:
            work.close()
            raise api.Unanswered("the connection to the API server is closed")
        try:
            return await self._loop.run_aio_coroutine(work)
        except (Exception, asyncio.CancelledError) as error:
            # A closing client cancels tasks that wait for a connection.
            kind = api.AnswerTooLong if isinstance(error, api.AnswerTooLong) else api.Unanswered
            raise kind(f"{method} {_without_query(path)}: {failure_text(error)}") from None


def _request_headers(content_type: str, traceparent: str, accept: str = api.JSON) -> dict[str, str]:
    # From a nearby server decompressing costs more than it saves.
    headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
    headers["Content-Type"] = content_type
    return headers | ({"traceparent": traceparent} if traceparent else {})


def _silent(method: str, path: str, seconds: float) -> api.Unanswered:
    return api.Unanswered(f"{method} {_without_query(path)}: no answer in {span_s(seconds)}")


def _without_query(path: str) -> str:
    return path.partition("?")[0]


def _retry_after(headers: Any) -> float:
    """The API server never sends a date: it counts as 0."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0
