"""HTTP requests: preStop hooks to pods, and questions to services that know a machine's power.

Any status is an answer, and a redirect is not followed. The caller bounds the time. Headers, queries and
answers may hold secrets: no error text quotes them.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

import h11
import trio

from ebbtide.actors.edges.documents import read_file
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from ebbtide.events.units import size_text

# A host look-up imports this; the disk may no longer answer then.
codecs.lookup("idna")

RECEIVE_BYTES = 16 * 1024

Headers = tuple[tuple[str, str], ...]


class RequestFailed(OSError):
    """The text is one line for the record."""


class PlainAnswer(RequestFailed):
    """The server answered a TLS greeting in plain HTTP."""


class Answer(NamedTuple):
    """``whole`` False: ``body`` is the begin of a longer one."""

    status: int
    body: bytes
    whole: bool


async def request(
    method: str,
    host: str,
    port: int,
    target: str,
    headers: Headers,
    body: bytes = b"",
    *,
    bytes_max: int,
    tls: ssl.SSLContext | None = None,
    fingerprint: str = "",
) -> Answer:
    """``fingerprint``: the required certificate's SHA-256. Raises RequestFailed."""
    connection = h11.Connection(h11.CLIENT)
    stream: trio.abc.Stream | None = None
    try:
        if CONTROL.search(target.replace("\t", "\n")):
            raise ValueError("a line break would begin a second request")
        # UTF-8, as in Go.
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        parts = (
            h11.Request(method=method, target="/", headers=encoded),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        message = b"".join(connection.send(part) or b"" for part in parts)
        # The kubelet sends a query unchanged, but h11 refuses a blank and a byte beyond ASCII.
        message = message.replace(b" / ", b" " + target.encode() + b" ", 1)
        stream = await _connect(host, port, tls, fingerprint)
        await stream.send_all(message)
        return await _receive(connection, stream, bytes_max)
    except RequestFailed:
        raise
    # A ValueError: the host cannot be looked up.
    except (h11.LocalProtocolError, ValueError):
        raise RequestFailed("no request can be made of its host, path and headers") from None
    except h11.RemoteProtocolError:
        raise RequestFailed("the answer is not HTTP") from None
    except (OSError, trio.BrokenResourceError) as error:
        raise RequestFailed(_connection_text(error)) from None
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)


