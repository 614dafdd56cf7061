"""Where to listen: a field that names an address and a port, or a socket's path."""

from __future__ import annotations

from ebbtide.config.documents import Node
from ebbtide.config.readers import path, text
from ebbtide.config.scalars import DocumentError, quote

PORT_MAX = 2**16 - 1


def listen_address(node: Node, name: str) -> str:
    """Only addresses, no names: a lookup may need a network that is not there."""
    value = text(node, name)
    host, _, port = value.rpartition(":")
    if value.startswith("unix:"):
        return "unix:" + path(Node(value.removeprefix("unix:"), node.line), name)
    if value and not (_is_address(host) and port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        cure = "write an address and a port (127.0.0.1:9464, [::1]:9464) or unix:PATH"
        raise DocumentError(f"{name} is {quote(value)}: {cure}", node.line)
    return value


def _is_address(host: str) -> bool:
    import ipaddress  # late: few configurations name one

    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return False
    return (version == 6) == (host[:1] + host[-1:] == "[]")
