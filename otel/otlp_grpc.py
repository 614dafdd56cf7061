"""OTLP over gRPC. Imported only where the configuration asks for it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import grpc

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel import otlp
from ebbtide.otel.destination import BadDestination, Destination
from ebbtide.otel.otlp import ANSWER_BYTES_MAX
from ebbtide.otel.sending import Answer

PORTS = {"http": 80, "https": 443}
DETAILS = "grpc-status-details-bin"
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

#: `Sending` tries again. The library must only notice soon that a server is back.
OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.primary_user_agent", otlp.USER_AGENT),
)


class GrpcExporter:
    def __init__(self, destination: Destination) -> None:
        """Reads the certificates. Raises BadDestination."""
        parts = urlsplit(destination.endpoint)
        host = parts.hostname or ""
        target = f"{f'[{host}]' if ':' in host else host}:{parts.port or PORTS[parts.scheme]}"
        zipped = destination.compression == "gzip"
        compression = grpc.Compression.Gzip if zipped else grpc.Compression.NoCompression
        if parts.scheme == "https":
            # The library takes any bytes and later reports the server as unavailable, so let tls_context name
            # the fault.
            otlp.tls_context(destination)
            paths = (destination.certificate, destination.client_key, destination.client_certificate)
            try:
                files = [Path(path).read_bytes() if path else None for path in paths]
            except OSError as error:
                why = f"the certificate {error.filename} cannot be read: {error.strerror}"
                raise BadDestination(why) from error
            credentials = grpc.ssl_channel_credentials(*files)
            self._channel = grpc.secure_channel(target, credentials, OPTIONS, compression)
        else:
            self._channel = grpc.insecure_channel(target, OPTIONS, compression)
        # Without a serializer, requests and answers are bytes.
        self._call = self._channel.unary_unary(METHOD)
        self._metadata, self._mask = destination.headers, otlp.mask_for(destination.headers)
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    def export(self, request: bytes) -> Answer:
        try:
            message = self._call(request, timeout=self._timeout_seconds, metadata=self._metadata)
        except grpc.RpcError as call:
            code, trailing = call.code(), call.trailing_metadata() or ()
            details = next((value for name, value in trailing if name == DETAILS), b"")
            # The library's own text may repeat metadata.
            text = self._mask((call.details() or "").encode("utf-8", "replace")).decode("utf-8", "replace")
            return otlp.answer_of_grpc(code.value[0], code.name, text, details)
        return otlp.acknowledged(self._mask(message))

    def close(self) -> None:
        self._channel.close()