class _Received(trio.abc.ReceiveStream):
    """Stores the first bytes: OpenSSL's reason for a plain answer differs by release."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream, self.begin = stream, b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        self.begin = (self.begin + data)[: len(b"HTTP/")]
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _connect(host: str, port: int, tls: ssl.SSLContext | None, fingerprint: str) -> trio.abc.Stream:
    plain = await trio.open_tcp_stream(host, port)
    if tls is None:
        return plain
    received = _Received(plain)
    both = trio.StapledStream(plain, received)
    stream = trio.SSLStream(both, tls, server_hostname=host, https_compatible=True)
    try:
        await stream.do_handshake()
        certificate = stream.getpeercert(binary_form=True) or b""
        if fingerprint and hashlib.sha256(certificate).hexdigest() != fingerprint:
            raise RequestFailed("its certificate does not have the configured fingerprint")
    except BaseException as error:
        await trio.aclose_forcefully(plain)
        if isinstance(error, trio.BrokenResourceError) and received.begin == b"HTTP/":
            raise PlainAnswer("TLS failed: the server answered in plain HTTP") from None
        raise
    return stream


async def _receive(connection: h11.Connection, stream: trio.abc.Stream, bytes_max: int) -> Answer:
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            # An endless answer would fill our memory.
            if len(body) > bytes_max:
                return Answer(status, bytes(body[:bytes_max]), False)
        # 1xx is not the answer yet.
        elif not isinstance(event, h11.InformationalResponse):
            if not status:
                raise RequestFailed("it closed the connection without an answer")
            return Answer(status, bytes(body), True)


def _connection_text(error: BaseException | None) -> str:
    """The text quotes at most the host."""
    if isinstance(error, trio.BrokenResourceError):
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    # Trio tries all addresses of a host; the first failure says enough.
    while isinstance(error, BaseExceptionGroup) or (isinstance(error, OSError) and error.strerror is None):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    if isinstance(error, OSError):
        number = error.errno or 0
        return f"no connection: {os.strerror(number) if number > 0 else error.strerror}"
    return "the connection broke"


# As in the kubelet, any answer is success, no certificate is verified, and a server that answers TLS in plain
# HTTP gets a plain request without Authorization. But the kubelet follows redirects to the same host.

HEADERS_DEFAULT = (("User-Agent", "ebbtide-lifecycle/0.1"), ("Accept", "*/*"))
#: Not sent without a value.
OMITTED_WHEN_EMPTY = ("host", "user-agent", "accept")
#: Untrue for a GET without a body.
NEVER_SENT = ("content-length", "transfer-encoding", "trailer")
#: Go's net/http refuses these in a value.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
#: RFC 9110, "token".
HEADER_NAME = re.compile("[-!#$%&'*+.^_`|~0-9A-Za-z]+")
#: Read so much, so that the server can finish its answer.
HOOK_BYTES_MAX = 10 * 1024
#: Go's net/url sends such a path as written; in another it escapes all characters but these.
VALID_PATH = re.compile(r"[-/%:@!$&'()*+,;=~._\[\]0-9A-Za-z]*")
UNESCAPED = "/:@$&+,;=~-._"
#: Go refuses a URL with these.
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
#: The path may be a URL: the request goes to the hook's host all the same.
WHOLE_URL = re.compile(r"\A(?:[A-Za-z][-+.0-9A-Za-z]*:(?://[^/]*)?|//(?!/)[^/]*)")


class BadHook(RequestFailed):
    """The text names the field to correct."""


class HookRequest(NamedTuple):
    """``url`` is for people and tests."""

    url: str
    scheme: str
    host: str
    port: int
    target: str
    headers: Headers

    async def send(self) -> None:
        """Raises RequestFailed."""
        if self.scheme not in ("http", "https"):
            raise BadHook("its scheme is neither HTTP nor HTTPS")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        tls, headers = (context if self.scheme == "https" else None), self.headers
        where = self.host, self.port, self.target
        try:
            await request("GET", *where, headers, tls=tls, bytes_max=HOOK_BYTES_MAX)
        except PlainAnswer:
            headers = tuple(item for item in headers if item[0].lower() != "authorization")
            await request("GET", *where, headers, bytes_max=HOOK_BYTES_MAX)


def request_of(
    hook: HttpGetAction, container: ContainerSpec, pod_ip: str, traceparent: str = ""
) -> HookRequest:
    """Raises BadHook."""
    host = hook.host or pod_ip
    port = container.ports.get(hook.port, hook.port) if isinstance(hook.port, str) else hook.port
    if isinstance(port, str):
        if not (port.isascii() and port.isdecimal() and len(port) <= 5):
            raise BadHook(f"port {port!r} is neither a number nor a port of container {container.name}")
        port = int(port)
    if not 0 < port < 65536:
        raise BadHook(f"port {port} is not between 1 and 65535")
    scheme = (hook.scheme or "http").lower()
    target, fragment = _target(hook.path)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    for name, value in hook.headers:
        if not HEADER_NAME.fullmatch(name):
            raise BadHook("one of its headers has a name that cannot be sent")
        if CONTROL.search(value):
            raise BadHook("one of its headers has a control character in its value")
    given = [(name, value.strip(" \t")) for name, value in hook.headers]
    # An empty header removes its default. The first of several hosts counts.
    hosts = [item for item in given if item[0].lower() == "host" and item[1]][:1]
    others = [item for item in given if item[0].lower() not in ("host", *NEVER_SENT)]
    own = (*hosts, *(item for item in others if item[1] or item[0].lower() not in OMITTED_WHEN_EMPTY))
    names = {name.lower() for name, _ in (*hosts, *others)}
    trace = (("traceparent", traceparent),) if traceparent else ()
    added = (("Host", authority), *HEADERS_DEFAULT, *trace, ("Connection", "close"))
    headers = own + tuple(item for item in added if item[0].lower() not in names)
    return HookRequest(f"{scheme}://{authority}{target}{fragment}", scheme, host, port, target, headers)


def _target(text: str) -> tuple[str, str]:
    """The request's target, and the fragment with its ``#``, as by Go's net/url."""
    before, mark, fragment = text.partition("#")
    path, query_mark, query = before.partition("?")
    if CONTROL.search(text.replace("\t", "\n")) or BAD_ESCAPE.search(path) or BAD_ESCAPE.search(fragment):
        # For the kubelet a text that is no URL is the path.
        target, fragment = quote(text, safe=UNESCAPED), ""
    else:
        path = WHOLE_URL.sub("", path)
        escaped = path if VALID_PATH.fullmatch(path) else quote(unquote_to_bytes(path), safe=UNESCAPED)
        target, fragment = escaped + query_mark + query, mark + fragment if fragment else ""
    return (target if target.startswith("/") else f"/{target}"), fragment


#: A whole machine's description takes some 50 KiB.
ANSWER_BYTES_MAX = 512 * 1024
#: A bundle of a company's authorities.
AUTHORITY_BYTES_MAX = 1024 * 1024


class Service:
    """TLS trusts ``ca_file`` (None: the system's), or only the certificate with ``fingerprint``."""

    def __init__(self, url: str, *, ca_file: Path | None = None, fingerprint: str = "") -> None:
        """Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the url must be https://HOST or https://HOST:PORT")
        self.host, self.port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self.authority = parts.netloc
        self._tls, self._ca_file = parts.scheme == "https", ca_file
        # As ``openssl x509 -fingerprint`` prints it.
        self._fingerprint = fingerprint.replace(":", "").lower()
        self._system_context: ssl.SSLContext | None = None

    async def request(self, method: str, target: str, headers: Headers = (), body: bytes = b"") -> Answer:
        """Raises RequestFailed."""
        own = (
            ("Host", self.authority),
            ("User-Agent", "ebbtide-outage/1"),
            ("Accept", "application/json"),
            ("Connection", "close"),
            *((("Content-Length", str(len(body))),) if body else ()),
        )
        answer = await request(
            method,
            self.host,
            self.port,
            target,
            (*own, *headers),
            body,
            bytes_max=ANSWER_BYTES_MAX,
            tls=await self._context() if self._tls else None,
            fingerprint=self._fingerprint,
        )
        if not answer.whole:
            raise RequestFailed(f"the answer is longer than {size_text(ANSWER_BYTES_MAX)}")
        return answer

    async def _context(self) -> ssl.SSLContext:
        if self._system_context is not None:
            return self._system_context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._fingerprint:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        elif self._ca_file is not None:
            # Each time: it may be renewed.
            try:
                pem = await trio.to_thread.run_sync(
                    read_file, self._ca_file, AUTHORITY_BYTES_MAX, abandon_on_cancel=True
                )
                context.load_verify_locations(cadata=pem.decode("ascii"))
            except (OSError, ValueError):
                raise RequestFailed(f"{self._ca_file}: no readable certificates in PEM") from None
        else:
            # Kept: hundreds, which take as long to read as the rest of a request.
            context.load_default_certs()
            self._system_context = context
        return context
