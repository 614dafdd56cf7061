"""Kubernetes' rules for names, as far as a shutdown meets them (RFC 1123, IANA service names)."""

from __future__ import annotations

import re
import uuid

from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote

LABEL_LENGTH_MAX = 63
SUBDOMAIN_LENGTH_MAX = 253
UID_LENGTH_MAX = 128
PORT_NAME_LENGTH_MAX = 15

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: Also a file name of the process edge's, so no path can hide in it.
_UID = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")

#: The space of the UIDs that are derived here. Never changed: a pod keeps its UID from one start to the next.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "pods.ebbtide.dev")


def label(node: Node, path: str) -> str:
    """A namespace's or a container's name."""
    return _matching(node, path, _LABEL, LABEL_LENGTH_MAX)


def subdomain(node: Node, path: str) -> str:
    """A pod's name."""
    return _matching(node, path, _SUBDOMAIN, SUBDOMAIN_LENGTH_MAX)


def uid(node: Node | None, path: str, namespace: str, name: str) -> str:
    """The UID that is given, or one that depends on namespace and name only."""
    if node is None:
        return str(uuid.uuid5(_NAMESPACE, f"{namespace}/{name}"))
    value = readers.text(node, path)
    if len(value) > UID_LENGTH_MAX or not _UID.fullmatch(value):
        raise DocumentError(
            f"{path} is {quote(value)}: it must be letters, digits, '-', '.' or '_'", node.line
        )
    return value


def is_port_name(value: str) -> bool:
    """As the API server checks a port's name."""
    return len(value) <= PORT_NAME_LENGTH_MAX and _PORT_NAME.fullmatch(value) is not None


def _matching(node: Node, path: str, pattern: re.Pattern[str], length_max: int) -> str:
    value = readers.text(node, path)
    dots = " or '.'" if pattern is _SUBDOMAIN else ""
    if len(value) > length_max or not pattern.fullmatch(value):
        raise DocumentError(
            f"{path} is {quote(value)}: it must be at most {length_max} lower case letters, digits and '-'"
            f"{dots}, and begin and end with a letter or digit",
            node.line,
        )
    return value
