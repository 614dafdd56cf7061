"""Where spans go: the configuration file and the standard OTEL_* environment (docs/exporting.md).

Header values are secrets: no message, representation or event has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from ebbtide.events.base import NS_PER_MS

Protocol = Literal["http/protobuf", "grpc"]
Compression = Literal["none", "gzip"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)

#: The specification's default (OTLP exporter, "Configuration options").
TIMEOUT_NS = 10_000 * NS_PER_MS
TIMEOUT_MS_MAX = 3_600_000
TRACES_PATH = "/v1/traces"
#: `config show` prints it in place of a header's value.
HIDDEN = "(hidden)"
HEADERS_MAX = 64
ENDPOINT_CHARACTERS_MAX = 2048

_GENERAL = "OTEL_EXPORTER_OTLP_"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: gRPC's names with a text value: -bin is for bytes, grpc- for the protocol.
_METADATA = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
#: Ebbtide writes these.
_RESERVED = ("host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection")


class BadDestination(ValueError):
    """One line with the field or variable, and without a header's value."""


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From one source; None: it has no value. ``own_endpoint``: the traces' own, with its path."""

    endpoint: str | None = None
    own_endpoint: str | None = None
    protocol: Protocol | None = None
    headers: tuple[tuple[str, str], ...] | None = None
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    timeout_ns: int | None = None
    compression: Compression | None = None

    def __repr__(self) -> str:
        return f"Given({self.endpoint or self.own_endpoint})"


