"""OTLP over gRPC: the bytes as they are, one unary call at a time, every end of it an answer.

Imported only where the configuration asks for gRPC. The library has threads of its own; a call is waited
for in one of trio's, and cancelled through the library when its time is over.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.answers import (
    ANSWER_BYTES_MAX,
    Again,
    Answer,
    answer_of_grpc,
    answer_of_message,
    mask_for,
)
from ebbtide.otel.delivery.destination import BadDestination, Destination
from ebbtide.otel.delivery.otlp_http import PORTS, USER_AGENT, tls_context

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DETAILS = "grpc-status-details-bin"

#: Beyond the call's own deadline, for the library to notice it.
SLACK_SECONDS = 1.0

#: Back-off is ours (`sender.Backoff`): the library only has to find out soon that a server is back.
OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.primary_user_agent", USER_AGENT),
    # A proxy of the environment is for the web, not for a collector beside us.
    ("grpc.enable_http_proxy", 0),
)


class GrpcSender:
    """Sends to one destination. Not for two tasks at once."""

    def __init__(self, destination: Destination, method: str = METHOD) -> None:
        """Reads the certificates. Raises BadDestination."""
        parts = urlsplit(destination.endpoint)
        host = parts.hostname or ""
        bracketed = f"[{host}]" if ":" in host else host
        target = f"{bracketed}:{parts.port or PORTS[parts.scheme]}"
        compression = (
            grpc.Compression.Gzip if destination.compression == "gzip" else grpc.Compression.NoCompression
        )
        if parts.scheme == "https":
            credentials = grpc.ssl_channel_credentials(*_certificate_files(destination))
            self._channel = grpc.secure_channel(target, credentials, OPTIONS, compression)
        else:
            self._channel = grpc.insecure_channel(target, OPTIONS, compression)
        # No serializer: what is sent and received are bytes.
        self._export = self._channel.unary_unary(method)
        self._metadata, self._mask = destination.headers, mask_for(destination.headers)
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    async def send(self, payload: bytes) -> Answer:
        """Until it is answered or its time is over; raises nothing but cancellation."""
        call = self._export.future(payload, timeout=self._timeout_seconds, metadata=self._metadata)
        done = trio.Event()
        token = trio.lowlevel.current_trio_token()

        # Called in a thread of the library, perhaps when our loop has ended already.
        def wake(_: Any) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        call.add_done_callback(wake)
        try:
            with trio.move_on_after(self._timeout_seconds + SLACK_SECONDS) as scope:
                await done.wait()
        except BaseException:
            # Cancelled: the library would go on with the call, and send what may be sent again elsewhere.
            call.cancel()
            raise
        if scope.cancelled_caught:
            call.cancel()
            return Again(f"no answer within {self._timeout_seconds:g} s")
        code = call.code()
        if code is grpc.StatusCode.OK:
            return answer_of_message(self._mask(call.result()))
        details = next((value for name, value in call.trailing_metadata() or () if name == DETAILS), b"")
        # The library's own text may hold metadata as well as the server's.
        text = self._mask((call.details() or "").encode("utf-8", "replace")).decode("utf-8", "replace")
        return answer_of_grpc(code.value[0], code.name, text, details)

    async def aclose(self) -> None:
        """At once: the library's own close may wait for a connection attempt."""
        await trio.to_thread.run_sync(self._channel.close, abandon_on_cancel=True)


def _certificate_files(destination: Destination) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Root certificates, key, and certificate chain, as the library wants them."""
    # It takes any bytes, and calls the server unavailable later, for ever: so they are first read as for
    # HTTP, where what is wrong with them has a name.
    tls_context(destination)
    paths = (destination.certificate, destination.client_key, destination.client_certificate)
    try:
        roots, key, chain = (Path(path).read_bytes() if path else None for path in paths)
    except OSError as error:
        raise BadDestination(f"the certificate {error.filename} cannot be read: {error.strerror}") from error
    return roots, key, chain
