"""The first difference of a replay, explained: both sides, what led to it, the state, and why, probably.

A second pass over the journal, up to the step of the difference, gives the state of the actor that decided
otherwise; the step itself what its handlers made of that; and the rest of the journal whether anything else
differs, which tells an edited record from other logic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ebbtide.actors.fallback import FALLBACK
from ebbtide.events.base import TYPES, Checkpoint, Fact, Mark, StatesDigest
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, plain_payload
from ebbtide.events.decisions import ActorFailed, ConfigAdopted, FallbackEngaged, GrantAssessed
from ebbtide.events.facts import SettingsLoaded, StorageFailed
from ebbtide.events.reader import Batch, History
from ebbtide.events.segment import Identity
from ebbtide.replay.replayer import (
    BACKWARDS,
    ENDS_HERE,
    NO_BEGIN,
    Divergence,
    Replayer,
    Side,
    ValueChange,
    recorded,
    side_by_side,
    value_changes,
    whole_steps,
)

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
    rows: tuple[ValueChange, ...]
    causes: tuple[Cause, ...]
    before: Any
    made: tuple[ValueChange, ...]
    reasons: tuple[Reason, ...]


def explain(history: History, divergence: Divergence, version: str) -> Explanation:
    """Read ``history`` anew from its begin to its end. ``version`` is this program's. Raises OSError."""
    replayer, steps = Replayer(), whole_steps(history.batches())
    # Where a step has less than what is produced, its step is that of the produced decision's cause. All in
    # front of that step is executed, and the step itself only once the state before it has been kept.
    seq = min(divergence.seq, divergence.produced.cause or divergence.seq)
    writer, step = None, list[RawRecord]()
    for header, records in steps:
        replayer.feed(step)
        writer, step = header.identity, records
        if records[-1].seq >= seq:
            break
    # Whose decision it is. A digest and a checkpoint hold the states of all, and their field begins with the
    # actor whose state differs; of what an edge said in place of a decision, whoever should have decided.
    actor = divergence.expected.actor
    parts = divergence.field.split()
    if divergence.expected.type in _OF_ALL and len(parts) > 1:
        actor = parts[1] if parts[0] == "actors" else parts[0]
    elif not divergence.expected.cause:
        actor = divergence.produced.actor or actor
    before = _state(replayer, actor)
    produced = replayer.believe(step) if step else []
    after = _state(replayer, actor)
    if divergence.expected.type == Checkpoint.__name__:
        before, after = _kept(divergence.expected, actor), _kept(divergence.produced, actor)
    # Nothing else of the journal speaks for the record where its own step differs in other places, too. A
    # checkpoint is not produced by a step, and has nothing beside it that could.
    differing = [side for side, raw in zip(produced, step, strict=False) if side != recorded(raw)]
    alone = any(raw.tag == Checkpoint.__name__ for raw in step) or (
        len(produced) == len(step) and len(differing) == 1
    )
    causes = []
    by_seq = {raw.seq: raw for raw in step}
    cause = divergence.expected.cause or divergence.produced.cause
    while cause in by_seq:
        raw = by_seq[cause]
        causes.append(Cause(raw.seq, raw.actor, raw.tag, plain_payload(raw.payload)))
        # An edited cause may point at itself or behind, and would lead round and round.
        cause = raw.cause if raw.cause < raw.seq else 0
    evidence = Evidence(
        divergence,
        step[0] if step else None,
        writer,
        version,
        _rest_matches(replayer, steps) if alone else False,
    )
    return Explanation(
        divergence,
        actor,
        tuple(side_by_side(divergence.expected.data, divergence.produced.data)),
        tuple(causes),
        before,
        tuple(value_changes({} if before is None else before, {} if after is None else after)),
        tuple(reasons(evidence)),
    )


def _rest_matches(replayer: Replayer, steps: Iterable[Batch]) -> bool | None:
    """Whether all behind it is what re-execution makes of it; None where no decision is behind it."""
    decisions = 0
    try:
        for _, records in steps:
            decisions += len(records) - 1
            if replayer.feed(records) is not None:
                return False
        return replayer.finish() is None if decisions else None
    except (UnknownType, BadPayload):
        return False  # what cannot be read does not agree


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


