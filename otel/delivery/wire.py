"""What a server answers, read from its protobuf bytes without a schema compiler: three small messages.

``ExportTraceServiceResponse`` (how many spans were not taken, and why), ``google.rpc.Status`` (why a request
was refused) and the ``RetryInfo`` in it (when to come again). The bytes are anybody's: every length is
checked, and nonsense ends in one exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

NS_PER_SECOND = 1_000_000_000
VARINT_BYTES_MAX = 10
#: An answer of a few hundred bytes is a long one; more is not an answer to us.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300
RETRY_INFO = b"google.rpc.RetryInfo"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

Field = tuple[int, int | bytes]


class NotWire(ValueError):
    """These bytes are no protobuf message."""


class PartialSuccess(NamedTuple):
    """``rejected``: spans that were not taken and must not be sent again."""

    rejected: int = 0
    reason: str = ""


class Refusal(NamedTuple):
    """A ``google.rpc.Status``. ``retry_ns``: when to come again, None if nothing is said."""

    code: int = 0
    reason: str = ""
    retry_ns: int | None = None


def partial_success(data: bytes) -> PartialSuccess:
    """Of an ``ExportTraceServiceResponse``; empty bytes are one, and mean that all was taken. Raises
    NotWire.
    """
    rejected, reason = 0, ""
    for inner in _messages(data, 1):
        for number, value in fields(inner):
            if number == 1 and isinstance(value, int):
                rejected = value
            elif number == 2 and isinstance(value, bytes):
                reason = plain(value)
    return PartialSuccess(rejected, reason)


def refusal(data: bytes) -> Refusal:
    """Of a ``google.rpc.Status``. Raises NotWire."""
    code, reason, retry_ns = 0, "", None
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            code = value
        elif number == 2 and isinstance(value, bytes):
            reason = plain(value)
        elif number == 3 and isinstance(value, bytes):
            retry_ns = _retry_ns(value) if retry_ns is None else retry_ns
    return Refusal(code, reason, retry_ns)


def plain(text: bytes | str) -> str:
    """A server's words in one printable line of bounded length."""
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join(decoded[: 2 * REASON_CHARACTERS_MAX].split())
    return "".join(each if each.isprintable() else "�" for each in line)[:REASON_CHARACTERS_MAX]


def fields(data: bytes) -> Iterator[Field]:
    """Number and value of each field: an integer or bytes. Raises NotWire."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise NotWire("field number 0")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if kind == _BYTES else (_FIXED_SIZES.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise NotWire("a field is cut short" if size >= 0 else f"wire type {kind}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise NotWire("a number is cut short")


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, value in fields(data):
        if number == wanted:
            if not isinstance(value, bytes):
                raise NotWire(f"field {wanted} is no message")
            yield value


def _retry_ns(packed: bytes) -> int | None:
    """Of a ``google.protobuf.Any`` that may hold a ``RetryInfo``: its ``Duration``, never negative."""
    parts = dict(fields(packed))
    kind, inner = parts.get(1, b""), parts.get(2, b"")
    if not (isinstance(kind, bytes) and isinstance(inner, bytes) and kind.endswith(RETRY_INFO)):
        return None
    for delay in _messages(inner, 1):
        duration = dict(fields(delay))
        seconds, nanos = duration.get(1, 0), duration.get(2, 0)
        if isinstance(seconds, int) and isinstance(nanos, int) and seconds < 2**62:
            return seconds * NS_PER_SECOND + min(nanos, NS_PER_SECOND)
    return 0
