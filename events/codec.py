"""Events to bytes and back: the payload of an event, and the frame around a record.

A payload is a MessagePack map, default values left out. The type tag travels in the frame, so that a reader
can skip what it does not know.

Each frame is chained to the one before by SHA-256. The chain hash of a frame covers the 32 bytes directly
before the frame (the hash of its predecessor, or of the segment's header) and the frame itself, so a reader
hashes one contiguous slice a record. The CRC serves the other task: finding whole frames again behind
damage. ``docs/journal-format.md`` has every byte.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ebbtide.events import decisions, facts  # noqa: F401  (importing them fills TYPES)
from ebbtide.events.base import TYPES, Checkpoint, Event, Record
from ebbtide.events.messages import Names


class UnknownType(Exception):
    """The journal holds an event type that this version does not know; use a newer ebbtide to read it."""


class BadPayload(Exception):
    """A payload does not fit its type: the journal was edited, or written by an incompatible version."""


#: Values in one payload. A checkpoint of 10 000 pods has 1 140 000; each takes up to 150 bytes of memory, and
#: a frame full of empty lists would take more than a gigabyte.
VALUES_MAX = 1_200_000
#: In any other: five times what the plan for 10 000 pods has.
OTHER_VALUES_MAX = 200_000
#: The bytes that begin no value, but a small number: those of names and texts.
_ASCII = bytes(range(128))


def _has_too_many_values(payload: bytes, most: int) -> bool:
    # An upper bound that costs a microsecond a kilobyte: each value but a small number begins with a byte
    # that stands in no ASCII text.
    return len(payload) > most and len(payload.translate(None, _ASCII)) > most


_encoder = msgspec.msgpack.Encoder()
#: Made when a type is first met: making all costs a start more than all else that is imported here.
_decoders: dict[str, msgspec.msgpack.Decoder[Event]] = {}

encode_event = _encoder.encode


def decode_event(tag: str, payload: bytes) -> Event:
    """Raises UnknownType, BadPayload."""
    # What a payload has and its type has not is passed over: a newer version has added a field. A payload
    # with a field of another kind is refused, because nobody can know what was meant.
    decoder = _decoders.get(tag)
    if decoder is None:
        kind = TYPES.get(tag)
        if kind is None:
            raise UnknownType(f"event type {tag!r} is not known to this version")
        decoder = _decoders[tag] = msgspec.msgpack.Decoder(kind)
    most = VALUES_MAX if tag == Checkpoint.__name__ else OTHER_VALUES_MAX
    if _has_too_many_values(payload, most):
        raise BadPayload(f"{tag}: more than {most} values")
    try:
        return decoder.decode(payload)
    # A name that is no UTF-8 raises an error of its own, which msgspec's does not contain, and so does what
    # is nested deeper than a stack.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"{tag}: {error}") from error


def plain_payload(payload: bytes) -> Any:
    """As plain values, whatever its type; hexadecimal digits where it cannot be read.

    Of one that would fill the memory, a sentence that says so.
    """
    if _has_too_many_values(payload, OTHER_VALUES_MAX):
        return f"{len(payload)} bytes, more than {OTHER_VALUES_MAX} values: not shown"
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return payload.hex()


# --- frames ---------------------------------------------------------------------------------------

#: Begins every frame; what a reader looks for behind damage.
FRAME_MAGIC = 0xEBB71DE5
FRAME_MAGIC_BYTES = FRAME_MAGIC.to_bytes(4, "little")

# Numbers stand at fixed places and texts behind them: a reader unpacks one head a record, and steps over what
# it does not want by its length. The durable number is in every frame, because evidence for what is lost must
# stand behind the loss: a field of the header could say only what was durable when the segment was begun.
# The hash is at the end, directly before the next frame, whose hash covers it: one slice a record.
#: magic, crc, length, seq, durable seq, mono ns, wall ns, episode, cause, flags, tag length, actor length.
FRAME_HEAD = struct.Struct("<IIIQQqqQQBBH")
#: The head without magic and CRC: what the CRC covers begins here.
FRAME_CHECKED = struct.Struct("<IQQqqQQBBH")
HASH_BYTES = 32
FRAME_BYTES_MIN = FRAME_HEAD.size + HASH_BYTES

#: A checkpoint of 10 000 pods with 1.5 KiB of state each fits; a damaged length cannot ask for more memory.
FRAME_BYTES_MAX = 16 * 1024 * 1024

FLAG_LAST = 1
#: The frame is the trailer of a sealed segment. It repeats the last record's number and names the header.
FLAG_TRAILER = 2
#: The frame is the header of a segment whose records were carried over from a failed file.
FLAG_BOUNDARY = 4

#: Why `parse` stopped where nothing is damaged.
STOP_TRAILER, STOP_BOUNDARY = "trailer", "boundary"

_CHAIN_BROKEN, _UNKNOWN_FLAGS = "the chain of hashes is broken", "a frame has unknown flags"
_CRC_FROM = 8
_NO_HASH = bytes(HASH_BYTES)


class RawRecord(NamedTuple):
    """A verified frame, its payload still encoded. ``durable_seq`` was known durable when it was written."""

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
    """One event is larger than a frame may be: split it, as inventories are split into parts."""


def encode_frame(record: Record, previous_hash: bytes, durable_seq: int) -> bytes:
    """The frame of one record; its last 32 bytes are its chain hash. Raises FrameTooLarge."""
    event = record.event
    return _frame(
        (record.seq, durable_seq, record.mono_ns, record.wall_ns, record.episode, record.cause),
        FLAG_LAST if record.last else 0,
        record.actor.encode(),
        type(event).__name__.encode(),
        encode_event(event),
        previous_hash,
    )


def encode_trailer(seq: int, header_hash: bytes, previous_hash: bytes) -> bytes:
    """The frame that seals a segment: all before it is durable."""
    return _frame((seq, seq, 0, 0, 0, 0), FLAG_TRAILER, b"", b"", header_hash, previous_hash)


def encode_boundary(seq: int, header: bytes) -> bytes:
    """A segment header as a frame: where records are carried over, the chain restarts at its hash."""
    # The last 32 bytes are the header's own hash in the place of a chain hash: the records behind it were
    # hashed onto that when they were first written, and keep their hashes.
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
    # Refused here and not where it is read: a reader takes such a length for damage, so that one event would
    # cost the journal everything behind it.
    length = FRAME_BYTES_MIN + len(actor) + len(tag) + len(payload)
    if length > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"{tag.decode()} of {length} bytes is above {FRAME_BYTES_MAX}: split the event")
    checked = FRAME_CHECKED.pack(length, *numbers, flags, len(tag), len(actor)) + actor + tag + payload
    body = FRAME_MAGIC_BYTES + zlib.crc32(checked).to_bytes(4, "little") + checked
    return body + hashlib.sha256(previous_hash + body).digest()


def decode_record(raw: RawRecord) -> Record:
    """Raises events.codec.UnknownType and events.codec.BadPayload."""
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
    """What `parse` made of a buffer. ``pos`` is behind the last good frame.

    ``whole`` counts the records up to the last end of a step and ``whole_pos`` is behind it (0 and -1:
    none ended here). ``stop`` is None when the buffer simply ran out, else why the frame at ``pos`` was not
    taken: `TRAILER` and `BOUNDARY` are no damage, everything else is.
    """

    records: list[RawRecord]
    pos: int
    seq: int
    durable_seq: int
    whole: int
    whole_pos: int
    stop: str | None


#: Actor and type tag, by their bytes with the two lengths in front, as they stand in a frame.
_names_by_bytes: dict[bytes, tuple[str, str]] = {}
#: Actors are few outside tests; a journal with endless actor names must not grow the cache without end, and
#: one with long names must not fill it with them: ours have at most some 60 bytes.
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
    """Read and verify frames from ``pos`` to at most ``end``; ``seq`` is the last record's number.

    The 32 bytes before ``pos`` must be the hash that the first frame is chained to. This is the inner
    loop of every reader: one SHA-256 a record, over one slice, and no call that it can do without.
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
        # The rest of it is not in the buffer: more is read, or, at the end of the file, it is cut short.
        if hash_from + HASH_BYTES > end:
            break
        digest = buffer[hash_from : hash_from + HASH_BYTES]
        # Every flag but LAST ends the run: what it means is decided outside of this loop.
        if flags > FLAG_LAST or sha256(buffer[pos - HASH_BYTES : hash_from]).digest() != digest:
            stop = _why_no_frame(buffer[pos:hash_from], crc, flags)
            break
        # A chain that holds over a wrong number was written so: a bug of a writer, which nothing may be built
        # on.
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
    # Looked at only here: while the chain holds, its hash covers the CRC and the frame as well, and a second
    # pass over every payload would tell nothing new. Of a frame that does not fit the CRC tells what is
    # wrong: its own bytes, or its place. Trailers and boundaries, which end a run of records, come here too.
    if zlib.crc32(body[_CRC_FROM:]) != crc:
        return "a frame's checksum is wrong"
    return {
        FLAG_TRAILER: STOP_TRAILER,
        FLAG_BOUNDARY: STOP_BOUNDARY,
        0: _CHAIN_BROKEN,
        FLAG_LAST: _CHAIN_BROKEN,
    }.get(flags, _UNKNOWN_FLAGS)


#: Type tags of the events that introduce names.
NAMING_EVENTS = tuple(tag for tag, kind in TYPES.items() if kind.introduce is not Event.introduce)


def learn_record(names: Names, raw: RawRecord) -> None:
    """Learn the names in an encoded record. An unreadable one introduces no pod."""
    if raw.tag in NAMING_EVENTS:
        with suppress(BadPayload, UnknownType):
            decode_event(raw.tag, raw.payload).introduce(names)
