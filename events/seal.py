"""Seals: that a journal is authentic up to a moment, by keys that are gone from the machine.

A journal's chain says that it is consistent. A *seal* is a keyed hash over its head, and each seal has a key
of its own: the next one is made from it by a hash that nobody can turn round, and it is forgotten. Who takes
the machine over finds the key of the next seal, and none of those before; whoever keeps the first key
elsewhere can make them all again, and so tells what was sealed from what was made up later.

Pure; `ebbtide.daemon.Sealer` is what a daemon does with it.
"""

from __future__ import annotations

import hmac
import re
import struct
from collections.abc import Iterator

import msgspec

from ebbtide.events.codec import HASH_BYTES
from ebbtide.events.segment import JOURNAL_ID_BYTES, NUMBERS_MAX

SEALS_FILE = "seals.json"
FORMAT = 1
#: More than one each hour for a year; each takes some 270 bytes, and all are written with each.
SEALS_MAX = 10_000
SEALS_BYTES_MAX = 4 * 1024 * 1024
#: Of the hash (SHA-256), of the keys, and of what is made with them.
KEY_BYTES = HASH_BYTES

_HEX_DIGITS = re.compile("[0-9a-f]*")

_NEXT, _SEAL = b"ebbtide.seal.next.v1", b"ebbtide.seal.v1"
#: The seal's number, the journal's id, the record's number and chain hash, the wall clock.
_SEALED = struct.Struct("<I16sQ32sq")


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``head`` is the chain hash of record ``seq``; texts are hexadecimal digits."""

    journal: str
    seq: int
    head: str
    wall_ns: int
    mac: str


class Seals(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of them, in order, and the key of the next one."""

    key: str
    seals: tuple[Seal, ...] = ()
    format: int = FORMAT


class BrokenSeal(Exception):
    """A seal was not made with its key, or the next key is not that of its place: a seal was changed, taken
    out, put in or cut off.
    """


def next_key(key: bytes) -> bytes:
    """Nobody can go back from it."""
    return hmac.digest(key, _NEXT, "sha256")


def with_seal(seals: Seals, journal_id: bytes, seq: int, head: bytes, wall_ns: int) -> Seals:
    """One more, and the key that made it gone."""
    key = bytes.fromhex(seals.key)
    mac = _mac(key, len(seals.seals), journal_id, seq, head, wall_ns)
    made = Seal(journal_id.hex(), seq, head.hex(), wall_ns, mac.hex())
    return Seals(next_key(key).hex(), (*seals.seals, made))


def _mac(key: bytes, number: int, journal_id: bytes, seq: int, head: bytes, wall_ns: int) -> bytes:
    return hmac.digest(key, _SEAL + _SEALED.pack(number, journal_id, seq, head, wall_ns), "sha256")


def encode_seals(seals: Seals) -> bytes:
    return msgspec.json.encode(seals) + b"\n"


def parse_seals(data: bytes) -> Seals:
    """Raises ValueError."""
    try:
        found = msgspec.json.decode(data, type=Seals)
        sound = found.format == FORMAT and len(found.seals) <= SEALS_MAX
        sound = sound and _is_hex(found.key, KEY_BYTES) and all(map(_is_sound, found.seals))
    except RecursionError:
        sound = False
    if not sound or len(data) > SEALS_BYTES_MAX:
        raise ValueError("these are no seals of this version")
    return found


def _is_sound(seal: Seal) -> bool:
    lengths = ((seal.journal, JOURNAL_ID_BYTES), (seal.head, HASH_BYTES), (seal.mac, KEY_BYTES))
    numbers = 0 < seal.seq < NUMBERS_MAX and abs(seal.wall_ns) < NUMBERS_MAX
    return numbers and all(_is_hex(text, length) for text, length in lengths)


def _is_hex(text: str, length: int) -> bool:
    return len(text) == 2 * length and _HEX_DIGITS.fullmatch(text) is not None


def checked_seals(seals: Seals, first_key: bytes) -> Iterator[Seal]:
    """Each that its key has made. Raises BrokenSeal at the first that it has not, and behind the last one
    where the key of the next seal is that of a later place: then seals were cut off.
    """
    key = first_key
    for number, seal in enumerate(seals.seals):
        head = bytes.fromhex(seal.head)
        mac = _mac(key, number, bytes.fromhex(seal.journal), seal.seq, head, seal.wall_ns)
        if not hmac.compare_digest(mac.hex(), seal.mac):
            raise BrokenSeal(f"seal {number + 1} of {len(seals.seals)} was not made with this key")
        yield seal
        key = next_key(key)
    if not hmac.compare_digest(key.hex(), seals.key):
        next_place = len(seals.seals) + 1
        raise BrokenSeal(f"the last seals are missing: the next key is not that of seal {next_place}")
