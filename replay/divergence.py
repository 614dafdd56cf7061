"""The first difference of a replay, explained: both sides, its causes, the state, and the probable reason.

If the rest of the journal replays, a record was edited; otherwise the logic may be another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ebbtide.actors.fallback import FALLBACK
from ebbtide.events.base import Checkpoint, FrozenStruct, StatesDigest
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, plain_payload
from ebbtide.events.decisions import ActorFailed, FallbackEngaged
from ebbtide.events.reader import Batch, History
from ebbtide.replay.replayer import (
    ENDS_HERE,
    NO_BEGIN,
    Divergence,
    Replayer,
    Side,
    ValueChange,
    recorded,
    value_changes,
    whole_steps,
)

#: They have many actors' states; the divergence's field names the actor.
_OF_ALL = (Checkpoint.__name__, StatesDigest.__name__)


class Cause(FrozenStruct):
    """A record between the difference and its fact; ``data`` are plain values."""

    seq: int
    actor: str
    type: str
    data: Any


class Reason(FrozenStruct):
    """``name`` is for scripts."""

    name: str
    sentence: str


class Explanation(FrozenStruct):
    """``actor`` has the different decision or state. ``expected`` and ``produced``: the records, or None.

    ``causes``: from the nearest to the fact. ``state``: the actor's before the step (None: no state yet, or
    an edge); ``state_changes``: the change by the step. For a checkpoint: the recorded state, and its
    difference from the re-executed one. ``reasons``: the likeliest first.
    """

    seq: int
    actor: str
    field: str
    expected: Side | None
    produced: Side | None
    differences: tuple[ValueChange, ...]
    causes: tuple[Cause, ...]
    state: Any
    state_changes: tuple[ValueChange, ...]
    reasons: tuple[Reason, ...]


def explain(history: History, divergence: Divergence, version: str) -> Explanation:
    """Reads ``history`` again. ``version``: this program's. Raises OSError."""
    expected, produced = divergence.expected, divergence.produced
    replayer, steps = Replayer(), whole_steps(history.batches())
    # If the record lacks a decision, the step is the produced decision's.
    seq = min(divergence.seq, produced.cause or divergence.seq)
    written_by, step = "", list[RawRecord]()
    for header, records in steps:
        replayer.feed(step)
        written_by, step = header.identity.code_version, records
        if records[-1].seq >= seq:
            break
    # For an edge's record in place of a decision, name the actor that should have decided.
    actor = expected.actor
    parts = divergence.field.split()
    if expected.type in _OF_ALL and len(parts) > 1:
        actor = parts[1] if parts[0] == "actors" else parts[0]
    elif not expected.cause:
        actor = produced.actor or actor
    before = _state(replayer, actor)
    made = replayer.believe(step) if step else []
    after = _state(replayer, actor)
    if expected.type == Checkpoint.__name__:
        before, after = _kept(expected, actor), _kept(produced, actor)
    # More differences in the step contradict an edit of one record. A checkpoint has no step beside it.
    differing = [side for side, raw in zip(made, step, strict=False) if side != recorded(raw)]
    alone = any(raw.tag == Checkpoint.__name__ for raw in step) or (
        len(made) == len(step) and len(differing) == 1
    )
    causes = []
    by_seq = {raw.seq: raw for raw in step}
    cause = expected.cause or produced.cause
    while cause in by_seq:
        raw = by_seq[cause]
        data = plain_payload(raw.payload)
        causes.append(Cause(seq=raw.seq, actor=raw.actor, type=raw.tag, data=data))
        # An edited cause may name itself or a later record: do not loop.
        cause = raw.cause if raw.cause < raw.seq else 0
    fact = f"{step[0].tag} (record {step[0].seq})" if step else "the begin"
    found = _reasons(divergence, alone and _rest_matches(replayer, steps), fact, written_by, version)
    return Explanation(
        seq=divergence.seq,
        actor=actor,
        field=divergence.field,
        expected=expected if expected.type else None,
        produced=produced if produced.type else None,
        differences=tuple(value_changes(expected.data, produced.data)),
        causes=tuple(causes),
        state=before,
        state_changes=tuple(value_changes({} if before is None else before, {} if after is None else after)),
        reasons=tuple(found),
    )


def _rest_matches(replayer: Replayer, steps: Iterable[Batch]) -> bool:
    try:
        return not any(replayer.feed(records) for _, records in steps) and replayer.finish() is None
    except (UnknownType, BadPayload):
        return False


def _state(replayer: Replayer, label: str) -> Any:
    name, _, subject = label.partition(":")
    slot = replayer.system.slots.get((name, subject))
    return None if slot is None else msgspec.to_builtins(slot.state)


def _kept(side: Side, label: str) -> Any:
    name, _, subject = label.partition(":")
    actors = side.data.get("actors", ()) if isinstance(side.data, dict) else ()
    found = (each.get("state") for each in actors if (each["actor"], each["subject"]) == (name, subject))
    return next(found, None)


#: No logic decides these.
_OF_NO_LOGIC = ("time", "last", "encoding", NO_BEGIN, ENDS_HERE)


def _reasons(
    divergence: Divergence, rest_matches: bool, fact: str, written_by: str, version: str
) -> Iterator[Reason]:
    seq = divergence.seq
    fails = [
        side.type in (ActorFailed.__name__, FallbackEngaged.__name__) or side.actor == FALLBACK.name
        for side in (divergence.expected, divergence.produced)
    ]
    if divergence.field in _OF_NO_LOGIC:
        yield Reason(
            name="edited",
            sentence=f"the logic does not compute this field: record {seq}, or one beside it, was changed"
            " after it was written, put in, or taken out",
        )
        return
    if fails[0] != fails[1]:
        when = "then, and does not fail now" if fails[0] else "now, and did not fail then"
        yield Reason(
            name="failure",
            sentence=f"an actor failed {when}: because of something that is in no fact (memory, the"
            " interpreter), or because of a bug in one of the versions",
        )
    if rest_matches:
        yield Reason(
            name="edited",
            sentence=f"only record {seq} differs, and all later records fit the recomputed one: it was"
            " changed after it was written, if the same code wrote it",
        )
    if written_by != version:
        yield Reason(
            name="other-version",
            sentence=f"version {written_by or 'another'} wrote it and this is {version}: a rule changed and"
            " the logic kept its version",
        )
    elif not rest_matches:
        yield Reason(
            name="fact-edited",
            sentence=f"the facts up to {fact} do not lead to what was decided: one of them was changed after"
            f" it was written, most likely that one, or the code changed without a new version ({version})",
        )