# Why a replay diverged, probably: a table of tests over the evidence, each with its sentence.
#
# A difference has few possible origins: other logic (a version, a flag), another configuration, a machine
# that failed where this one does not, or a record that is not what was written. Each leaves traces.


class Evidence(NamedTuple):
    """What is known of a difference.

    ``fact`` began its step. ``writer`` is from its segment's header, ``version`` is this
    program's. ``rest_matches``: all other records of its step and all behind it are as re-execution
    makes them; None: no decision is behind it.
    """

    divergence: Divergence
    fact: RawRecord | None
    writer: Identity | None
    version: str
    rest_matches: bool | None


class Reason(NamedTuple):
    """``name`` is for scripts."""

    name: str
    sentence: str


class ReasonTest(NamedTuple):
    """``sentence`` may name recorded and produced (types), seq, fact, writer and version."""

    name: str
    holds: Callable[[Evidence], bool]
    sentence: str


#: Decisions that follow from the configuration, and the fields of others that do.
_CONFIGURED = (ConfigAdopted.__name__, GrantAssessed.__name__)
_CONFIGURED_FIELDS = ("periods", "requested_ns", "reserve_ns", "budget", "needed_ns", "period_ns", "seconds")


def _too_large(of: Evidence) -> bool:
    return of.divergence.expected.type == StorageFailed.__name__ != of.divergence.produced.type


def _failed_then(of: Evidence) -> bool:
    return _of_a_failure(of.divergence.expected) and not _of_a_failure(of.divergence.produced)


def _fails_now(of: Evidence) -> bool:
    return _of_a_failure(of.divergence.produced) and not _of_a_failure(of.divergence.expected)


def _went_on(of: Evidence) -> bool:
    return of.divergence.expected.type == Checkpoint.__name__ and of.rest_matches is True


def _lost_state(of: Evidence) -> bool:
    return of.divergence.expected.type == Checkpoint.__name__ and of.rest_matches is False


def _is_at(field: str) -> Callable[[Evidence], bool]:
    return lambda of: of.divergence.field == field


#: Parts of an envelope that no logic decides about.
_OF_NO_LOGIC = ("time", "last", BACKWARDS, NO_BEGIN)


# A decision is never read when a journal is executed, only compared. So where all the rest agrees, the facts
# are those of then, and the one record that differs was not what the logic had said.
def _edited(of: Evidence) -> bool:
    recorded = of.divergence.expected.type not in ("", Checkpoint.__name__)
    return of.rest_matches is True and recorded and of.divergence.field not in _OF_NO_LOGIC


def _other_version(of: Evidence) -> bool:
    other = of.writer is not None and of.writer.code_version != of.version
    return other and of.divergence.field not in _OF_NO_LOGIC


def _other_code(of: Evidence) -> bool:
    """A version's number says nothing of a change that was not given one."""
    return (_edited(of) or _fact_edited(of)) and not _other_version(of)


def _configuration(of: Evidence) -> bool:
    settings = of.fact is not None and of.fact.tag == SettingsLoaded.__name__
    return not (_edited(of) or of.divergence.field in _OF_NO_LOGIC) and (
        settings
        or of.divergence.expected.type in _CONFIGURED
        or of.divergence.produced.type in _CONFIGURED
        or of.divergence.field in _CONFIGURED_FIELDS
    )


# A type of a newer version may be a fact there. It counts as none: this version could not step it either.
def _not_a_fact(of: Evidence) -> bool:
    kind = TYPES.get(of.divergence.expected.type)
    return not of.divergence.expected.cause and not (kind is not None and issubclass(kind, Fact | Mark))


# A fact is read: with an edited one all that follows from it differs, too. Other causes do the same, and each
# leaves a trace of its own; only where none is found is the fact suspected.
def _fact_edited(of: Evidence) -> bool:
    explained = _too_large(of) or _failed_then(of) or _fails_now(of) or _other_version(of) or _lost_state(of)
    return of.rest_matches is False and not explained and of.divergence.field not in _OF_NO_LOGIC


def _of_a_failure(side: Side) -> bool:
    return side.type in (ActorFailed.__name__, FallbackEngaged.__name__) or side.actor == FALLBACK.name


