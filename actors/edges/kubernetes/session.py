"""One set of connections to the API server, under one identity: made for an `Access`, replaced with it."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NoReturn
from weakref import WeakSet

import trio

from actors.edges.kubernetes.kubeconfig import Access, Unusable
from actors.edges.kubernetes.light import Client

#: A slow server gets a wave's deletes all at once, beside the watch and what else is asked.
CONNECTIONS_MAX = 128
#: Between two waves there may be half a minute, and a new connection costs 2 ms of the processor.
KEEPALIVE_SECONDS = 60.0
END_AGAIN_SECONDS = 0.005
#: What a connection may hold of an answer that nobody has read yet.
READ_BUFFER_BYTES = 64 * 1024


class Sending:
    """Whether anything of a request has left us: a connection is there, and its head is on its way."""

    begun = False


_sending: ContextVar[Sending | None] = ContextVar("_sending", default=None)


@contextmanager
def noticing() -> Iterator[Sending]:
    """For the requests of the block, by whoever is its task."""
    token = _sending.set(sending := Sending())
    try:
        yield sending
    finally:
        _sending.reset(token)


async def _notice(*ignored: object) -> None:
    if (sending := _sending.get()) is not None:
        sending.begun = True


class Session:
    """Opens a connection with the first call. To be made in a thread: it reads the machine's trust.

    Raises Unusable for certificates and keys that cannot be used.
    """

    def __init__(self, client: Client, access: Access) -> None:
        #: Another access needs another session when this differs.
        self.key = access.connection()
        self._url, self._server = client.url, access.server
        # Time is Trio's business: the caller's bound cancels the call.
        self._timeout = client.aiohttp.ClientTimeout(total=None)
        #: Those that are open: closed with it, where calls are let finish.
        self._streams: set[Any] = set()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        try:
            self._rest = _connected_by(client, self._socket)(_settings(client, access))
            if access.certificate:
                _present(self._rest.ssl_context, access)
        except (ssl.SSLError, OSError) as error:
            raise Unusable(f"the certificates for {access.server} cannot be used: {error}") from None
        except ValueError as error:
            # Its words may quote what they are about.
            what = f"the certificates for {access.server} cannot be used: {type(error).__name__}"
            raise Unusable(what) from None

    def _socket(self, address: Any) -> socket.socket:
        """As aiohttp makes one for an address, and remembered: see `end`."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def request(self, method: str, path: str, headers: dict[str, str], body: object) -> Any:
        """aiohttp's response, with its body still to be read. On asyncio."""
        url = self._url(self._server + path, encoded=True)
        made = await self._rest.request(
            method, url, headers=headers, body=body, _request_timeout=self._timeout
        )
        return made.response

    @contextmanager
    def holding(self, response: Any) -> Iterator[None]:
        """A stream for the time of the block."""
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

    async def end(self, seconds_max: float) -> None:
        """Wait until every connection has ended, after `close`. On Trio.

        TLS is ended by both sides, and one that does not answer would be waited for, for 30 s.
        """
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with trio.move_on_after(seconds_max):
            while any(each.fileno() >= 0 for each in self._sockets):
                await trio.sleep(END_AGAIN_SECONDS)

    def hang_up(self) -> None:
        """End the streams, which makes whoever reads them ask again. On asyncio."""
        for response in list(self._streams):
            response.close()


def _settings(client: Client, access: Access) -> Any:
    settings = client.configuration(
        host=access.server,
        ca_cert_data=access.authority.decode("ascii", "replace") or None,
        verify_ssl=not access.insecure,
        tls_server_name=access.server_name or None,
        proxy=access.proxy or None,
        # Not from the environment: a .netrc or a proxy of whoever started us is not meant for this.
        client_session_kwargs={
            "trust_env": False,
            "read_bufsize": READ_BUFFER_BYTES,
            "trace_configs": [_traced(client)],
        },
    )
    # Clusters' own authorities often lack what Python 3.13 asks for, and every other client takes them.
    settings.disable_strict_ssl_verification = True
    return settings


def _traced(client: Client) -> Any:
    made = client.aiohttp.TraceConfig()
    made.on_request_headers_sent.append(_notice)
    return made


def _connected_by(client: Client, make: Callable[[Any], socket.socket]) -> Any:
    """The package's client, with sockets of ours."""

    class Rest(client.rest):  # type: ignore[misc,name-defined]  # loaded late
        def _create_connector(self) -> Any:
            return client.aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX,
                ssl=self.ssl_context,
                keepalive_timeout=KEEPALIVE_SECONDS,
                socket_factory=make,
            )

    return Rest


def _present(context: ssl.SSLContext, access: Access) -> None:
    """Python takes a certificate from a file only: one in memory keeps the key off the disk."""
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, access.certificate + b"\n" + access.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> NoReturn:
    raise OSError("the key asks for a password")
