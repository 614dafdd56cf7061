"""Events to bytes and back: the payload of an event, and the frame around a record (docs/journal-format.md).

The frame has the type tag, so that a reader can skip unknown types. Its chain hash covers the 32 bytes before
it, so a reader hashes one slice a record.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ebbtide.events import decisions, facts  # noqa: F401  (importing them fills TYPES)
from ebbtide.events.base import ITEMS_MAX, TYPES, Checkpoint, Event, Record
from ebbtide.events.messages import Names


class UnknownType(Exception):
    """This version does not know an event's type: read the journal with a newer ebbtide."""


class BadPayload(Exception):
    """A payload does not fit its type: an edited journal, or an incompatible version's."""


#: In one payload. A checkpoint of 10 000 pods has 1 140 000 values. A value takes up to 150 bytes of memory,
#: so a frame full of empty lists would take more than a gigabyte.
VALUES_MAX = 1_200_000
#: In any other payload: five times the plan for 10 000 pods.
OTHER_VALUES_MAX = 200_000
#: The bytes of texts: no value begins with one, except a small number.
_ASCII = bytes(range(128))


def count_values(payload: bytes) -> int:
    """An upper bound, without small numbers. It takes a microsecond a kilobyte."""
    return len(payload.translate(None, _ASCII))


def _has_too_many_values(payload: bytes, most: int) -> bool:
    return len(payload) > most and count_values(payload) > most


_encoder = msgspec.msgpack.Encoder()
#: Made at the first use of a type: all would cost a start more time than its other imports.
_decoders: dict[str, msgspec.msgpack.Decoder[Event]] = {}

encode_event = _encoder.encode


def decode_event(tag: str, payload: bytes) -> Event:
    """Raises UnknownType, BadPayload."""
    # msgspec ignores unknown fields, which a newer version has added, and refuses a field of another type.
    decoder = _decoders.get(tag)
    if decoder is None:
        kind = TYPES.get(tag)
        if kind is None:
            raise UnknownType(f"event type {tag!r} is not known to this version")
        decoder = _decoders[tag] = msgspec.msgpack.Decoder(kind)
    if len(payload) > OTHER_VALUES_MAX:
        most = VALUES_MAX if tag == Checkpoint.__name__ else OTHER_VALUES_MAX
        if _has_too_many_values(payload, most):
            raise BadPayload(f"{tag}: more than {most} values")
    try:
        return decoder.decode(payload)
    # msgspec does not wrap errors of a name that is no UTF-8, or of deep nesting.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"{tag}: {error}") from error


def plain_payload(payload: bytes) -> Any:
    """As plain values; a sentence if these would fill the memory; hexadecimal digits if unreadable."""
    if _has_too_many_values(payload, OTHER_VALUES_MAX):
        return f"{len(payload)} bytes, more than {OTHER_VALUES_MAX} values: not shown"
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return payload.hex()


# --- frames

#: A reader searches for it behind damage.
FRAME_MAGIC = 0xEBB71DE5
FRAME_MAGIC_BYTES = FRAME_MAGIC.to_bytes(4, "little")

# Every frame has the durable number, because the evidence for a loss must be behind it.
#: magic, crc, length, seq, durable seq, mono ns, wall ns, episode, cause, flags, tag length, actor length.
FRAME_HEAD = struct.Struct("<IIIQQqqQQBBH")
#: The part of the head that the CRC covers.
FRAME_CHECKED = struct.Struct("<IQQqqQQBBH")
HASH_BYTES = 32
FRAME_BYTES_MIN = FRAME_HEAD.size + HASH_BYTES

#: Room for a checkpoint of 10 000 pods with 1.5 KiB each; a damaged length cannot ask for more memory.
FRAME_BYTES_MAX = 16 * 1024 * 1024

FLAG_LAST = 1
#: The trailer of a sealed segment: it repeats the last record's number and names the header.
FLAG_TRAILER = 2
#: The header of a segment whose records were carried over from a failed file.
FLAG_BOUNDARY = 4