#: In the order of likelihood: what is nearly a proof first, what is only possible last.
REASON_TESTS: tuple[ReasonTest, ...] = (
    ReasonTest(
        "stamped-otherwise",
        _is_at("time"),
        "record {seq} has other times than its fact, and in every version a decision carries its fact's: one "
        "of the two was changed after it was written",
    ),
    ReasonTest(
        "marked-otherwise",
        _is_at("last"),
        "the mark that ends a step is not where this step ends, and no version puts it anywhere else: it was "
        "changed after it was written, or records were put in or taken out",
    ),
    ReasonTest(
        "went-backwards",
        _is_at(BACKWARDS),
        "within a boot the clock never goes back: the time of record {seq}, or of one before it, was changed "
        "after it was written",
    ),
    ReasonTest(
        "no-begin",
        _is_at(NO_BEGIN),
        "the checkpoint that says under which logic this journal is executed was taken away",
    ),
    ReasonTest(
        "too-large",
        _too_large,
        "the event of record {seq} was too large for a frame when it was written, and the journal says so in "
        "its place: nothing was decided differently",
    ),
    ReasonTest(
        "failed-then",
        _failed_then,
        "on that machine an actor failed here ({recorded}) and with the same facts none fails now: it failed "
        "of something that is in no fact (memory, the interpreter), or of a bug that is mended",
    ),
    ReasonTest(
        "fails-now",
        _fails_now,
        "an actor fails here ({produced}) in this version ({version}) and did not then: it is a bug here",
    ),
    ReasonTest(
        "edited",
        _edited,
        "record {seq} alone differs, and everything behind it follows from what is produced here: it was "
        "changed after it was written, if the same code wrote it",
    ),
    ReasonTest(
        "encoding",
        _is_at("encoding"),
        "record {seq} has the same values in other bytes: another program than the daemon wrote it",
    ),
    ReasonTest(
        "went-on-from-less",
        _went_on,
        "the process that began this segment went on from the state that it recorded, which is not where the "
        "history leads: it had not read all of it (a location was away, a start went without its history)",
    ),
    ReasonTest(
        "checkpoint-edited",
        _lost_state,
        "the checkpoint is neither where the history leads nor what the process went on from: it, or a fact "
        "before it, was changed after it was written",
    ),
    ReasonTest(
        "other-version",
        _other_version,
        "version {writer} wrote it and this is {version}: a rule changed and the logic kept its version",
    ),
    ReasonTest(
        "configuration",
        _configuration,
        "the configuration that was decided by is another than the one that the last SettingsLoaded holds: "
        "that fact was changed after it was written, or the code that reads it was",
    ),
    ReasonTest(
        "not-a-fact",
        _not_a_fact,
        "a {recorded} stands where only a fact can stand: a record was put in or taken out",
    ),
    ReasonTest(
        "cut", _is_at(ENDS_HERE), "the last step lacks what its fact leads to: its end was taken away"
    ),
    ReasonTest(
        "fact-edited",
        _fact_edited,
        "the facts up to {fact} do not lead to what was decided: if the same code wrote it, one of them was "
        "changed after it was written, most likely that one",
    ),
    ReasonTest(
        "other-code",
        _other_code,
        "or the code is another one under the same version ({version}): then it decides otherwise here, and "
        "the logic kept its version; run the very files that wrote it",
    ),
)

UNKNOWN_REASON = Reason(
    "unknown", "nothing in the journal tells why: what is behind a difference does, mostly"
)


def reasons(of: Evidence) -> Iterator[Reason]:
    """What holds, the likeliest first; at least one."""
    parts = {
        "seq": of.divergence.seq,
        "recorded": of.divergence.expected.type or "nothing",
        "produced": of.divergence.produced.type or "nothing",
        "fact": f"{of.fact.tag} (record {of.fact.seq})" if of.fact is not None else "the begin",
        "writer": of.writer.code_version if of.writer is not None else "another",
        "version": of.version,
    }
    found = [Reason(test.name, test.sentence.format(**parts)) for test in REASON_TESTS if test.holds(of)]
    yield from found or [UNKNOWN_REASON]
