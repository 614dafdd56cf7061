"""OTLP over gRPC, against the library's own server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ebbtide.otel.delivery.answers import NS_PER_SECOND, Accepted, Again, Rejected
from ebbtide.otel.delivery.destination import BadDestination, Destination
from ebbtide.otel.delivery.exporters import sender_for
from ebbtide.otel.delivery.otlp_grpc import METHODS
from ebbtide.otel.sdk import readable_spans
from tests.otel.delivery.collector import no_good
from tests.otel.delivery.spans import RESOURCE, batch, payload, span
from tests.otel.delivery.test_otlp_http import Keys, keys
from tests.waiting import WATCHDOG_SECONDS

__all__ = ["keys"]


def retry_details(seconds: int) -> bytes:
    """The bytes of a google.rpc.Status with a RetryInfo, put together by hand."""

    def packed(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    info = packed(1, bytes([0x08, seconds]))
    return b"\x08\x08" + packed(3, packed(1, b"type.googleapis.com/google.rpc.RetryInfo") + packed(2, info))


class Service(grpc.GenericRpcHandler):
    """Answers every call in the same way, and keeps what it was sent."""

    def __init__(
        self,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        words: str = "",
        details: bytes = b"",
        body: bytes = b"",
    ) -> None:
        self.code, self.words, self.details, self.body = code, words, details, body
        self.got: list[tuple[bytes, dict[str, str | bytes]]] = []

    def service(self, call: Any) -> Any:
        metadata = dict(call.invocation_metadata)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(call.method, request, context, metadata)
        )

    def _answer(self, method: str, request: bytes, context: Any, metadata: dict[str, str | bytes]) -> bytes:
        assert method == METHODS["traces"]
        self.got.append((request, metadata))
        if self.code is not grpc.StatusCode.OK:
            if self.details:
                context.set_trailing_metadata((("grpc-status-details-bin", self.details),))
            context.abort(self.code, self.words)
        return self.body


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


async def send(endpoint: str, **fields: Any) -> Any:
    fields = {"timeout_ns": int(WATCHDOG_SECONDS * NS_PER_SECOND)} | fields
    sender = sender_for(Destination(endpoint=endpoint, protocol="grpc", **fields))
    answer = await sender.send(batch())
    await sender.aclose()
    return answer


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_call_carries_the_payload_and_the_headers(compression: str) -> None:
    """The bytes arrive as they are, compressed on the way or not."""
    service = Service()
    with serving(service) as endpoint:
        answer = await send(endpoint, headers=(("x-tenant", "a"),), compression=compression)
    assert answer == Accepted()
    ((request, metadata),) = service.got
    assert request == payload()
    assert metadata["x-tenant"] == "a"


async def test_a_partial_success_is_read() -> None:
    """The same message as over HTTP."""
    partial = ExportTracePartialSuccess(rejected_spans=2, error_message="our words")
    body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    with serving(Service(body=body)) as endpoint:
        assert await send(endpoint) == Accepted(2, "our words")


async def test_an_error_of_the_server_is_read() -> None:
    """Its code, its words, and its RetryInfo: RESOURCE_EXHAUSTED may be tried again only with that."""
    service = Service(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", retry_details(7))
    with serving(service) as endpoint:
        assert await send(endpoint) == Again("gRPC RESOURCE_EXHAUSTED: busy", 7 * NS_PER_SECOND)


@pytest.mark.parametrize("kind", ["dead", "mute", "nonsense"])
async def test_no_server_is_bad_enough_to_raise(kind: str) -> None:
    """Down, deaf, mute or rude: the same bytes may be sent again later."""
    async with no_good(kind) as endpoint:
        answer = await send(endpoint, timeout_ns=NS_PER_SECOND // 2)
    assert isinstance(answer, Again), answer
    assert answer.reason


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    """A server would refuse it; in halves it may go."""
    service = Service()
    with serving(service) as endpoint:
        sender = sender_for(Destination(endpoint=endpoint, protocol="grpc"))
        answer = await sender.send(readable_spans([span(1)._replace(name="x" * 4 * 2**20)], RESOURCE))
        await sender.aclose()
    assert isinstance(answer, Rejected)
    assert answer.too_large
    assert service.got == []


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library asks it for a tunnel; for the hosts of NO_PROXY it does not."""
    asked = []

    async def serve(stream: trio.SocketStream) -> None:
        asked.append((await stream.receive_some(4096)).split(b"\r\n")[0])

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        assert isinstance(await send("http://collector.invalid:4317"), Again)
        assert asked[0] == b"CONNECT collector.invalid:4317 HTTP/1.1"
        count = len(asked)
        monkeypatch.setenv("no_proxy", "collector.invalid")
        assert isinstance(await send("http://collector.invalid:4317"), Again)
        assert len(asked) == count
        nursery.cancel_scope.cancel()


async def test_mutual_tls(keys: Keys) -> None:
    """Both sides show a certificate of the same authority."""
    key, chain = keys.server.private_key_pem.bytes(), b"".join(b.bytes() for b in keys.server.cert_chain_pems)
    roots = keys.authority.cert_pem.bytes()
    credentials = grpc.ssl_server_credentials([(key, chain)], roots, require_client_auth=True)
    both = {"client_certificate": keys.chain, "client_key": keys.key}
    with serving(Service(), credentials) as endpoint:
        good = await send(endpoint, certificate=keys.ca, **both)
        bad = await send(endpoint, certificate=keys.ca, timeout_ns=NS_PER_SECOND)
    assert good == Accepted()
    assert isinstance(bad, Again)


@pytest.mark.parametrize("field", ["certificate", "client_certificate", "client_key"])
def test_a_file_that_holds_no_certificate_is_named(keys: Keys, field: str) -> None:
    """The library takes any bytes, and would say that the server is not available."""
    fields: dict[str, Any] = {
        "certificate": keys.ca,
        "client_certificate": keys.chain,
        "client_key": keys.key,
    }
    fields[field] = __file__
    with pytest.raises(BadDestination, match="test_otlp_grpc"):
        sender_for(Destination(endpoint="https://localhost", protocol="grpc", **fields))
