"""The first difference of a replay, explained: both sides, what led to it, the state, and why, probably.

A second pass over the journal, up to the step of the difference, gives the state of the actor that decided
otherwise; the step itself what its handlers made of that; and the rest of the journal whether anything else
differs, which tells an edited record from other logic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from events.codec import BadPayload, UnknownType
from events.frames import FLAG_LAST, RawRecord
from events.history import History
from events.marks import Checkpoint, StatesDigest
from events.segment import Header
from replay.changes import Change, changes, side_by_side
from replay.difference import Side
from replay.engine import Divergence, Replayer, plain_payload, recorded
from replay.reasons import Evidence, Reason, reasons

#: These hold the states of many actors; whose state differs stands in the field of the divergence.
_OF_ALL = (Checkpoint.__name__, StatesDigest.__name__)


class Cause(NamedTuple):
    """A record in the chain from the difference back to its fact; ``data`` are plain values."""

    seq: int
    actor: str
    type: str
    data: Any


class Explanation(NamedTuple):
    """``actor`` is whose decision, or whose state, differs.

    ``rows`` are the recorded and the produced event field by field, a differing field down to the part that
    differs; ``causes`` begin at the nearest and end at the fact. ``before`` is the actor's state before the
    step (None: it was not there yet, or an edge has none) and ``made`` what the step makes of it; of a
    checkpoint it is the state as recorded, and ``made`` how the one that history leads to differs.
    ``reasons`` are what speaks from the evidence, the likeliest first.
    """

    divergence: Divergence
    actor: str
    rows: tuple[Change, ...]
    causes: tuple[Cause, ...]
    before: Any
    made: tuple[Change, ...]
    reasons: tuple[Reason, ...]


Step = tuple[Header, list[RawRecord]]


def explain(history: History, divergence: Divergence, version: str) -> Explanation:
    """Read ``history`` anew from its begin to its end. ``version`` is this program's. Raises OSError."""
    replayer, steps = Replayer(), _steps(history)
    header, step = _up_to(replayer, steps, divergence)
    actor, flags = _whose(divergence), replayer.system.flags
    before = _state(replayer, actor)
    produced = replayer.believe(step) if step else []
    after = _state(replayer, actor)
    if divergence.expected.type == Checkpoint.__name__:
        before, after = _kept(divergence.expected, actor), _kept(divergence.produced, actor)
    fact, writer = (step[0], header.identity) if step and header else (None, None)
    agrees = _agrees(replayer, steps) if _alone(produced, step) else False
    return Explanation(
        divergence,
        actor,
        tuple(side_by_side(divergence.expected.data, divergence.produced.data)),
        tuple(_causes(step, divergence)),
        before,
        tuple(changes({} if before is None else before, {} if after is None else after)),
        tuple(reasons(Evidence(divergence, fact, writer, flags, version, agrees))),
    )


def _steps(history: History) -> Iterator[Step]:
    step: list[RawRecord] = []
    for batch in history.batches():
        for raw in batch.records:
            step.append(raw)
            if raw.flags & FLAG_LAST:
                yield batch.header, step
                step = []


def _up_to(
    replayer: Replayer, steps: Iterable[Step], divergence: Divergence
) -> tuple[Header | None, list[RawRecord]]:
    """Execute what is before the step of the difference, and return that step as it is recorded.

    Where a step has less than what is produced, that is the step of the produced decision's cause.
    """
    seq = min(divergence.seq, divergence.produced.cause or divergence.seq)
    header, held = None, list[RawRecord]()
    for header, step in steps:  # noqa: B007  # the last one is returned
        replayer.feed(held)
        held = step
        if step[-1].seq >= seq:
            break
    return header, held


def _alone(produced: list[Side], step: list[RawRecord]) -> bool:
    """Whether it is the only record of its step that differs."""
    if any(raw.tag == Checkpoint.__name__ for raw in step):
        return True
    differing = [side for side, raw in zip(produced, step, strict=False) if side != recorded(raw)]
    return len(produced) == len(step) and len(differing) == 1


def _agrees(replayer: Replayer, steps: Iterable[Step]) -> bool | None:
    """Whether all behind it is what re-execution makes of it; None where no decision is behind it.

    A record that cannot be read does not agree.
    """
    decisions = 0
    try:
        for _, step in steps:
            decisions += len(step) - 1
            if replayer.feed(step) is not None:
                return False
        return replayer.finish() is None if decisions else None
    except (UnknownType, BadPayload):
        return False


def _whose(divergence: Divergence) -> str:
    """The actor's label. Of a digest or a checkpoint: whose state it is that differs."""
    words = divergence.field.split()
    if divergence.expected.type in _OF_ALL and len(words) > 1:
        return words[1] if words[0] == "actors" else words[0]
    if divergence.expected.cause:
        return divergence.expected.actor
    return divergence.produced.actor or divergence.expected.actor


def _causes(step: list[RawRecord], divergence: Divergence) -> Iterator[Cause]:
    """From the nearest cause to the fact, which has none."""
    by_seq = {raw.seq: raw for raw in step}
    cause = divergence.expected.cause or divergence.produced.cause
    while cause in by_seq:
        raw = by_seq[cause]
        yield Cause(raw.seq, raw.actor, raw.tag, plain_payload(raw))
        cause = raw.cause if raw.cause < raw.seq else 0


def _state(replayer: Replayer, label: str) -> Any:
    name, _, subject = label.partition(":")
    slot = replayer.system.slots.get((name, subject))
    return None if slot is None else msgspec.to_builtins(slot.state)


def _kept(side: Side, label: str) -> Any:
    """An actor's state as a checkpoint has it."""
    name, _, subject = label.partition(":")
    actors = side.data.get("actors", ()) if isinstance(side.data, dict) else ()
    found = (each.get("state") for each in actors if (each["actor"], each["subject"]) == (name, subject))
    return next(found, None)
