"""OTLP over HTTP: what is sent, and what each way of a server to fail is taken for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ebbtide.otel.delivery.answers import NS_PER_SECOND, Accepted, Again, Refused, Rejected
from ebbtide.otel.delivery.destination import BadDestination, Destination
from ebbtide.otel.delivery.otlp_http import HttpSender
from tests.otel.delivery.collector import NO_GOOD, Collector, Reply, collecting, no_good
from tests.otel.delivery.spans import payload

PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="our words")
).SerializeToString()


def destination(endpoint: str, **fields: object) -> Destination:
    given: dict[str, Any] = {"timeout_ns": 5 * NS_PER_SECOND} | fields
    return Destination(endpoint=f"{endpoint}/v1/traces", **given)


async def once(collector: Collector, **fields: object) -> object:
    async with collecting(collector):
        sender = HttpSender(destination(collector.endpoint, **fields))
        answer = await sender.send(payload())
        await sender.aclose()
    return answer


async def send_to(endpoint: str, **fields: object) -> object:
    sender = HttpSender(destination(endpoint, **fields))
    answer = await sender.send(payload())
    await sender.aclose()
    return answer


async def test_a_request_is_what_otlp_asks_for() -> None:
    """POST to the path, as protobuf, with the given headers; the answer is an acknowledgement."""
    collector = Collector()
    assert await once(collector, headers=(("authorization", "Bearer x"),)) == Accepted()
    (got,) = collector.got
    assert got.target == "/v1/traces"
    assert got.headers["content-type"] == "application/x-protobuf"
    assert got.headers["authorization"] == "Bearer x"
    assert got.body == payload()


async def test_gzip_is_the_same_bytes_each_time() -> None:
    """A compressed request says so, and unpacks to the payload."""
    collector = Collector()
    assert await once(collector, compression="gzip") == Accepted()
    assert collector.got[0].headers["content-encoding"] == "gzip"
    assert collector.got[0].body == payload()


async def test_a_connection_is_kept_and_one_that_was_closed_is_made_anew() -> None:
    """A server may close between two requests; the second one is not an error then."""
    collector = Collector()
    async with collecting(collector):
        port = collector.port
        sender = HttpSender(destination(collector.endpoint))
        assert await sender.send(payload()) == Accepted()
        assert await sender.send(payload()) == Accepted()
    again = Collector()
    async with collecting(again, port=port):
        assert await sender.send(payload()) == Accepted()
        await sender.aclose()
    assert (len(collector.got), len(again.got)) == (2, 1)


STATUSES = [
    (429, Again), (502, Again), (503, Again), (504, Again),
    (400, Rejected), (413, Rejected), (415, Rejected),
    (301, Refused), (401, Refused), (403, Refused), (404, Refused), (500, Refused),
]  # fmt: skip


@pytest.mark.parametrize("status, kind", STATUSES)
async def test_each_status_has_its_meaning(status: int, kind: type) -> None:
    """OTLP specification, "Failures": what may be tried again, what never, what is a matter of
    configuration.
    """
    reply = Reply(status, b"because \x1b[31m of this", (("content-type", "text/plain"),))
    answer = await once(Collector(lambda got: reply))
    assert isinstance(answer, kind)
    assert answer.reason == f"HTTP {status}: because �[31m of this"


@pytest.mark.parametrize("text, after_ns", [("7", 7 * NS_PER_SECOND), ("9999999999", 300 * NS_PER_SECOND),
                                           ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None)])  # fmt: skip
async def test_retry_after_is_heard(text: str, after_ns: int | None) -> None:
    """Seconds or a date, within bounds; nonsense says nothing."""
    answer = await once(Collector(lambda got: Reply(503, b"", (("retry-after", text),))))
    assert isinstance(answer, Again)
    assert answer.after_ns == after_ns


async def test_a_partial_success_says_how_many_and_why() -> None:
    """Rejected spans of an accepted request are counted with the server's reason, and not sent again."""
    answer = await once(Collector(lambda got: Reply(body=PARTIAL)))
    assert answer == Accepted(2, "our words")


TYPES = [
    ("text/html", b"", Again), ("application/json", b"{}", Again), ("", b"x", Again),
    ("", b"", Accepted), ("application/x-protobuf", b"", Accepted),
    ("Application/X-Protobuf; v=1", b"", Accepted),
]  # fmt: skip


@pytest.mark.parametrize("content_type, body, kind", TYPES)
async def test_only_an_answer_of_otlps_type_is_an_acknowledgement(
    content_type: str, body: bytes, kind: type
) -> None:
    """An empty page of another type says nothing of spans; one without a type and a body does."""
    headers = (("content-type", content_type),) if content_type else ()
    assert isinstance(await once(Collector(lambda got: Reply(200, body, headers))), kind)


async def test_a_protobuf_status_gives_its_reason() -> None:
    """A refusal's body is a google.rpc.Status."""
    answer = await once(Collector(lambda got: Reply(400, b"\x08\x03\x12\x03bad")))
    assert answer == Rejected("HTTP 400: bad")


@pytest.mark.parametrize("kind", [*NO_GOOD, "dead"])
async def test_no_server_is_bad_enough_to_raise(kind: str) -> None:
    """Down, deaf, mute, rude or endless: the same bytes may be sent again later."""
    async with no_good(kind) as endpoint:
        sender = HttpSender(Destination(endpoint=f"{endpoint}/v1/traces", timeout_ns=NS_PER_SECOND // 5))
        answer = await sender.send(payload(2000))
        await sender.aclose()
    assert isinstance(answer, Again), answer
    assert answer.reason


async def test_a_name_that_is_nobodys_is_a_reason_to_come_again() -> None:
    """Names are looked up at each connection, and may be there later."""
    answer = await HttpSender(Destination(endpoint="http://nobody.invalid:4318/v1/traces")).send(b"")
    assert isinstance(answer, Again)


# --- TLS -----------------------------------------------------------------------------------------


class Keys:
    """A certificate authority with a server and a client, as files."""

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
    """The server is known by the named certificate, and by no other."""
    collector = Collector()
    async with collecting(collector, keys.context()):
        good = await send_to(collector.endpoint, certificate=keys.ca)
        bad = await send_to(collector.endpoint)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert bad.reason.startswith("the server's certificate is not accepted: ")
    assert len(collector.got) == 1


async def test_mutual_tls(keys: Keys) -> None:
    """A server that wants to know the client gets its certificate; without one nothing arrives."""
    collector = Collector()
    both = {"certificate": keys.ca, "client_certificate": keys.chain, "client_key": keys.key}
    async with collecting(collector, keys.context(mutual=True)):
        good = await send_to(collector.endpoint, **both)
        bad = await send_to(collector.endpoint, certificate=keys.ca)
    assert good == Accepted()
    assert isinstance(bad, Again)
    assert len(collector.got) == 1


def test_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    """The path stands in the message, so that it can be put right."""
    with pytest.raises(BadDestination, match=r"nowhere\.pem"):
        HttpSender(Destination(endpoint="https://localhost/", certificate=str(tmp_path / "nowhere.pem")))


async def test_cancelling_leaves_no_connection() -> None:
    """A sender that was cancelled in mid-request begins the next one on a new connection."""
    collector = Collector()
    async with collecting(collector):
        sender = HttpSender(destination(collector.endpoint))
        assert await sender.send(payload()) == Accepted()
        with trio.CancelScope() as scope:
            scope.cancel()
            await sender.send(payload())
        assert scope.cancelled_caught
        assert await sender.send(payload()) == Accepted()
        await sender.aclose()
