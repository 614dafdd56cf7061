"""What can be delivered: traces always, log records and metrics where they are asked for.

Traces and log records are projections with a cursor each, delivered by the same exporter; metrics are sums,
of which only the newest matter. The endpoint of one signal follows from that of the traces (OTLP
specification, "Endpoint URLs for OTLP/HTTP").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from otel.delivery import cursor
from otel.delivery.destination import TRACES_PATH, BadDestination, Destination
from otel.delivery.stock import Projecting
from otel.encode import encode_traces
from otel.encode_logs import encode_logs
from otel.logs import Logs
from otel.projection import Projection
from otel.span import Resource


class Signal(NamedTuple):
    """``path`` over HTTP, ``method`` over gRPC; ``cursor`` is the side file's name."""

    name: str
    path: str
    method: str
    cursor: str
    project: Callable[[], Projecting]
    encode: Callable[[Sequence[Any], Resource], bytes]


_SERVICE = "/opentelemetry.proto.collector"

TRACES = Signal(
    "traces",
    TRACES_PATH,
    f"{_SERVICE}.trace.v1.TraceService/Export",
    cursor.FILE_NAME,
    Projection,
    encode_traces,
)
LOGS = Signal(
    "logs",
    "/v1/logs",
    f"{_SERVICE}.logs.v1.LogsService/Export",
    cursor.LOGS_NAME,
    Logs,
    encode_logs,
)

METRICS_PATH = "/v1/metrics"
METRICS_METHOD = f"{_SERVICE}.metrics.v1.MetricsService/Export"


def of_job(destination: Destination) -> tuple[Signal, ...]:
    """What an exporter follows the journal for, the traces first."""
    return (TRACES, *((LOGS,) if LOGS.name in destination.signals else ()))


def at(destination: Destination, path: str) -> Destination:
    """The same back end for another signal. Raises BadDestination where its place cannot be known."""
    if destination.protocol == "grpc" or path == TRACES_PATH:
        return destination
    parts = urlsplit(destination.endpoint)
    if not parts.path.endswith(TRACES_PATH):
        raise BadDestination(
            f"where {path} is cannot be told from {parts.path}: name the endpoint without a path of traces"
        )
    whole = urlunsplit(
        (parts.scheme, parts.netloc, parts.path.removesuffix(TRACES_PATH) + path, parts.query, "")
    )
    return msgspec.structs.replace(destination, endpoint=whole)
