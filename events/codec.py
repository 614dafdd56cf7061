"""Events to bytes and back: MessagePack maps, default values left out.

The type tag travels in the frame, not in the payload, so that a reader can skip what it does not know.
"""

from __future__ import annotations

import msgspec

from events import decisions, facts, marks  # noqa: F401  (importing them fills TYPES)
from events.base import TYPES, Event


class UnknownType(Exception):
    """The journal holds an event type that this version does not know; use a newer ebbtide to read it."""


class BadPayload(Exception):
    """A payload does not fit its type: the journal was edited, or written by an incompatible version."""


_encoder = msgspec.msgpack.Encoder()
#: Made when a type is first met: making all costs a start more than all else that is imported here.
_decoders: dict[str, msgspec.msgpack.Decoder[Event]] = {}

encode_event = _encoder.encode


def decode_event(tag: str, payload: bytes) -> Event:
    """Raises UnknownType, BadPayload."""
    decoder = _decoders.get(tag) or _decoder(tag)
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPayload(f"{tag}: {error}") from error


def _decoder(tag: str) -> msgspec.msgpack.Decoder[Event]:
    kind = TYPES.get(tag)
    if kind is None:
        raise UnknownType(f"event type {tag!r} is not known to this version")
    made: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(kind)
    _decoders[tag] = made
    return made
