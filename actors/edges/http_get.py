"""The httpGet hook: which request it is, and sending it.

The rules are the kubelet's: TLS is not verified, the status code does not matter (any
answer is success), and a server that speaks plain HTTP on an ``https`` port is asked again in plain HTTP,
without the Authorization header. One is not: a redirect is an answer like any other and is not followed,
where the kubelet follows up to ten to the same host name. What may stand in a header is what Go's net/http
sends. A header, a query and an answer may hold what nobody else may know, so no text of a failure
quotes any of them. h11 is imported with this module, which
`ProcessEdge.prewarm` does as soon as a pod has such a hook.
"""

from __future__ import annotations

import codecs
import os
import re
import ssl
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

import h11
import trio

from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction

# Looking a host up imports this on first use; the disk may no longer answer then.
codecs.lookup("idna")

USER_AGENT = "ebbtide-lifecycle/0.1"
HEADERS_DEFAULT = (("User-Agent", USER_AGENT), ("Accept", "*/*"))
#: Headers that are not sent when a manifest gives them without a value.
OMITTED_WHEN_EMPTY = ("host", "user-agent", "accept")
#: Headers that are not taken from a manifest: of a GET without a body they could only say something untrue.
NEVER_SENT = ("content-length", "transfer-encoding", "trailer")
#: What Go's net/http takes from both ends of a value, and what it sends in none (its other white space too).
BLANKS = " \t"
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
#: A header's name (RFC 9110, "token").
HEADER_NAME = re.compile("[-!#$%&'*+.^_`|~0-9A-Za-z]+")
#: Read of an answer's body, so that the server can finish it; more is cut off.
BODY_BYTES_MAX = 10 * 1024
RECEIVE_BYTES = 4096
#: What may stand unescaped in a path or query.
UNESCAPED = "/%:@!$&'()*+,;=~-._?"

Headers = tuple[tuple[str, str], ...]


class BadHook(Exception):
    """The hook cannot be turned into a request; the text names the field to correct."""


class PlainAnswer(Exception):
    """The server answered a TLS greeting in plain HTTP."""


#: What a request may fail with; anything else is a bug here. (``ssl.SSLError`` is an OSError. A ValueError is
#: that of a host which nobody can look up.)
FAILURES = (OSError, ValueError, BadHook, h11.ProtocolError, trio.BrokenResourceError)


def failure_text(error: BaseException) -> str:
    """One line for the record, in our words or the system's: libraries quote what they were given."""
    if isinstance(error, BadHook):
        return str(error)
    if isinstance(error, h11.RemoteProtocolError):
        return "the answer is not HTTP"
    if isinstance(error, (h11.LocalProtocolError, ValueError)):
        return "no request can be made of the hook: look at its host, path and headers"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if isinstance(error, OSError):
        return f"no connection: {_system_text(error)}"
    return "the connection broke"


def _system_text(error: BaseException | None) -> str:
    """The system's words for the first try; Trio's own for all of them name the host."""
    while isinstance(error, BaseExceptionGroup) or (isinstance(error, OSError) and error.strerror is None):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
    return "no address answers"


class Request(NamedTuple):
    """One GET: where to connect, and what to say there. ``url`` is for people and tests."""

    url: str
    scheme: str
    host: str
    port: int
    target: str
    headers: Headers


