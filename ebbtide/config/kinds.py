"""Kinds of values that more than one document has."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from ebbtide.config.durations import DURATION_NS_MAX, format_duration, parse_duration
from ebbtide.config.fields import Kind
from ebbtide.events.base import NS_PER_SECOND

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
PORT_MAX = 2**16 - 1
#: PATH_MAX of Linux.
PATH_LENGTH_MAX = 4096

#: Names of pods and Nodes (RFC 1123).
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SUBDOMAIN_LENGTH_MAX = 253
#: Names of namespaces and containers.
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_LENGTH_MAX = 63


def is_node_name(name: str) -> bool:
    """Whether the API accepts this name of a Node."""
    return len(name) <= SUBDOMAIN_LENGTH_MAX and DNS_SUBDOMAIN.fullmatch(name) is not None


def matching(pattern: re.Pattern[str], text: str) -> Kind:
    """A word that the whole pattern matches."""

    def parse(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError
        return value

    return Kind(text, parse)


def duration(least_ns: int, most_ns: int, *, whole: bool = False) -> Kind:
    """Nanoseconds in bounds; ``whole``: only whole seconds."""
    bounds = f"{'whole seconds, ' if whole else ''}from {format_duration(least_ns)} to "
    bounds += format_duration(most_ns) if most_ns < DURATION_NS_MAX else "292 years"

    def parse(value: str) -> int:
        duration_ns = _nanoseconds(value)
        if not least_ns <= duration_ns <= most_ns or (whole and duration_ns % NS_PER_SECOND):
            raise ValueError
        return duration_ns

    return Kind(f"a duration such as 30s or 1m30s, {bounds}", parse, format_duration)


def _nanoseconds(value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError from None


def absolute_path(value: str) -> str:
    if not value.startswith("/") or len(value) > PATH_LENGTH_MAX:
        raise ValueError
    return value


def _drop_in_folder(value: str) -> str:
    """One spelling for each folder: a trailing slash or ``..`` changes nothing."""
    from ebbtide.actors.edges.logind.drop_ins import DROP_IN_FOLDERS  # late: it imports the whole edge

    folder = os.path.normpath(absolute_path(value)).replace("//", "/")
    if folder not in DROP_IN_FOLDERS:
        raise ValueError(f"logind reads only {', '.join(DROP_IN_FOLDERS)}")
    return folder


def node_name(value: str) -> str:
    if not is_node_name(value):
        raise ValueError
    return value


def _host(value: str) -> str:
    return node_name(value.lower().removesuffix("."))


def _listen_address(value: str) -> str:
    """Only addresses, no names: a lookup may need a network that is not there."""
    host, _, port = value.rpartition(":")
    if value and not (
        _is_address(host) and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= PORT_MAX
    ):
        raise ValueError
    return value


def _is_address(host: str) -> bool:
    import ipaddress  # late: few configurations need it

    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return False
    # Without the brackets the last part of an IPv6 address would look like the port.
    return (version == 6) == (host[:1] + host[-1:] == "[]")


def checked(check: Callable[[str], str], text: str) -> Kind:
    """A value that may hold a password: no message repeats it."""
    return Kind(text, check, secret=True)


#: The kubelet's own rules refuse negative ones.
ANY_DURATION = Kind("a duration such as 30s or 1m30s", _nanoseconds, format_duration)
PATH = Kind("an absolute path", absolute_path)
DROP_IN_FOLDER = Kind("one of logind's folders, an absolute path", _drop_in_folder)
NODE_NAME = Kind("a Node's name in the API: lower-case letters, digits, '-' and '.', in quotes", node_name)
LISTEN_ADDRESS = Kind("an address and a port (127.0.0.1:9464, [::1]:9464), or empty", _listen_address)

#: Names by which metrics may be requested.
Hosts = Annotated[
    tuple[Annotated[str, Kind("a host name, without a port", _host)], ...], msgspec.Meta(max_length=16)
]
