"""The first difference of a replay, explained: both sides, its causes, the state, and the probable reason.

A second pass over the journal, up to the step of the difference, gives the state of the actor that decided
otherwise; the step gives its handlers' result; and the rest of the journal shows whether more differs, which
distinguishes an edited record from other logic.
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

#: These have the states of many actors; the divergence's field names the actor.
_OF_ALL = (Checkpoint.__name__, StatesDigest.__name__)


class Cause(NamedTuple):
    """A record in the chain from the difference back to its fact; ``data`` are plain values."""

    seq: int
    actor: str
    type: str
    data: Any


class Explanation(NamedTuple):
    """``actor``: the one with the different decision or state.

    ``rows``: the recorded and the produced event field by field, a different field down to its parts;
    ``causes``: from the nearest to the fact. ``before``: the actor's state before the step (None: no state
    yet, or an edge) and ``made``: the change by the step; for a checkpoint the recorded state, and its
    difference from the history's. ``reasons``: the likeliest first.
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
    # If the record has fewer decisions than re-execution, the step is the produced decision's. Execute all
    # before that step, keep the state, then execute the step.
    seq = min(divergence.seq, divergence.produced.cause or divergence.seq)
    writer, step = None, list[RawRecord]()
    for header, records in steps:
        replayer.feed(step)
        writer, step = header.identity, records
        if records[-1].seq >= seq:
            break
    # The deciding actor. A digest and a checkpoint have the states of all, and the field begins with the
    # actor. For an edge's record in place of a decision, the actor that should have decided.
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
    # More differences in the step contradict an edit of one record. A checkpoint has no step beside it.
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
        # An edited cause may point at itself or forward, and would loop.
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
    """Whether re-execution reproduces the rest; None: no decision follows."""
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
    """An actor's state in a checkpoint."""
    name, _, subject = label.partition(":")
    actors = side.data.get("actors", ()) if isinstance(side.data, dict) else ()
    found = (each.get("state") for each in actors if (each["actor"], each["subject"]) == (name, subject))
    return next(found, None)


# Why a replay diverged, probably: a table of tests over the evidence, each with its sentence.
#
# Possible origins: other logic (a version), another configuration, a failing machine, or an edited record.
# Each leaves traces.


class Evidence(NamedTuple):
    """The evidence of a difference.

    ``fact`` began its step. ``writer`` is from its segment's header, ``version`` is this program's.
    ``rest_matches``: re-execution reproduces all other records of its step and all later ones; None: no
    decision follows.
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


#: Decisions that follow from the configuration, and such fields of others.
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


#: Parts of an envelope that no logic decides.
_OF_NO_LOGIC = ("time", "last", BACKWARDS, NO_BEGIN)


# Replay only compares decisions. So if all the rest agrees, the facts are the original ones, and an edit
# changed this one record.
def _edited(of: Evidence) -> bool:
    recorded = of.divergence.expected.type not in ("", Checkpoint.__name__)
    return of.rest_matches is True and recorded and of.divergence.field not in _OF_NO_LOGIC


def _other_version(of: Evidence) -> bool:
    other = of.writer is not None and of.writer.code_version != of.version
    return other and of.divergence.field not in _OF_NO_LOGIC


def _other_code(of: Evidence) -> bool:
    """A change of the logic without a new version number is possible."""
    return (_edited(of) or _fact_edited(of)) and not _other_version(of)


def _configuration(of: Evidence) -> bool:
    settings = of.fact is not None and of.fact.tag == SettingsLoaded.__name__
    return not (_edited(of) or of.divergence.field in _OF_NO_LOGIC) and (
        settings
        or of.divergence.expected.type in _CONFIGURED
        or of.divergence.produced.type in _CONFIGURED
        or of.divergence.field in _CONFIGURED_FIELDS
    )


# A newer version's unknown type may be a fact. It counts as none: this version could not step it.
def _not_a_fact(of: Evidence) -> bool:
    kind = TYPES.get(of.divergence.expected.type)
    return not of.divergence.expected.cause and not (kind is not None and issubclass(kind, Fact | Mark))


# Replay reads facts: an edited one changes all that follows. Other causes do the same, but each leaves its
# own trace; only without one suspect the fact.
def _fact_edited(of: Evidence) -> bool:
    explained = _too_large(of) or _failed_then(of) or _fails_now(of) or _other_version(of) or _lost_state(of)
    return of.rest_matches is False and not explained and of.divergence.field not in _OF_NO_LOGIC


def _of_a_failure(side: Side) -> bool:
    return side.type in (ActorFailed.__name__, FallbackEngaged.__name__) or side.actor == FALLBACK.name


#: By likelihood: near proofs first, mere possibilities last.
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
    """The reasons that hold, the likeliest first; at least one."""
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
