"""Why a replay diverged, probably: a table of tests over the evidence, each with its sentence.

A difference has few possible origins: other logic (a version, a flag), another configuration, a machine that
failed where this one does not, or a record that is not what was written. Each leaves traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from actors.logic.fallback import FALLBACK
from events.base import TYPES, Fact, Mark
from events.decisions import ActorFailed, ConfigAdopted, FallbackEngaged, GrantAssessed
from events.facts import SettingsLoaded, StorageFailed
from events.frames import RawRecord
from events.marks import Checkpoint
from events.segment import Identity
from replay.engine import BACKWARDS, ENDS_HERE, NO_BEGIN, Divergence


class Evidence(NamedTuple):
    """What is known of a difference.

    ``fact`` began its step. ``writer`` is from its segment's header, ``flags`` were in force, ``version`` is
    this program's. ``rest_agrees``: all other records of its step and all behind it are as re-execution makes
    them; None: no decision is behind it.
    """

    divergence: Divergence
    fact: RawRecord | None
    writer: Identity | None
    flags: tuple[str, ...]
    version: str
    rest_agrees: bool | None


class Reason(NamedTuple):
    """``name`` is for scripts."""

    name: str
    sentence: str


class Test(NamedTuple):
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
    return of.divergence.expected.type == Checkpoint.__name__ and of.rest_agrees is True


def _lost_state(of: Evidence) -> bool:
    return of.divergence.expected.type == Checkpoint.__name__ and of.rest_agrees is False


def _other_bytes(of: Evidence) -> bool:
    return of.divergence.field == "encoding"


def _is_at(field: str) -> Callable[[Evidence], bool]:
    return lambda of: of.divergence.field == field


#: Parts of an envelope that no logic decides about.
_OF_NO_LOGIC = ("time", "last", BACKWARDS, NO_BEGIN)


def _edited(of: Evidence) -> bool:
    recorded = of.divergence.expected.type not in ("", Checkpoint.__name__)
    return of.rest_agrees is True and recorded and of.divergence.field not in _OF_NO_LOGIC


def _other_version(of: Evidence) -> bool:
    other = of.writer is not None and of.writer.code_version != of.version
    return other and of.divergence.field not in _OF_NO_LOGIC


def _other_code(of: Evidence) -> bool:
    """A version's number says nothing of a change that was not given one."""
    return (_edited(of) or _fact_edited(of)) and not _other_version(of)


def _other_flags(of: Evidence) -> bool:
    return of.writer is not None and of.writer.logic_flags != of.flags


def _configuration(of: Evidence) -> bool:
    settings = of.fact is not None and of.fact.tag == SettingsLoaded.__name__
    return not (_edited(of) or of.divergence.field in _OF_NO_LOGIC) and (
        settings
        or of.divergence.expected.type in _CONFIGURED
        or of.divergence.produced.type in _CONFIGURED
        or of.divergence.field in _CONFIGURED_FIELDS
    )


def _not_a_fact(of: Evidence) -> bool:
    kind = TYPES.get(of.divergence.expected.type)
    return not of.divergence.expected.cause and not (kind is not None and issubclass(kind, Fact | Mark))


def _fact_edited(of: Evidence) -> bool:
    explained = _too_large(of) or _failed_then(of) or _fails_now(of) or _other_version(of) or _lost_state(of)
    return of.rest_agrees is False and not explained and of.divergence.field not in _OF_NO_LOGIC


def _of_a_failure(side: object) -> bool:
    kind, actor = getattr(side, "type", ""), getattr(side, "actor", "")
    return kind in (ActorFailed.__name__, FallbackEngaged.__name__) or actor == FALLBACK.name


#: In the order of likelihood: what is nearly a proof first, what is only possible last.
TESTS: tuple[Test, ...] = (
    Test(
        "stamped-otherwise",
        _is_at("time"),
        "record {seq} has other times than its fact, and in every version a decision carries its fact's: one "
        "of the two was changed after it was written",
    ),
    Test(
        "marked-otherwise",
        _is_at("last"),
        "the mark that ends a step is not where this step ends, and no version puts it anywhere else: it was "
        "changed after it was written, or records were put in or taken out",
    ),
    Test(
        "went-backwards",
        _is_at(BACKWARDS),
        "within a boot the clock never goes back: the time of record {seq}, or of one before it, was changed "
        "after it was written",
    ),
    Test(
        "no-begin",
        _is_at(NO_BEGIN),
        "the checkpoint that says under which logic flags this journal is executed was taken away",
    ),
    Test(
        "too-large",
        _too_large,
        "the event of record {seq} was too large for a frame when it was written, and the journal says so in "
        "its place: nothing was decided differently",
    ),
    Test(
        "failed-then",
        _failed_then,
        "on that machine an actor failed here ({recorded}) and with the same facts none fails now: it failed "
        "of something that is in no fact (memory, the interpreter), or of a bug that is mended",
    ),
    Test(
        "fails-now",
        _fails_now,
        "an actor fails here ({produced}) in this version ({version}) and did not then: it is a bug here",
    ),
    Test(
        "edited",
        _edited,
        "record {seq} alone differs, and everything behind it follows from what is produced here: it was "
        "changed after it was written, if the same code wrote it",
    ),
    Test(
        "encoding",
        _other_bytes,
        "record {seq} has the same values in other bytes: another program than the daemon wrote it",
    ),
    Test(
        "went-on-from-less",
        _went_on,
        "the process that began this segment went on from the state that it recorded, which is not where the "
        "history leads: it had not read all of it (a location was away, a start went without its history)",
    ),
    Test(
        "checkpoint-edited",
        _lost_state,
        "the checkpoint is neither where the history leads nor what the process went on from: it, or a fact "
        "before it, was changed after it was written",
    ),
    Test(
        "other-flags",
        _other_flags,
        "the logic flags of the segment's header and those of its checkpoint are not the same: one of them "
        "was changed after it was written",
    ),
    Test(
        "other-version",
        _other_version,
        "version {writer} wrote it and this is {version}: what changed in between has no logic flag",
    ),
    Test(
        "configuration",
        _configuration,
        "the configuration that was decided by is another than the one that the last SettingsLoaded holds: "
        "that fact was changed after it was written, or the code that reads it was",
    ),
    Test(
        "not-a-fact",
        _not_a_fact,
        "a {recorded} stands where only a fact can stand: a record was put in or taken out",
    ),
    Test("cut", _is_at(ENDS_HERE), "the last step lacks what its fact leads to: its end was taken away"),
    Test(
        "fact-edited",
        _fact_edited,
        "the facts up to {fact} do not lead to what was decided: if the same code wrote it, one of them was "
        "changed after it was written, most likely that one",
    ),
    Test(
        "other-code",
        _other_code,
        "or the code is another one under the same version ({version}): then it decides otherwise here, and "
        "what changed has no logic flag; run the very files that wrote it",
    ),
)

UNKNOWN = Reason("unknown", "nothing in the journal tells why: what is behind a difference does, mostly")


def reasons(of: Evidence) -> Iterator[Reason]:
    """What holds, the likeliest first; at least one."""
    words = {
        "seq": of.divergence.seq,
        "recorded": of.divergence.expected.type or "nothing",
        "produced": of.divergence.produced.type or "nothing",
        "fact": f"{of.fact.tag} (record {of.fact.seq})" if of.fact is not None else "the begin",
        "writer": of.writer.code_version if of.writer is not None else "another",
        "version": of.version,
    }
    found = [Reason(test.name, test.sentence.format(**words)) for test in TESTS if test.holds(of)]
    yield from found or [UNKNOWN]
