"""OTLP over gRPC: an exporter of the SDK's kind and with its encoders, around one unary call.

The SDK's own exporter is not used here: it gives its caller nothing of an answer but "failed", takes a
partial success for a success, tries again by itself, and has no place to hand in a channel. What a session
hears over HTTP is not to be had of it without its private parts.

Imported only where the configuration asks for gRPC.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.answers import (
    ANSWER_BYTES_MAX,
    Accepted,
    Answer,
    Rejected,
    answer_of_grpc,
    answer_of_message,
    mask_for,
)
from ebbtide.otel.delivery.destination import BadDestination, Destination, SignalName
from ebbtide.otel.delivery.otlp_http import REQUEST_BYTES_MAX, USER_AGENT, tls_context

PORTS = {"http": 80, "https": 443}
DETAILS = "grpc-status-details-bin"
METHODS: dict[SignalName, str] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}

#: Back-off is ours (`sender.Backoff`): the library only has to find out soon that a server is back.
OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.primary_user_agent", USER_AGENT),
)


class GrpcExporter(SpanExporter):
    """Of any of the three signals. ``answer``: what the last call got."""

    def __init__(self, destination: Destination, signal: SignalName) -> None:
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
        self._call = self._channel.unary_unary(METHODS[signal])
        self._encode = _encoder(signal)
        self._metadata, self._mask = destination.headers, mask_for(destination.headers)
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND
        self.answer: Answer | None = None

    def export(self, batch: Any) -> SpanExportResult:
        request: bytes = self._encode(batch).SerializeToString()
        self.answer = self._ask(request)
        return SpanExportResult.SUCCESS if isinstance(self.answer, Accepted) else SpanExportResult.FAILURE

    def _ask(self, request: bytes) -> Answer:
        if len(request) > REQUEST_BYTES_MAX:
            return Rejected(f"a request of {len(request)} bytes is too large", too_large=True)
        try:
            message = self._call(request, timeout=self._timeout_seconds, metadata=self._metadata)
        except grpc.RpcError as call:
            code, trailing = call.code(), call.trailing_metadata() or ()
            details = next((value for name, value in trailing if name == DETAILS), b"")
            # The library's own text may hold metadata as well as the server's.
            text = self._mask((call.details() or "").encode("utf-8", "replace")).decode("utf-8", "replace")
            return answer_of_grpc(code.value[0], code.name, text, details)
        return answer_of_message(self._mask(message))

    def shutdown(self) -> None:
        """Ends also a call that another thread waits for."""
        self._channel.close()


def _encoder(signal: SignalName) -> Callable[[Any], Any]:
    """Each loads its own messages."""
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        return encode_spans
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

        return encode_logs
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    return encode_metrics


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
