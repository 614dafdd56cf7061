"""The system journal, with fields: ``journalctl EBBTIDE_POD=shop/web-0`` finds every line about a pod.

Spoken only where the service manager connected our standard error to it (systemd.exec(5),
``JOURNAL_STREAM``); the protocol is its native one: a datagram of ``NAME=value`` lines, a
value with a line feed by its length.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

SOCKET = "/run/systemd/journal/socket"

#: Ours, in front of every field's name but the journal's own.
PREFIX = "EBBTIDE_"

IDENTIFIER = "ebbtide"

#: A line is at most a few kilobytes; a datagram this small always fits a socket's buffer.
VALUE_BYTES_MAX = 4096


class SystemJournal:
    """A socket to it. Sending never waits: late in a shutdown its reader has gone, and the pods go first."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, level: int, line: str, fields: Mapping[str, str]) -> bool:
        """Whether it was taken."""
        rows = {"MESSAGE": line, "PRIORITY": str(level), "SYSLOG_IDENTIFIER": IDENTIFIER}
        rows |= {PREFIX + name: value for name, value in fields.items()}
        with suppress(OSError):
            self._socket.sendto(b"".join(map(_row, rows, rows.values())), self._path)
            return True
        return False

    def close(self) -> None:
        self._socket.close()


def _row(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")[:VALUE_BYTES_MAX]
    if b"\n" in data:
        return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name.encode() + b"=" + data + b"\n"


def is_connected(stream: str, descriptor: int) -> bool:
    """Whether ``descriptor`` is what ``JOURNAL_STREAM`` (device:inode) names."""
    with suppress(OSError, ValueError):
        device, inode = map(int, stream.split(":"))
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (device, inode)
    return False