class Destination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``endpoint`` is the whole URL. Certificates are paths of PEM files; empty: none."""

    endpoint: str
    protocol: Protocol = "http/protobuf"
    headers: tuple[tuple[str, str], ...] = ()
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""
    timeout_ns: int = TIMEOUT_NS
    compression: Compression = "none"

    def __repr__(self) -> str:
        return f"Destination({self.protocol}, {self.endpoint})"


def resolve(*sources: Given) -> Destination | None:
    """For each field, the first source with a value counts. None: no source has an endpoint.

    Raises BadDestination.
    """
    first = next((each for each in sources if each.endpoint or each.own_endpoint), None)
    if first is None:
        return None
    names = ("protocol", "headers", "certificate", "client_certificate", "client_key", "timeout_ns")
    values: dict[str, Any] = {}
    # The first source overwrites the others.
    for each in reversed(sources):
        for name in (*names, "compression"):
            if (value := getattr(each, name)) is not None:
                values[name] = value
    protocol = values.get("protocol", "http/protobuf")
    if bool(values.get("client_certificate")) != bool(values.get("client_key")):
        raise BadDestination("a client certificate and its key belong together: name both or neither")
    # It needs the protocol.
    check_headers(protocol, values.get("headers", ()))
    parts = urlsplit(first.own_endpoint or first.endpoint or "")
    path, query = parts.path, parts.query
    if protocol == "grpc":
        path, query = "", ""  # the method's name is the path
    elif first.own_endpoint:
        path = path or "/"
    else:
        path = path.removesuffix(TRACES_PATH).rstrip("/") + TRACES_PATH
    endpoint = urlunsplit((parts.scheme, parts.netloc, path, query, ""))
    return Destination(endpoint=endpoint, **values)


def checked_endpoint(text: str) -> str:
    """Raises BadDestination, without a password."""
    try:
        parts = urlsplit(text)
        host = parts.hostname if not parts.netloc.endswith(":") else None
        good = parts.scheme in ("http", "https") and host and parts.port != 0
        if parts.username is not None or parts.password is not None:
            raise BadDestination("a user name in a URL is not used: put an authorization header instead")
    except ValueError as error:
        if isinstance(error, BadDestination):
            raise
        good = False
    if not good or len(text) > ENDPOINT_CHARACTERS_MAX or not _VALUE.fullmatch(text) or " " in text:
        raise BadDestination("it must be a URL such as http://localhost:4318 or https://collector:4318")
    return text


def checked_header(name: str, value: str) -> tuple[str, str]:
    """Raises BadDestination without the value. A wrong name may contain the value, so omit it too."""
    if not _TOKEN.fullmatch(name):
        raise BadDestination("a header's name must be letters, digits and hyphens, its value apart from it")
    if name.lower() in _RESERVED:
        raise BadDestination(f"the header {name} cannot be set here: it is written by ebbtide")
    if value != value.strip():
        raise BadDestination(f"the value of header {name} begins or ends with a space: take it out")
    # A line feed in a value would begin another header.
    if not _VALUE.fullmatch(value) or value == HIDDEN:
        raise BadDestination(f"the value of header {name} must be printable ASCII, and not a placeholder")
    return name.lower(), value


def check_headers(protocol: Protocol, headers: Sequence[tuple[str, str]]) -> None:
    """Raises BadDestination for a header that gRPC does not take as metadata."""
    for name, value in headers if protocol == "grpc" else ():
        if not _METADATA.fullmatch(name):
            raise BadDestination(
                f"the header {name} cannot be sent over grpc: use http/protobuf, or rename it"
            )
        if "\t" in value:
            raise BadDestination(f"the value of header {name} holds a tab: grpc takes printable ASCII only")


# --- the standard environment


def from_environment(environ: Mapping[str, str]) -> Given:
    """OTEL_* variables (OpenTelemetry specification, "OTLP Exporter Configuration"). Ignores empty ones.

    Raises BadDestination with the variable's name.
    """
    exporters = [name for name in environ.get("OTEL_TRACES_EXPORTER", "").replace(" ", "").split(",") if name]
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Given()
    if exporters and "otlp" not in exporters:
        return Given()
    prefixes = (f"{_GENERAL}TRACES_", _GENERAL)
    found: dict[str, Any] = {}
    for field, (suffix, read) in _VARIABLES.items():
        variable, value = _value(environ, prefixes, suffix)
        found[field] = None if value is None else _named(variable, read, value)
    insecure = (_value(environ, prefixes, "INSECURE")[1] or "").lower() == "true"
    for name, variable in zip(("own_endpoint", "endpoint"), prefixes, strict=True):
        variable += "ENDPOINT"
        if text := environ.get(variable, "").strip():
            found[name] = _named(variable, _endpoint, text, insecure)
    return Given(**found)


def _value(environ: Mapping[str, str], prefixes: Sequence[str], name: str) -> tuple[str, str | None]:
    for prefix in prefixes:
        if text := environ.get(prefix + name, "").strip():
            return prefix + name, text
    return _GENERAL + name, None


def _named(variable: str, read: Any, *args: Any) -> Any:
    try:
        return read(*args)
    except BadDestination as error:
        # The cause's traceback would show the value, which may be a secret.
        raise BadDestination(f"{variable}: {error}") from None


def _endpoint(text: str, insecure: bool) -> str:
    """If an endpoint for gRPC has no scheme, INSECURE decides about TLS."""
    if "://" not in text:
        text = f"{'http' if insecure else 'https'}://{text}"
    return checked_endpoint(text)


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise BadDestination(f"it must be {' or '.join(words)}")
        return text

    return read


def _timeout(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:12]) <= TIMEOUT_MS_MAX):
        raise BadDestination(f"it must be whole milliseconds, from 1 to {TIMEOUT_MS_MAX}")
    return int(text) * NS_PER_MS


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """``name=value`` pairs, percent-encoded, as in W3C baggage."""
    pairs = [entry.split("=", 1) for entry in text.split(",") if entry.strip()]
    if any(len(pair) != 2 for pair in pairs) or len(pairs) > HEADERS_MAX:
        raise BadDestination(f"it must be name=value pairs with commas between, at most {HEADERS_MAX}")
    return tuple(checked_header(unquote(name.strip()), unquote(value.strip())) for name, value in pairs)


#: By field of `Given`: the end of the variable's name, and its reader.
_VARIABLES = {
    "protocol": ("PROTOCOL", _one_of(PROTOCOLS)),
    "headers": ("HEADERS", _headers),
    "certificate": ("CERTIFICATE", str),
    "client_certificate": ("CLIENT_CERTIFICATE", str),
    "client_key": ("CLIENT_KEY", str),
    "timeout_ns": ("TIMEOUT", _timeout),
    "compression": ("COMPRESSION", _one_of(COMPRESSIONS)),
}


#: Room for a cluster, a region, a team. Each request repeats them.
RESOURCE_ATTRIBUTES_MAX, RESOURCE_CHARACTERS_MAX = 64, 256


def resource_attributes(environ: Mapping[str, str]) -> dict[str, str]:
    """OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME (OpenTelemetry specification, "Resource SDK").

    Raises BadDestination with the variable's name.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return {}
    variable = "OTEL_RESOURCE_ATTRIBUTES"
    pairs = [entry.partition("=") for entry in environ.get(variable, "").split(",") if entry.strip()]
    found = {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
    if not all(sign and name.strip() for name, sign, _ in pairs) or len(pairs) > RESOURCE_ATTRIBUTES_MAX:
        raise BadDestination(
            f"{variable}: it must be name=value pairs with commas between, at most {RESOURCE_ATTRIBUTES_MAX}"
        )
    if service := environ.get("OTEL_SERVICE_NAME", "").strip():
        found["service.name"] = service
    for text in (*found, *found.values()):
        if not text.isprintable() or len(text) > RESOURCE_CHARACTERS_MAX:
            raise BadDestination(
                f"{variable}, OTEL_SERVICE_NAME: names and values must be printable, of at most "
                f"{RESOURCE_CHARACTERS_MAX} characters"
            )
    return found
