"""One HTTPS request to a service that knows a machine's power: verified, bounded, and never led elsewhere.

Each request has a connection of its own: readings are seconds apart, and a management controller has few to
give. What comes back is somebody else's text, and what is sent has a password in it: an error's text is in
our words, or the system's about the connection.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import h11
import trio

from ebbtide.actors.edges.proof.sources import Unread, read_bounded
from ebbtide.events.units import size_text

#: What describes a whole machine is some 50 KiB.
ANSWER_BYTES_MAX = 512 * 1024
RECEIVE_BYTES = 16 * 1024
#: A bundle of a company's authorities.
AUTHORITY_BYTES_MAX = 1024 * 1024
USER_AGENT = "ebbtide-outage/1"
PORTS = {"http": 80, "https": 443}
#: SHA-256 in hexadecimal, as ``openssl x509 -fingerprint -sha256`` prints it.
FINGERPRINT = re.compile("[0-9a-f]{64}")

Headers = tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Service:
    """One server, and how it is known: by the authorities of ``ca_file`` (none: the system's), or by its
    certificate alone (``fingerprint``); ``insecure``: whoever answers is believed, in plain HTTP as well.
    """

    def __init__(
        self, url: str, *, ca_file: Path | None = None, fingerprint: str = "", insecure: bool = False
    ) -> None:
        """Opens nothing. Raises ValueError."""
        try:
            parts = urlsplit(url)
            self.host, self.port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
        except ValueError:
            raise ValueError("the url is none") from None
        if parts.scheme not in PORTS or not self.host:
            raise ValueError("the url must be https://HOST or https://HOST:PORT")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the url has a name or password in it: they belong into files")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("the url must end after HOST or HOST:PORT")
        if parts.scheme == "http" and not insecure:
            raise ValueError("plain HTTP shows the password to everybody: use https, or say insecure")
        if (ca_file is not None) + bool(fingerprint) + insecure > 1:
            raise ValueError("of the CA file, fingerprint and insecure only one can be")
        self._fingerprint = fingerprint.replace(":", "").lower()
        if self._fingerprint and not FINGERPRINT.fullmatch(self._fingerprint):
            raise ValueError("the fingerprint must be a certificate's SHA-256: 64 hexadecimal digits")
        self._tls, self._ca_file, self._insecure = parts.scheme == "https", ca_file, insecure
        bracketed = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = bracketed if parts.port is None else f"{bracketed}:{parts.port}"
        self._system_context: ssl.SSLContext | None = None

    async def request(self, method: str, target: str, headers: Headers = (), body: bytes = b"") -> Answer:
        """Any answer, redirects too: they are not followed. Raises Unread; how long it takes, the caller
        bounds.
        """
        try:
            stream = await self._connect()
            try:
                return await self._exchange(stream, method, target, headers, body)
            finally:
                # Without TLS' goodbye: who is slow to say it would have our time.
                await trio.aclose_forcefully(stream)
        except Unread:
            raise
        except h11.LocalProtocolError:
            raise Unread("no request can be made of what is configured or of what it named") from None
        except h11.RemoteProtocolError:
            raise Unread("the answer is not HTTP") from None
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise Unread(_connection_text(error)) from None
        except ValueError:
            raise Unread("its host is no name that can be looked up") from None

    async def _connect(self) -> trio.abc.Stream:
        context = await self._context() if self._tls else None
        plain = await trio.open_tcp_stream(self.host, self.port)
        if context is None:
            return plain
        stream = trio.SSLStream(plain, context, server_hostname=self.host, https_compatible=True)
        try:
            await stream.do_handshake()
            if self._fingerprint and _fingerprint_of(stream) != self._fingerprint:
                raise Unread("its certificate is not the one that is configured by its fingerprint")
        except BaseException:
            await trio.aclose_forcefully(plain)
            raise
        return stream

    async def _context(self) -> ssl.SSLContext:
        if self._system_context is not None:
            return self._system_context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._insecure or self._fingerprint:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self._ca_file is not None:
            # Read each time, as it may be renewed.
            authorities = await read_bounded(self._ca_file, AUTHORITY_BYTES_MAX)
            try:
                context.load_verify_locations(cadata=authorities.decode("ascii"))
            except (ssl.SSLError, ValueError):
                raise Unread(f"{self._ca_file}: no certificates in PEM") from None
        else:
            context.load_default_certs()
            # These are hundreds, and take as long to read as all the rest of a request.
            self._system_context = context
        return context

    async def _exchange(
        self, stream: trio.abc.Stream, method: str, target: str, headers: Headers, body: bytes
    ) -> Answer:
        connection = h11.Connection(h11.CLIENT)
        own = (
            ("Host", self.authority),
            ("User-Agent", USER_AGENT),
            ("Accept", "application/json"),
            ("Connection", "close"),
        )
        length = (("Content-Length", str(len(body))),) if body else ()
        parts = (
            h11.Request(method=method, target=target, headers=[*own, *headers, *length]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        await stream.send_all(b"".join(connection.send(part) or b"" for part in parts))
        head: h11.Response | None = None
        received: list[bytes] = []
        size = 0
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                received.append(bytes(event.data))
                size += len(event.data)
                # An endless answer would fill our memory before our time is over.
                if size > ANSWER_BYTES_MAX:
                    raise Unread(f"the answer is longer than {size_text(ANSWER_BYTES_MAX)}")
            # 1xx is not the answer yet; everything else that is left is its end.
            elif not isinstance(event, h11.InformationalResponse):
                break
        if head is None:
            raise Unread("it closed the connection without an answer")
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Answer(head.status_code, found, b"".join(received))


def _fingerprint_of(stream: trio.SSLStream[trio.SocketStream]) -> str:
    certificate = stream.getpeercert(binary_form=True)
    return hashlib.sha256(certificate or b"").hexdigest()


def _connection_text(error: BaseException) -> str:
    """The system's words, or OpenSSL's about the certificate: they quote the host alone."""
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or type(cause).__name__}"
    # Of several addresses that were tried the first: Trio's own text for all of them names them.
    while isinstance(cause, BaseExceptionGroup) or (isinstance(cause, OSError) and cause.strerror is None):
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
    if isinstance(cause, OSError):
        number = cause.errno
        return f"no connection: {os.strerror(number) if number and number > 0 else cause.strerror}"
    return "the connection broke"