#: Why `parse_frames` stopped without damage.
STOP_TRAILER, STOP_BOUNDARY = "trailer", "boundary"

_CHAIN_BROKEN, _UNKNOWN_FLAGS = "the chain of hashes is broken", "a frame has unknown flags"
_CRC_FROM = 8
_NO_HASH = bytes(HASH_BYTES)


class RawRecord(NamedTuple):
    """A verified frame. ``durable_seq``: the last durable record at its write."""

    seq: int
    mono_ns: int
    wall_ns: int
    episode: int
    cause: int
    flags: int
    actor: str
    tag: str
    payload: bytes
    hash: bytes
    durable_seq: int


class FrameTooLarge(ValueError):
    """No reader would accept this event. Split it, as `InventoryTaken` does."""


def encode_frame(record: Record, previous_hash: bytes, durable_seq: int) -> bytes:
    """Raises FrameTooLarge."""
    event, payload = record.event, encode_event(record.event)
    if len(payload) > ITEMS_MAX:
        # It may be above a reader's limit.
        try:
            decode_event(type(event).__name__, payload)
        except BadPayload as error:
            raise FrameTooLarge(str(error)) from None
    return _frame(
        (record.seq, durable_seq, record.mono_ns, record.wall_ns, record.episode, record.cause),
        FLAG_LAST if record.last else 0,
        record.actor.encode(),
        type(event).__name__.encode(),
        payload,
        previous_hash,
    )


def encode_trailer(seq: int, header_hash: bytes, previous_hash: bytes) -> bytes:
    """The frame that seals a segment: all before it is durable."""
    return _frame((seq, seq, 0, 0, 0, 0), FLAG_TRAILER, b"", b"", header_hash, previous_hash)


def encode_boundary(seq: int, header: bytes) -> bytes:
    """A segment header as a frame."""
    # It ends with the header's own hash, because the carried records behind it are chained to that.
    framed = _frame((seq, 0, 0, 0, 0, 0), FLAG_BOUNDARY, b"", b"", header[:-HASH_BYTES], _NO_HASH)
    return framed[:-HASH_BYTES] + header[-HASH_BYTES:]


def _frame(
    numbers: tuple[int, int, int, int, int, int],
    flags: int,
    actor: bytes,
    tag: bytes,
    payload: bytes,
    previous_hash: bytes,
) -> bytes:
    # Refuse it here: for a reader such a length is damage, and it would lose all records behind it.
    length = FRAME_BYTES_MIN + len(actor) + len(tag) + len(payload)
    if length > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"{tag.decode()} of {length} bytes is above {FRAME_BYTES_MAX}: split the event")
    checked = FRAME_CHECKED.pack(length, *numbers, flags, len(tag), len(actor)) + actor + tag + payload
    body = FRAME_MAGIC_BYTES + zlib.crc32(checked).to_bytes(4, "little") + checked
    return body + hashlib.sha256(previous_hash + body).digest()


def decode_record(raw: RawRecord) -> Record:
    """Raises UnknownType and BadPayload."""
    return Record(
        seq=raw.seq,
        mono_ns=raw.mono_ns,
        wall_ns=raw.wall_ns,
        episode=raw.episode,
        cause=raw.cause,
        actor=raw.actor,
        last=bool(raw.flags & FLAG_LAST),
        event=decode_event(raw.tag, raw.payload),
    )


class ParsedFrames(NamedTuple):
    """``pos`` is behind the last good frame.

    ``whole`` records end with a step, and ``whole_pos`` is behind them (0 and -1: none). ``stop``: why
    reading stopped at ``pos``; None: the buffer ended. `STOP_TRAILER` and `STOP_BOUNDARY` are no damage.
    """

    records: list[RawRecord]
    pos: int
    seq: int
    durable_seq: int
    whole: int
    whole_pos: int
    stop: str | None


#: Actor and type tag, by their bytes in a frame, the two lengths in front.
_names_by_bytes: dict[bytes, tuple[str, str]] = {}
#: Many or long names in a journal must not fill the cache. Ours have at most some 60 bytes.
_NAMES_MAX, _NAMES_BYTES_MAX = 65_536, 256
_LENGTHS_FROM, _LENGTHS = FRAME_HEAD.size - 3, struct.Struct("<BH")


