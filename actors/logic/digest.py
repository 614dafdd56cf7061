"""A few bytes that vouch for every actor's state, so that a replay finds a difference where it began.

A state that went wrong may show in a decision much later, and then names the wrong record. At the end of
each wave the journal therefore keeps a digest of what has changed: four bytes for each field of each actor,
some bits to tell the field and the rest of its value's CRC-32. So small a thing holds no secret, and still a
difference is found, its actor and its field named. (That nobody altered the journal is the chain's business,
not this one's.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from struct import iter_unpack, pack
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from actors.logic.actor import State
from actors.logic.slot import Slot

#: Of the 32 bits of a field's digest: which field it is, and a part of its value's checksum.
TAG_BITS, VALUE_BITS = 12, 20
_VALUE_MASK = (1 << VALUE_BITS) - 1

_encode = msgspec.msgpack.Encoder().encode


def changed(slots: Iterable[Slot], *, at_last: bool) -> dict[str, bytes]:
    """The digest of each actor that changed since it was last noted, by label, in order of registration.

    A pod that is on its way down changes with every event, which tells of it by itself: its turn is when it
    is over, or, ``at_last``, when nothing is waited for any more.
    """
    found: dict[str, bytes] = {}
    for slot in slots:
        state = slot.state
        if state is not slot.noted and (at_last or slot.failed or slot.kind.done(state)):
            found[slot.label] = digest(state, slot.noted)
            slot.noted = state
    return found


def note(slots: Iterable[Slot]) -> None:
    """As they are now they are on record already: only what changes from here on is digested."""
    for slot in slots:
        slot.noted = slot.state


def digest(state: State, noted: State) -> bytes:
    """Four bytes, big-endian, for each field that is not as it was ``noted``, in the order of the fields."""
    values, tags = _layout(type(state))
    parts = [
        tag | crc32(_encode(value)) & _VALUE_MASK
        for value, before, tag in zip(values(state), values(noted), tags, strict=True)
        if value is not before and value != before
    ]
    return pack(f">{len(parts)}I", *parts)


def differing_field(kind: type[State], recorded: bytes, produced: bytes) -> str:
    """The first field, in the order of the state, whose digests differ; empty if it cannot be told."""
    kept, made = _by_tag(recorded), _by_tag(produced)
    names = (field.name for field in msgspec.structs.fields(kind))
    return next((name for name in names if kept.get(tag_of(name)) != made.get(tag_of(name))), "")


def tag_of(field: str) -> int:
    """The number that tells a field in a digest; no two fields of one state may share it (a test)."""
    return crc32(field.encode()) >> VALUE_BITS


def _by_tag(digests: bytes) -> dict[int, int]:
    whole = len(digests) - len(digests) % 4
    return {part >> VALUE_BITS: part & _VALUE_MASK for (part,) in iter_unpack(">I", digests[:whole])}


class _Layout(NamedTuple):
    """How the fields of a state are read, and the tag of each, in its place among the 32 bits."""

    values: Callable[[State], tuple[Any, ...]]
    tags: tuple[int, ...]


@cache
def _layout(kind: type[State]) -> _Layout:
    names = [field.name for field in msgspec.structs.fields(kind)]
    return _Layout(attrgetter(*names), tuple(tag_of(name) << VALUE_BITS for name in names))
