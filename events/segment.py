"""A segment: one append-only file of the journal, its header, its name, and the link to the one before.

The header ends with its own SHA-256. That hash is where the chain of the segment's frames starts, so every
record vouches for the header, and the header's link vouches for the segment before. Only a segment that
*carries* records over from a failed file goes on with the chain of the link instead: the records keep
their hashes, byte for byte.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import NamedTuple

from events.frames import HASH_BYTES

MAGIC = b"EBBTIDE\n"
FORMAT_VERSION = 1

#: magic, format version, spare, header length: the same in every version, as are the 32 bytes at the end.
PREFIX = struct.Struct("<8sHHI")
#: compatible bits, incompatible bits, journal id, segment, wall ns, mono ns, carries, link segment, link
#: offset, link seq, link hash.
FIXED = struct.Struct("<II16sQqqQQQQ32s")
#: A reader may ignore unknown bits of the first kind, and must refuse those of the second.
COMPATIBLE_KNOWN = 0
INCOMPATIBLE_KNOWN = 0
#: Names and a hundred logic flags fit; a damaged length cannot ask for more memory.
HEADER_BYTES_MAX = 65_536

_TEXT = struct.Struct("<H")
_NAME = re.compile(r"(\d{10})-([0-9a-f]{8})\.ebj")


class Identity(NamedTuple):
    """Who writes: constant for a process. ``logic_flags`` name the changes of behaviour in force."""

    node: str
    machine_id: str
    boot_id: str
    code_version: str
    logic_flags: tuple[str, ...] = ()


class Link(NamedTuple):
    """A place in the journal: at ``offset`` of ``segment``, behind record ``seq`` and the bytes ``hash``."""

    segment: int = 0
    offset: int = 0
    seq: int = 0
    hash: bytes = bytes(HASH_BYTES)


class Header(NamedTuple):
    """What stands at the begin of a segment. The anchor is one moment on both clocks."""

    journal_id: bytes
    segment: int
    anchor_wall_ns: int
    anchor_mono_ns: int
    #: The records that follow were carried over from a failed file; their chain goes on from the link.
    carries: bool
    link: Link
    identity: Identity
    compatible: int = 0
    incompatible: int = 0

    def wall_ns(self, mono_ns: int) -> int:
        """The displayed time of a record of this segment: anchor plus monotonic difference."""
        return self.anchor_wall_ns + mono_ns - self.anchor_mono_ns


class DamagedHeader(Exception):
    """A segment's header is cut short or does not match its hash."""


class IncompatibleHeader(Exception):
    """The segment was written by a version with another format; read it with that version or a newer one."""


def encode_header(header: Header) -> bytes:
    """The header's bytes; the last 32 are its hash, where the chain starts."""
    names = header.identity
    texts = [names.node, names.machine_id, names.boot_id, names.code_version, *names.logic_flags]
    body = b"".join(_TEXT.pack(len(text.encode())) + text.encode() for text in texts)
    fixed = FIXED.pack(
        header.compatible,
        header.incompatible,
        header.journal_id,
        header.segment,
        header.anchor_wall_ns,
        header.anchor_mono_ns,
        int(header.carries),
        *header.link,
    )
    length = PREFIX.size + len(fixed) + _TEXT.size + len(body) + HASH_BYTES
    if length > HEADER_BYTES_MAX:
        raise ValueError(f"a segment header of {length} bytes is above {HEADER_BYTES_MAX}: shorten its names")
    prefix = PREFIX.pack(MAGIC, FORMAT_VERSION, 0, length)
    content = prefix + fixed + _TEXT.pack(len(texts)) + body
    return content + hashlib.sha256(content).digest()


def header_length(prefix: bytes) -> int:
    """How long the header is, from its first 16 bytes. Raises DamagedHeader."""
    if len(prefix) < PREFIX.size:
        raise DamagedHeader("the header is cut short")
    magic, _, _, length = PREFIX.unpack_from(prefix)
    if magic != MAGIC or not PREFIX.size + HASH_BYTES <= length <= HEADER_BYTES_MAX:
        raise DamagedHeader("no segment header begins here")
    return int(length)


def parse_header(data: bytes) -> tuple[Header, int]:
    """The header at the begin of ``data`` and its length. Raises DamagedHeader and IncompatibleHeader."""
    length = header_length(data)
    if len(data) < length:
        raise DamagedHeader("the header is cut short")
    content, digest = data[: length - HASH_BYTES], data[length - HASH_BYTES : length]
    if hashlib.sha256(content).digest() != digest:
        raise DamagedHeader("the header does not match its hash")
    version = PREFIX.unpack_from(content)[1]
    if version != FORMAT_VERSION:
        raise IncompatibleHeader(f"format version {version}; this program reads version {FORMAT_VERSION}")
    return _parse_body(content), length


def _parse_body(content: bytes) -> Header:
    compatible, incompatible, journal_id, segment, wall, mono, carries, *link = FIXED.unpack_from(
        content, PREFIX.size
    )
    if incompatible & ~INCOMPATIBLE_KNOWN:
        raise IncompatibleHeader(f"unknown incompatible features {incompatible & ~INCOMPATIBLE_KNOWN:#x}")
    node, machine_id, boot_id, code_version, *flags = _parse_texts(content)
    identity = Identity(node, machine_id, boot_id, code_version, tuple(flags))
    return Header(
        journal_id, segment, wall, mono, bool(carries), Link(*link), identity, compatible, incompatible
    )


def _parse_texts(content: bytes) -> list[str]:
    pos = PREFIX.size + FIXED.size
    (count,) = _TEXT.unpack_from(content, pos)
    texts = []
    for _ in range(count):
        pos += _TEXT.size
        (length,) = _TEXT.unpack_from(content, pos)
        texts.append(content[pos + _TEXT.size : pos + _TEXT.size + length].decode())
        pos += length
    return texts


def file_name(segment: int, journal_id: bytes) -> str:
    """A segment's file name; names sort in the order of writing."""
    return f"{segment:010d}-{journal_id.hex()[:8]}.ebj"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """The segment's number and the first 8 digits of its journal's id, or None for any other file."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None
