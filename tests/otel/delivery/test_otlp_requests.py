"""OTLP: the request in both encodings, what each answer means, and each failure of a server.

HTTP runs against our collector, gRPC against the library's own server. A separate part covers the libraries'
own behaviour and environment.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
import trustme
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel import otlp
from ebbtide.otel.destination import Destination
from ebbtide.otel.otlp_grpc import METHOD
from ebbtide.otel.sending import Accepted, Again, Refused, Rejected
from ebbtide.otel.span import Resource, Span, SpanEvent, SpanLink
from tests.otel.delivery.collector import NO_GOOD, Collector, Got, Reply, collecting, no_good
from tests.otel.delivery.spans import RESOURCE, encode_traces, spans
from tests.waiting import WATCHDOG_SECONDS

PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="our words")
).SerializeToString()


async def send(endpoint: str, count: int = 1, **fields: Any) -> Any:
    fields = {"timeout_ns": int(WATCHDOG_SECONDS * NS_PER_SECOND)} | fields
    path = "" if fields.get("protocol") == "grpc" else "/v1/traces"
    sender = otlp.sender_for(Destination(endpoint=endpoint + path, **fields))
    answer = await sender.send(spans(count), RESOURCE)
    await sender.close()
    return answer


async def once(collector: Collector, **fields: Any) -> Any:
    async with collecting(collector):
        return await send(collector.endpoint, **fields)


class Service(grpc.GenericRpcHandler):
    """Answers all calls alike and keeps the requests."""

    def __init__(self, code: grpc.StatusCode = grpc.StatusCode.OK, words: str = "") -> None:
        self.code, self.words = code, words
        self.got: list[tuple[bytes, dict[str, str | bytes]]] = []

    def service(self, call: Any) -> Any:
        assert call.method == METHOD
        metadata = dict(call.invocation_metadata)

        def answer(request: bytes, context: Any) -> bytes:
            self.got.append((request, metadata))
            if self.code is not grpc.StatusCode.OK:
                context.abort(self.code, self.words)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def serving(service: Service, credentials: Any = None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1), handlers=[service])
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield f"{'http' if credentials is None else 'https'}://localhost:{port}"
    finally:
        server.stop(None).wait()


# --- the request

PLAIN = Span(bytes(range(16)), bytes(range(8)), b"", "shutdown", 10**18, 10**18 + 5, (), 3, 9)
FULL = PLAIN._replace(
    span_id=bytes(range(8, 16)),
    parent_id=bytes(range(8)),
    name="pod",
    attributes=(
        ("text", "später"),
        ("number", -(2**62)),
        ("yes", True),
        ("one", 1),
        ("names", ("a", "b")),
        ("none", ()),
    ),
    events=(SpanEvent("autopsy", 10**18 + 1, (("pid", 7),)),),
    links=(SpanLink(bytes(16), bytes(8), (("ebbtide.link", "retry"),)),),
    status="error",
    status_text="SIGKILL",
)


def in_base64(value: Any) -> Any:
    """Protobuf's JSON from OTLP's, whose ids are in hex."""
    if isinstance(value, list):
        return [in_base64(each) for each in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: b64encode(bytes.fromhex(each)).decode() if key in ids else in_base64(each)
        for key, each in value.items()
    }


def test_json_is_the_same_request() -> None:
    resource = Resource((("service.name", "ebbtide"), ("host.name", "knoten-ä")), 1)
    data = otlp.encode_traces_json([PLAIN, FULL], resource)
    assert b"\n" not in data
    document = json.loads(data)
    read = json_format.ParseDict(in_base64(document), ExportTraceServiceRequest())
    assert read == ExportTraceServiceRequest.FromString(encode_traces([PLAIN, FULL], resource))
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
    assert span["startTimeUnixNano"] == str(10**18)
    assert span["attributes"][1]["value"] == {"intValue": str(-(2**62))}


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_request_is_what_otlp_asks_for(compression: str) -> None:
    """POST protobuf to the path with the headers. A compressed request says so and unpacks to the payload."""
    collector = Collector()
    headers = (("authorization", "Bearer x"),)
    assert await once(collector, headers=headers, compression=compression) == Accepted()
    (got,) = collector.got
    assert got.target == "/v1/traces"
    assert got.headers["content-type"] == "application/x-protobuf"
    assert got.headers["authorization"] == "Bearer x"
    assert got.headers.get("content-encoding", "none") == compression
    assert got.body == encode_traces(spans(), RESOURCE)


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_call_carries_the_payload_and_the_headers(compression: str) -> None:
    service = Service()
    with serving(service) as endpoint:
        headers = (("x-tenant", "a"),)
        answer = await send(endpoint, protocol="grpc", headers=headers, compression=compression)
    assert answer == Accepted()
    ((request, metadata),) = service.got
    assert request == encode_traces(spans(), RESOURCE)
    assert metadata["x-tenant"] == "a"


# --- what each answer means (OTLP specification, "Failures" and "OTLP/gRPC Response")


@given(st.integers(0, 2**63 - 1), st.text(max_size=50))
def test_what_the_library_writes_is_read(rejected: int, words: str) -> None:
    """Any number and any text, the text as one printable line."""
    inner = ExportTracePartialSuccess(rejected_spans=rejected, error_message=words)
    data = ExportTraceServiceResponse(partial_success=inner).SerializeToString()
    assert otlp.parse_partial_success(data) == Accepted(rejected, otlp.printable_line(words))


@given(st.binary(max_size=200))
def test_no_bytes_do_any_harm(data: bytes) -> None:
    """Garbage is one exception; the sender treats it as no answer."""
    for read in (otlp.parse_partial_success, otlp.parse_status):
        try:
            read(data)
        except otlp.NotProtobuf:
            pass
    assert isinstance(otlp.answer_of_http(200, otlp.PROTOBUF, "", data), Accepted | Again)
    assert isinstance(otlp.answer_of_http(400, otlp.PROTOBUF, "", data), Rejected)
    assert otlp.answer_of_grpc(14, "UNAVAILABLE", "", data).reason == "gRPC UNAVAILABLE"


STATUSES = {Again: (429, 502, 503, 504), Rejected: (400, 413, 415), Refused: (301, 401, 403, 404, 500)}
CODES = {
    Again: ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "DATA_LOSS", "CANCELLED", "OUT_OF_RANGE"),
    Rejected: ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"),
    Refused: ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INTERNAL", "NOT_FOUND"),
}


@pytest.mark.parametrize("kind", STATUSES)
def test_each_status_and_each_code_has_its_meaning(kind: type) -> None:
    for status in STATUSES[kind]:
        answer: Any = otlp.answer_of_http(status, "text/plain", "", b"because \x1b[31m of this")
        assert isinstance(answer, kind)
        assert answer.reason == f"HTTP {status}: because \ufffd[31m of this"
    for name in CODES[kind]:
        answer = otlp.answer_of_grpc(grpc.StatusCode[name].value[0], name, "the reason", b"")
        assert isinstance(answer, kind)
        assert answer.reason == f"gRPC {name}: the reason"
    assert otlp.answer_of_http(400, otlp.PROTOBUF, "", b"\x08\x03\x12\x03bad") == Rejected("HTTP 400: bad")


PAUSES = [
    ("7", 7 * NS_PER_SECOND), ("9999999999", 300 * NS_PER_SECOND), ("soon", None),
    ("Wed, 21 Oct 2015 07:28:00 GMT", None),
]  # fmt: skip


@pytest.mark.parametrize("text, after_ns", PAUSES)
def test_retry_after_is_heard(text: str, after_ns: int | None) -> None:
    """Seconds within bounds; other values are ignored."""
    assert otlp.answer_of_http(503, "", text, b"") == Again("HTTP 503", after_ns)


TYPES = [
    ("text/html", b"", Again), ("application/json", b"{}", Again), ("", b"x", Again),
    ("", b"", Accepted), (otlp.PROTOBUF, b"", Accepted), ("Application/X-Protobuf; v=1", b"", Accepted),
]  # fmt: skip


@pytest.mark.parametrize("content_type, body, kind", TYPES)
def test_only_an_answer_of_otlps_type_is_an_acknowledgement(
    content_type: str, body: bytes, kind: type
) -> None:
    """An empty page of another type acknowledges no span; a body without a type does."""
    assert isinstance(otlp.answer_of_http(200, content_type, "", body), kind)


NO_SERVERS = [
    *(("http/protobuf", kind) for kind in (*NO_GOOD, "dead")),
    *(("grpc", kind) for kind in ("dead", "mute", "nonsense")),
]


@pytest.mark.parametrize("protocol, kind", NO_SERVERS)
async def test_no_server_is_bad_enough_to_raise(protocol: str, kind: str) -> None:
    """Down, deaf, mute, malformed or endless: the same bytes may be sent again."""
    async with no_good(kind) as endpoint:
        answer = await send(endpoint, 2000, protocol=protocol, timeout_ns=NS_PER_SECOND // 5)
    assert isinstance(answer, Again), answer
    assert answer.reason


# --- no value of a header leaves in a server's words

SECRET = 'TOPSECRET/+"x'
VALUES = [SECRET, f"Bearer {SECRET}", f"Api-Token  {SECRET}"]


def echo(status: int, fill: int, got: Got) -> Reply:
    text = (("content-type", "text/plain"),)
    return Reply(status, f"{'.' * fill}x-last: {got.headers['x-last']}".encode(), text)


@pytest.mark.parametrize("value", VALUES)
async def test_an_echo_over_http_is_starred_out(value: str) -> None:
    """The value is hidden in the answer's text, even at a cut."""
    for fill in range(255, 300, 18):
        answer = await once(Collector(partial(echo, 401, fill)), headers=(("x-last", value),))
        assert "TOP" not in answer.reason
    assert answer.reason.startswith("HTTP 401: ...")