def request_of(hook: HttpGetAction, container: ContainerSpec, pod_ip: str, traceparent: str = "") -> Request:
    """Pure. ``traceparent`` (W3C Trace Context) goes along unless it is empty. Raises BadHook."""
    host = hook.host or pod_ip
    number = container.ports.get(hook.port, hook.port) if isinstance(hook.port, str) else hook.port
    if isinstance(number, str):
        if not (number.isascii() and number.isdecimal() and len(number) <= 5):
            raise BadHook(f"port {number!r} is neither a number nor a port of container {container.name}")
        number = int(number)
    if not 0 < number < 65536:
        raise BadHook(f"port {number} is not between 1 and 65535")
    port = number
    scheme = (hook.scheme or "http").lower()
    parts = _parts_of(hook.path)
    path = quote(parts.path if parts.path.startswith("/") else f"/{parts.path}", safe=UNESCAPED)
    target = f"{path}?{quote(parts.query, safe=UNESCAPED)}" if parts.query else path
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    # Given headers win over defaults; a default that is given empty is left out. Of hosts the first counts.
    given = [(name, _header_value(name, value)) for name, value in hook.headers]
    hosts = [item for item in given if item[0].lower() == "host" and item[1]][:1]
    others = [item for item in given if item[0].lower() not in ("host", *NEVER_SENT)]
    own = (*hosts, *(item for item in others if item[1] or item[0].lower() not in OMITTED_WHEN_EMPTY))
    names = {name.lower() for name, _ in (*hosts, *others)}
    trace = (("traceparent", traceparent),) if traceparent else ()
    added = (("Host", authority), *HEADERS_DEFAULT, *trace, ("Connection", "close"))
    headers = own + tuple(item for item in added if item[0].lower() not in names)
    return Request(f"{scheme}://{authority}{target}{fragment}", scheme, host, port, target, headers)


def _parts_of(path: str) -> SplitResult:
    """A path that is no URL is asked for as it is, as the kubelet does."""
    try:
        return urlsplit(path)
    except ValueError:
        return SplitResult("", "", path, "", "")


def _header_value(name: str, value: str) -> str:
    """As net/http sends it. Raises BadHook."""
    if not HEADER_NAME.fullmatch(name):
        raise BadHook("one of its headers has a name that cannot be sent")
    if CONTROL.search(value):
        raise BadHook("one of its headers has a control character in its value")
    return value.strip(BLANKS)


class PrefixStream(trio.abc.Stream):
    """Passes everything through and remembers how the other side began."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.begin = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        if len(self.begin) < len(b"HTTP/"):
            self.begin += data[: len(b"HTTP/")]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


def unverified_tls() -> ssl.SSLContext:
    """A hook goes to the pod itself, whose certificate nobody vouches for (as in the reference)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def send_request(request: Request) -> int:
    """Send and read the answer; its status code. Raises `FAILURES`."""
    try:
        return await _send_once(request)
    except PlainAnswer:
        # As the kubelet does, which sends no credentials in the clear.
        headers = tuple(item for item in request.headers if item[0].lower() != "authorization")
        return await _send_once(request._replace(scheme="http", headers=headers))


async def _send_once(request: Request) -> int:
    if request.scheme not in ("http", "https"):
        raise BadHook("its scheme is neither HTTP nor HTTPS")
    connection = h11.Connection(h11.CLIENT)
    # In UTF-8, as Go's strings are.
    headers = [(name.encode(), value.encode()) for name, value in request.headers]
    head = h11.Request(method="GET", target=request.target, headers=headers)
    message = (connection.send(head) or b"") + (connection.send(h11.EndOfMessage()) or b"")
    async with await _connect(request) as stream:
        await stream.send_all(message)
        code, body = 0, 0
        while body < BODY_BYTES_MAX:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
            elif isinstance(event, h11.Response):
                code = event.status_code
            elif isinstance(event, h11.Data):
                body += len(event.data)
            elif not isinstance(event, h11.InformationalResponse):
                break
        return code


async def _connect(request: Request) -> trio.abc.Stream:
    plain = await trio.open_tcp_stream(request.host, request.port)
    if request.scheme == "http":
        return plain
    sniffer = PrefixStream(plain)
    stream = trio.SSLStream(sniffer, unverified_tls(), server_hostname=request.host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(sniffer)
        if isinstance(error, (trio.BrokenResourceError, ssl.SSLError)) and sniffer.begin == b"HTTP/":
            raise PlainAnswer from error
        raise
    return stream