def _decode_names(raw: bytes) -> tuple[str, str]:
    if len(_names_by_bytes) >= _NAMES_MAX:
        _names_by_bytes.clear()
    tag_from = _LENGTHS.size + _LENGTHS.unpack_from(raw)[1]
    actor, tag = raw[_LENGTHS.size : tag_from], raw[tag_from:]
    names = actor.decode("utf-8", "replace"), tag.decode("utf-8", "replace")
    if len(raw) <= _NAMES_BYTES_MAX:
        _names_by_bytes[raw] = names
    return names


def parse_frames(buffer: bytes, pos: int, end: int, seq: int) -> ParsedFrames:
    """Verify frames from ``pos`` to at most ``end``; ``seq`` is the last record's number.

    The 32 bytes before ``pos`` must be the hash before the first frame. This is the inner loop of every
    reader, so it makes few calls.
    """
    unpack, sha256 = FRAME_HEAD.unpack_from, hashlib.sha256
    known, make, new = _names_by_bytes, RawRecord, tuple.__new__
    head_bytes, lengths_from = FRAME_HEAD.size, _LENGTHS_FROM
    records: list[RawRecord] = []
    take = records.append
    durable_seq, whole, whole_pos, stop = 0, 0, -1, None
    while pos + FRAME_BYTES_MIN <= end:
        magic, crc, length, number, durable, mono, wall, episode, cause, flags, tag_len, actor_len = unpack(
            buffer, pos
        )
        payload_from = pos + head_bytes + actor_len + tag_len
        hash_from = pos + length - HASH_BYTES
        if magic != FRAME_MAGIC or hash_from < payload_from or length > FRAME_BYTES_MAX:
            stop = "no frame begins here"
            break
        # The buffer has only a part of the frame.
        if hash_from + HASH_BYTES > end:
            break
        digest = buffer[hash_from : hash_from + HASH_BYTES]
        if flags > FLAG_LAST or sha256(buffer[pos - HASH_BYTES : hash_from]).digest() != digest:
            stop = _why_no_frame(buffer[pos:hash_from], crc, flags)
            break
        # The writer chained a wrong number, so no state can be trusted.
        seq += 1
        if number != seq:
            stop, seq = f"record {number} stands where {seq} belongs", seq - 1
            break
        names = buffer[pos + lengths_from : payload_from]
        actor, tag = known.get(names) or _decode_names(names)
        take(
            new(
                make,
                (
                    number,
                    mono,
                    wall,
                    episode,
                    cause,
                    flags,
                    actor,
                    tag,
                    buffer[payload_from:hash_from],
                    digest,
                    durable,
                ),
            )
        )
        durable_seq = durable
        pos = hash_from + HASH_BYTES
        if flags:
            whole, whole_pos = len(records), pos
    return ParsedFrames(records, pos, seq, durable_seq, whole, whole_pos, stop)


def _why_no_frame(body: bytes, crc: int, flags: int) -> str:
    # Only for the reason, because the chain's hash covers the CRC too: it shows whether the frame's bytes or
    # its place are wrong.
    if zlib.crc32(body[_CRC_FROM:]) != crc:
        return "a frame's checksum is wrong"
    return {
        FLAG_TRAILER: STOP_TRAILER,
        FLAG_BOUNDARY: STOP_BOUNDARY,
        0: _CHAIN_BROKEN,
        FLAG_LAST: _CHAIN_BROKEN,
    }.get(flags, _UNKNOWN_FLAGS)


NAMING_EVENTS = tuple(tag for tag, kind in TYPES.items() if kind.introduce is not Event.introduce)


def learn_record(names: Names, raw: RawRecord) -> None:
    """An unreadable record introduces no pod."""
    if raw.tag in NAMING_EVENTS:
        with suppress(BadPayload, UnknownType):
            decode_event(raw.tag, raw.payload).introduce(names)
