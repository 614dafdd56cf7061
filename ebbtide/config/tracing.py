"""The section ``tracing``: where a shutdown's trace goes, and how long the shutdown's end may wait for it.

Field by field this wins over the standard OTEL_* environment (`otel.delivery.destination`). Header values are
secrets: no message, no ``config show`` and no event repeats one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.durations import format_duration
from ebbtide.config.scalars import DocumentError
from ebbtide.config.sections import Inner, read_section, show_section
from events.base import NS_PER_SECOND
from otel.delivery.destination import (
    BESIDE,
    COMPRESSIONS,
    HEADERS_MAX,
    HIDDEN,
    PROTOCOLS,
    BadDestination,
    Given,
    check_headers,
    checked_endpoint,
    checked_header,
)

#: Half a second is long for a collector that answers, and short for a machine that goes down.
FLUSH_NS = NS_PER_SECOND // 2
FLUSH_NS_MAX = 60 * NS_PER_SECOND
TIMEOUT_NS_MAX = 3600 * NS_PER_SECOND


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """``given`` is this file's share of the destination."""

    given: Given = Given()
    flush_ns: int = FLUSH_NS


def _endpoint(node: Node, path: str) -> str:
    """Not repeated where it is wrong: what stands in it may be a password."""
    try:
        return checked_endpoint(readers.secret(node, path))
    except BadDestination as error:
        raise DocumentError(f"{path}: {error}", node.line) from None


def _headers(node: Node, path: str) -> tuple[tuple[str, str], ...]:
    """Nothing of what stands there is repeated: where it is not as it should be, a name may be a value."""
    entries = node.value
    if not isinstance(entries, dict):
        raise DocumentError(f"{path} must be a mapping of names to values: put both in quotes", node.line)
    if len(entries) > HEADERS_MAX:
        raise DocumentError(
            f"{path} has {len(entries)} entries: at most {HEADERS_MAX} can be used", node.line
        )
    found = []
    for index, (name, value) in enumerate(entries.items()):
        try:
            found.append(checked_header(name, readers.secret(value, f"{path}[{index}]")))
        except BadDestination as error:
            raise DocumentError(f"{path}[{index}]: {error}", value.line) from None
    return tuple(found)


def _bounded(least_ns: int, most_ns: int) -> Callable[[Node, str], int]:
    def read(node: Node, path: str) -> int:
        duration_ns = readers.duration(node, path)
        if not least_ns <= duration_ns <= most_ns:
            bounds = f"from {format_duration(least_ns)} to {format_duration(most_ns)}"
            shown = format_duration(duration_ns)
            raise DocumentError(f"{path} is {shown}: it must be {bounds}", node.line)
        return duration_ns

    return read


def _signals(node: Node, path: str) -> tuple[str, ...]:
    read = readers.one_of(BESIDE)
    entries = readers.sequence(node, path, len(BESIDE))
    return tuple(dict.fromkeys(read(each, f"{path}[{index}]") for index, each in enumerate(entries)))


#: The section's fields by their names in a file; all but the last describe the destination.
_FIELDS = {
    "endpoint": Inner("endpoint", _endpoint),
    "protocol": Inner("protocol", readers.one_of(PROTOCOLS)),
    "headers": Inner("headers", _headers, lambda headers: {name: HIDDEN for name, _ in headers}),
    "certificate": Inner("certificate", readers.path),
    "clientCertificate": Inner("client_certificate", readers.path),
    "clientKey": Inner("client_key", readers.path),
    "timeout": Inner("timeout_ns", _bounded(NS_PER_SECOND // 1000, TIMEOUT_NS_MAX), format_duration),
    "compression": Inner("compression", readers.one_of(COMPRESSIONS)),
    "alsoSend": Inner("signals", _signals, readers.show_list),
    "flush": Inner("flush_ns", _bounded(0, FLUSH_NS_MAX), format_duration),
}


def read_tracing(node: Node, path: str) -> Tracing:
    """Raises DocumentError. A field without a value counts as absent."""
    values = read_section(node, path, _FIELDS)
    if ("client_certificate" in values) != ("client_key" in values):
        raise DocumentError(f"{path}: clientCertificate and clientKey belong together", node.line)
    try:
        check_headers(values.get("protocol", PROTOCOLS[0]), values.get("headers", ()))
    except BadDestination as error:
        line = readers.mapping(node, path)["headers"].line
        raise DocumentError(f"{path}.headers: {error}", line) from None
    flush_ns = values.pop("flush_ns", FLUSH_NS)
    return Tracing(given=Given(**values), flush_ns=flush_ns)


def show_tracing(tracing: Tracing) -> dict[str, Any]:
    """What the section says, without the values of headers; the time is always there."""
    return show_section(msgspec.structs.asdict(tracing.given) | {"flush_ns": tracing.flush_ns}, _FIELDS)


#: For the reference: every field of the section.
TRACING_TEXT = (
    "Where each shutdown's trace is sent over OTLP; without an endpoint here or in the environment it is not "
    "sent. endpoint: a URL such as http://localhost:4318, to which /v1/traces is added where it is missing; "
    "protocol: http/protobuf (the default) or grpc; headers: a mapping, their values are shown nowhere; "
    "certificate: a PEM file of authorities to trust; clientCertificate and clientKey: PEM files for mutual "
    "TLS; timeout: of one request, 10s; compression: none or gzip; alsoSend: logs, metrics, or both, to the "
    "same collector (Jaeger and Tempo take traces only); flush: how long the end of a shutdown may "
    "wait until the back end has what ended so far, 500ms, and not at all for one that does not answer. The "
    "standard variables OTEL_EXPORTER_OTLP_TRACES_* and OTEL_EXPORTER_OTLP_* fill in what is left out here. "
    "A later file's section replaces an earlier one's."
)
