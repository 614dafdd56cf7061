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
_decoders = {tag: msgspec.msgpack.Decoder(cls) for tag, cls in TYPES.items()}

encode_event = _encoder.encode


def decode_event(tag: str, payload: bytes) -> Event:
    """Raises UnknownType, BadPayload."""
    decoder = _decoders.get(tag)
    if decoder is None:
        raise UnknownType(f"event type {tag!r} is not known to this version")
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise BadPayload(f"{tag}: {error}") from error
