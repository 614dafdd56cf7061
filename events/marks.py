"""Marks: the journal's own bookkeeping."""

from __future__ import annotations

import msgspec

from events.base import Mark, register


class ActorState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One actor as a checkpoint keeps it; ``state`` is its Struct in MessagePack."""

    actor: str
    subject: str
    state: msgspec.Raw
    failed: bool = False


class OpenOrder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An order without an outcome, whole: a later process must know what it asked for."""

    seq: int
    type: str
    order: msgspec.Raw


class RedactedFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which journal this one was made from, with all names replaced; its records have the same numbers.

    ``head`` is the chain hash of the original's last record, ``trace_ids`` are by the number of a shutdown's
    first record. All in hexadecimal digits.
    """

    journal_id: str
    head_seq: int
    head: str
    trace_ids: dict[int, str]


@register
class Checkpoint(Mark, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The whole deterministic state at a segment's begin, so that older segments are not needed."""

    episode: int
    actors: tuple[ActorState, ...] = ()
    open_orders: tuple[OpenOrder, ...] = ()
    #: In force from here on; as in the segment's header, so that records alone can be executed again.
    logic_flags: tuple[str, ...] = ()
    #: In the first checkpoint of a redacted journal.
    redacted: RedactedFrom | None = None


@register
class StatesDigest(Mark, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """At a wave's end: a few bytes for each actor that changed, by its label (`actors.logic.digest`)."""

    actors: dict[str, bytes] = {}
