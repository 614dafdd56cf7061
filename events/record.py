"""The envelope around an event: where it stands in the journal, when, and because of what."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from events.base import Event

#: Domain of the hash that gives a shutdown its trace id (design, "Traces").
TRACE_DOMAIN = b"ebbtide.trace.v1"


class Stamp(NamedTuple):
    """When the sequencer admitted a fact. Decisions carry their fact's stamp."""

    mono_ns: int
    wall_ns: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event in its place.

    ``cause`` is the sequence number of the event it answers (0: none, a fact). ``episode`` is the
    sequence number of its shutdown's first record (0: outside). ``actor`` is the emitting actor's
    name and subject, or ``edge`` for facts. ``last`` marks the end of a step.
    """

    seq: int
    mono_ns: int
    wall_ns: int
    episode: int
    cause: int
    actor: str
    last: bool
    event: Event


def episode_id(journal_id: bytes, episode: int) -> str:
    """A shutdown's name for people: the journal's first 8 hex digits and its first record's number."""
    return f"{journal_id.hex()[:8]}-{episode}"


def trace_id(first_record_hash: bytes) -> str:
    """The 32 hex digits of a shutdown's trace, from the chain hash of its first record."""
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in (TRACE_DOMAIN, first_record_hash))
    return hashlib.sha256(framed).hexdigest()[:32]
