"""OTLP over HTTP: requests, and the meaning of each server failure.

A separate part covers the libraries' own behaviour and environment.
"""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.otlp_sender import sender_for
from ebbtide.otel.delivery.sending import Accepted, Again, Refused
from tests.otel.delivery.collector import NO_GOOD, Collector, Reply, collecting, no_good
from tests.otel.delivery.spans import batch, payload
from tests.waiting import WATCHDOG_SECONDS

PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="our words")
).SerializeToString()


def destination(endpoint: str, **fields: object) -> Destination:
    given: dict[str, Any] = {"timeout_ns": int(WATCHDOG_SECONDS * NS_PER_SECOND)} | fields
    return Destination(endpoint=f"{endpoint}/v1/traces", **given)


async def once(collector: Collector, **fields: object) -> object:
    async with collecting(collector):
        sender = sender_for(destination(collector.endpoint, **fields))
        answer = await sender.send(*batch())
        await sender.close()
    return answer


async def send_to(endpoint: str, **fields: object) -> object:
    sender = sender_for(destination(endpoint, **fields))
    answer = await sender.send(*batch())
    await sender.close()
    return answer


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
    assert got.body == payload()


@pytest.mark.parametrize("kind", [*NO_GOOD, "dead"])
async def test_no_server_is_bad_enough_to_raise(kind: str) -> None:
    """Down, deaf, mute, malformed or endless: the same bytes may be sent again."""
    async with no_good(kind) as endpoint:
        sender = sender_for(Destination(endpoint=f"{endpoint}/v1/traces", timeout_ns=NS_PER_SECOND // 5))
        answer = await sender.send(*batch(2000))
        await sender.close()
    assert isinstance(answer, Again), answer
    assert answer.reason


# --- what the libraries would do by themselves ----------------------------------------------------


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
        answer = await send_to(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
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
        assert await send_to("http://back-end.invalid") == Accepted()
        assert await send_to(collector.endpoint) == Accepted()
    assert [got.target for got in collector.got] == ["http://back-end.invalid/v1/traces", "/v1/traces"]


# --- TLS -----------------------------------------------------------------------------------------


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
        good = await send_to(collector.endpoint, certificate=keys.ca)
        bad = await send_to(collector.endpoint)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert bad.reason.startswith("the server's certificate is not accepted: ")
    assert len(collector.got) == 1


async def test_mutual_tls(keys: Keys) -> None:
    """A server that requires a client certificate gets it; without one no request arrives."""
    collector = Collector()
    both = {"certificate": keys.ca, "client_certificate": keys.chain, "client_key": keys.key}
    async with collecting(collector, keys.context(mutual=True)):
        good = await send_to(collector.endpoint, **both)
        bad = await send_to(collector.endpoint, certificate=keys.ca)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert len(collector.got) == 1