async def test_an_echo_over_grpc_is_starred_out() -> None:
    """A gRPC status's details are server text too."""
    service = Service(grpc.StatusCode.UNAUTHENTICATED, f"authorization: Bearer {SECRET}, who is that")
    with serving(service) as endpoint:
        headers = (("authorization", f"Bearer {SECRET}"),)
        answer = await send(endpoint, protocol="grpc", headers=headers)
    assert SECRET not in answer.reason
    assert answer.reason.endswith(", who is that")


# --- what the libraries would do by themselves


async def test_a_redirect_is_no_acknowledgement() -> None:
    """Never followed: credentials stay with the configured endpoint."""
    other = Collector()
    async with collecting(other):
        place = (("location", f"{other.endpoint}/v1/traces"),)
        collector = Collector(lambda got: Reply(307, b"", place))
        assert isinstance(await once(collector, headers=(("authorization", "Bearer x"),)), Refused)
    assert (len(collector.got), other.got) == (1, [])


async def test_a_server_that_hangs_up_is_asked_once() -> None:
    """The SDK alone would retry at once and again after a second."""
    asked = []

    async def serve(stream: trio.SocketStream) -> None:
        asked.append(await stream.receive_some(16))

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        answer = await send(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()
    assert isinstance(answer, Again)
    assert len(asked) == 1


@pytest.mark.parametrize("headers", [(("authorization", "Bearer ours"),), ()])
async def test_a_login_of_netrc_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, headers: tuple[tuple[str, str], ...]
) -> None:
    (tmp_path / "netrc").write_text("machine localhost login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    collector = Collector()
    await once(collector, headers=headers)
    assert collector.got[0].headers.get("authorization") == dict(headers).get("authorization")


async def test_the_environment_adds_nothing_to_a_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    """`resolve` has already read the environment; the SDK would merge more."""
    for name, value in {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-other=secret",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-more=secret",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem",
        "REQUESTS_CA_BUNDLE": "/nowhere.pem",
    }.items():
        monkeypatch.setenv(name, value)
    collector = Collector()
    assert await once(collector, headers=(("x-tenant", "a"),)) == Accepted()
    own = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
    assert set(collector.got[0].headers) == own | {"x-tenant"}


async def test_only_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy gets the whole URL; NO_PROXY excludes a host."""
    collector = Collector()
    monkeypatch.setenv("NO_PROXY", "localhost")
    async with collecting(collector):
        monkeypatch.setenv("HTTP_PROXY", collector.endpoint)
        assert await send("http://back-end.invalid") == Accepted()
        assert await send(collector.endpoint) == Accepted()
    assert [got.target for got in collector.got] == ["http://back-end.invalid/v1/traces", "/v1/traces"]


# --- TLS


class Keys:
    """An authority, a server and a client, as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.server, client = (
            self.authority.issue_cert("localhost"),
            self.authority.issue_cert("node@localhost"),
        )
        self.ca, self.chain, self.key = (str(folder / name) for name in ("ca.pem", "chain.pem", "key.pem"))
        self.authority.cert_pem.write_to_path(self.ca)
        Path(self.chain).write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))
        client.private_key_pem.write_to_path(self.key)

    def context(self, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.server.configure_cert(context)
        if mutual:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


async def test_tls_with_an_authority_of_ones_own(keys: Keys) -> None:
    """Only the named certificate verifies the server."""
    collector = Collector()
    async with collecting(collector, keys.context()):
        good = await send(collector.endpoint, certificate=keys.ca)
        bad = await send(collector.endpoint)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert bad.reason.startswith("the server's certificate is not accepted: ")
    assert len(collector.got) == 1


async def test_mutual_tls(keys: Keys) -> None:
    """A server that requires a client certificate gets it; without one no request arrives."""
    collector = Collector()
    both = {"certificate": keys.ca, "client_certificate": keys.chain, "client_key": keys.key}
    async with collecting(collector, keys.context(mutual=True)):
        good = await send(collector.endpoint, **both)
        bad = await send(collector.endpoint, certificate=keys.ca)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert len(collector.got) == 1


async def test_mutual_tls_over_grpc(keys: Keys) -> None:
    key, chain = keys.server.private_key_pem.bytes(), b"".join(b.bytes() for b in keys.server.cert_chain_pems)
    roots = keys.authority.cert_pem.bytes()
    credentials = grpc.ssl_server_credentials([(key, chain)], roots, require_client_auth=True)
    both = {"client_certificate": keys.chain, "client_key": keys.key}
    with serving(Service(), credentials) as endpoint:
        good = await send(endpoint, protocol="grpc", certificate=keys.ca, **both)
        bad = await send(endpoint, protocol="grpc", certificate=keys.ca, timeout_ns=NS_PER_SECOND)
    assert good == Accepted()
    assert isinstance(bad, Again)
