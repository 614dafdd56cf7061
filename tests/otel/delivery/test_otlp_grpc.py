"""OTLP over gRPC, against the library's own server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.otlp_grpc import METHOD
from ebbtide.otel.delivery.otlp_sender import sender_for
from ebbtide.otel.delivery.sending import Accepted, Again
from tests.otel.delivery.collector import no_good
from tests.otel.delivery.spans import batch, payload
from tests.otel.delivery.test_otlp_http import Keys, keys
from tests.waiting import WATCHDOG_SECONDS

__all__ = ["keys"]


class Service(grpc.GenericRpcHandler):
    """Answers all calls alike and keeps the requests."""

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
        assert method == METHOD
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
    answer = await sender.send(*batch())
    await sender.close()
    return answer


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_call_carries_the_payload_and_the_headers(compression: str) -> None:
    """The bytes arrive unchanged, compressed or not."""
    service = Service()
    with serving(service) as endpoint:
        answer = await send(endpoint, headers=(("x-tenant", "a"),), compression=compression)
    assert answer == Accepted()
    ((request, metadata),) = service.got
    assert request == payload()
    assert metadata["x-tenant"] == "a"


@pytest.mark.parametrize("kind", ["dead", "mute", "nonsense"])
async def test_no_server_is_bad_enough_to_raise(kind: str) -> None:
    """Down, deaf, mute or malformed: the same bytes may be sent again."""
    async with no_good(kind) as endpoint:
        answer = await send(endpoint, timeout_ns=NS_PER_SECOND // 2)
    assert isinstance(answer, Again), answer
    assert answer.reason


async def test_mutual_tls(keys: Keys) -> None:
    key, chain = keys.server.private_key_pem.bytes(), b"".join(b.bytes() for b in keys.server.cert_chain_pems)
    roots = keys.authority.cert_pem.bytes()
    credentials = grpc.ssl_server_credentials([(key, chain)], roots, require_client_auth=True)
    both = {"client_certificate": keys.chain, "client_key": keys.key}
    with serving(Service(), credentials) as endpoint:
        good = await send(endpoint, certificate=keys.ca, **both)
        bad = await send(endpoint, certificate=keys.ca, timeout_ns=NS_PER_SECOND)
    assert good == Accepted()
    assert isinstance(bad, Again)
