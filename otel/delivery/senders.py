"""The transport of a destination; gRPC's library is loaded only where it is asked for."""

from __future__ import annotations

from otel.delivery.courier import Sender
from otel.delivery.destination import BadDestination, Destination


def sender_for(destination: Destination, method: str = "") -> Sender:
    """``method``: gRPC's, that of the traces if empty. Raises BadDestination: certificates that cannot be
    read, a library that is not there.
    """
    if destination.protocol == "http/protobuf":
        from otel.delivery.over_http import HttpSender

        return HttpSender(destination)
    try:
        from otel.delivery.over_grpc import METHOD, GrpcSender
    except ImportError as error:
        raise BadDestination(
            "grpc needs the package grpcio: install ebbtide[grpc], or use http/protobuf"
        ) from error
    return GrpcSender(destination, method or METHOD)
