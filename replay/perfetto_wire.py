"""The bytes of a Perfetto trace: as much protobuf as six kinds of messages need.

Field numbers are those of Perfetto's ``trace_packet.proto`` and its neighbours; a test reads what is written
here with their published descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

EventType = Literal["begin", "end", "instant"]

_TYPES: dict[EventType, int] = {"begin": 1, "end": 2, "instant": 3}

#: Only one writer makes the file.
_SEQUENCE_ID = 1
#: ``SEQ_INCREMENTAL_STATE_CLEARED``: nothing that came before is referred to.
_CLEARED = 1

#: ``ClockSnapshot.BuiltinClocks``.
REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6

#: ``TrackDescriptor.ChildTracksOrdering.EXPLICIT``, and tracks of one name that stay apart.
_EXPLICIT, _NO_MERGE = 3, 2

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def _varint(value: int) -> bytes:
    """Negative numbers in two's complement of 64 bits, as protobuf has them."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return _varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _packet(*fields: bytes) -> bytes:
    return _bytes(1, b"".join((*fields, _number(10, _SEQUENCE_ID))))


def clocks(mono_ns: int, wall_ns: int) -> bytes:
    """The first packet: which moment of the trace's clock is which by the wall clock."""
    times = ((BOOTTIME, mono_ns), (MONOTONIC, mono_ns), (REALTIME, wall_ns))
    each = [_bytes(1, _number(1, clock) + _number(2, max(0, time_ns))) for clock, time_ns in times]
    return _packet(_bytes(6, b"".join(each) + _number(2, BOOTTIME)), _number(13, _CLEARED))


def track(uuid: int, name: str, parent: int = 0, rank: int = 0) -> bytes:
    """A track below ``parent`` (0: at the top), its children in the order of their ranks."""
    fields = [_number(1, uuid), _bytes(2, name)]
    fields += [_number(5, parent), _number(12, rank)] if parent else []
    return _packet(_bytes(60, b"".join((*fields, _number(11, _EXPLICIT), _number(15, _NO_MERGE)))))


def event(
    time_ns: int,
    kind: EventType,
    uuid: int,
    name: str = "",
    *,
    category: str = "",
    notes: Iterable[tuple[str, str | int]] = (),
    leads_to: Iterable[int] = (),
    comes_from: Iterable[int] = (),
) -> bytes:
    """One event on a track. ``leads_to`` and ``comes_from`` number the arrows that begin and end here."""
    fields = [_number(9, _TYPES[kind]), _number(11, uuid)]
    fields += [_bytes(23, name)] if name else []
    fields += [_bytes(22, category)] if category else []
    fields += [_bytes(4, _note(key, value)) for key, value in notes]
    fields += [_fixed(47, number) for number in leads_to]
    fields += [_fixed(48, number) for number in comes_from]
    return _packet(_number(8, max(0, time_ns)), _bytes(11, b"".join(fields)))


def _note(key: str, value: str | int) -> bytes:
    return _bytes(10, key) + (_bytes(6, value) if isinstance(value, str) else _number(4, value))
