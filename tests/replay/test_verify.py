"""The golden journal follows from its facts; each difference is found, named and explained.

Only a fact's own times come from outside.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from benchmarks.episodes import lay_out
from ebbtide.actors.kubelet import KUBELET
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Fact, Record, Stamp, StatesDigest
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import FLAG_LAST, BadPayload, RawRecord, UnknownType, decode_event, encode_event
from ebbtide.events.decisions import ActorFailed, PodEnded, ReleaseLock, ShutdownBegan
from ebbtide.events.facts import ContainerExited
from ebbtide.events.reader import History
from ebbtide.events.segment import LOGICS
from ebbtide.replay.divergence import Explanation, explain
from ebbtide.replay.redact import Pseudonyms, redact
from ebbtide.replay.replayer import (
    NO_BEGIN,
    Divergence,
    Replayer,
    checkpoints_alike,
    without_new_blank_actors,
)
from ebbtide.replay.verify import verify
from tests.journals import SHUTDOWN, VERSION, Memory, changed, history
from tests.replay import shutdown

BOOK = shutdown.write()
RECORDS = BOOK.records
RAWS = list(history(RECORDS).raw())


def seq_of(kind: type, at: int = 0) -> int:
    return [record.seq for record in RECORDS if isinstance(record.event, kind)][at]


def replaced(seq: int, **parts: Any) -> list[Record]:
    """The story with other parts of one record."""
    return [msgspec.structs.replace(record, **parts) if record.seq == seq else record for record in RECORDS]


def replayed(raws: list[RawRecord]) -> Divergence | None:
    replayer = Replayer()
    return replayer.feed(raws) or replayer.finish()


# --- the golden journal


def test_the_golden_journal_replays_to_the_same_bytes() -> None:
    """Two processes, a restart, and the next boot; after retention, from its second checkpoint."""
    raws, replayer = list(History([DirectorySource(SHUTDOWN)]).raw()), Replayer()
    assert replayer.feed(raws) is None
    assert replayer.finish() is None
    assert replayer.events == 99
    second = [raw.seq for raw in raws if raw.tag == "Checkpoint"][1]
    assert replayed([raw for raw in raws if raw.seq >= second]) is None


def test_the_golden_journal_can_be_made_again() -> None:
    """The story gives the same records today: format, encoding and logic are unchanged. A checkpoint of a
    version with a new actor or field has more, but agrees on the rest.
    """
    made = list(History([Memory(BOOK.files)]).raw())
    kept = list(History([DirectorySource(SHUTDOWN)]).raw())
    assert sorted(BOOK.files) == sorted(file.name for file in SHUTDOWN.iterdir())
    assert [envelope(raw) for raw in made] == [envelope(raw) for raw in kept]
    for ours, theirs in zip(made, kept, strict=True):
        if ours.tag == Checkpoint.__name__:
            mark = checkpoint_of(theirs)
            assert checkpoints_alike(mark, without_new_blank_actors(checkpoint_of(ours), mark)), ours.seq
        else:
            assert ours.payload == theirs.payload, ours.seq


def envelope(raw: RawRecord) -> RawRecord:
    return raw._replace(payload=b"", hash=b"")


def checkpoint_of(raw: RawRecord) -> Checkpoint:
    mark = decode_event(raw.tag, raw.payload)
    assert isinstance(mark, Checkpoint)
    return mark


def test_a_checkpoint_may_lack_an_actor_that_knows_nothing() -> None:
    """An older version lacked it; an actor with state must be there."""
    later = [raw for raw in RAWS if raw.tag == Checkpoint.__name__][1]
    mark, verdicts = checkpoint_of(later), {}
    for kept in mark.actors:
        less = msgspec.structs.replace(mark, actors=tuple(each for each in mark.actors if each is not kept))
        payload = encode_event(less)
        without = [raw._replace(payload=payload) if raw.seq == later.seq else raw for raw in RAWS]
        verdicts[kept.actor, kept.subject] = replayed(without) is None
    knows = {(kept.actor, kept.subject): bool(msgspec.msgpack.decode(kept.state)) for kept in mark.actors}
    assert verdicts == {who: not known for who, known in knows.items()}
    assert verdicts[KUBELET.name, ""]


# --- the envelope


HOUR_NS = 3600 * NS_PER_SECOND

#: A change of an envelope part, and the difference's name.
CHANGES: dict[str, tuple[str, Any]] = {
    "mono_ns": ("time", lambda raw: raw.mono_ns + 1),
    "wall_ns": ("time", lambda raw: raw.wall_ns - 1),
    "flags": ("last", lambda raw: raw.flags ^ FLAG_LAST),
    "episode": ("episode", lambda raw: raw.episode + 1),
    "cause": ("cause", lambda raw: raw.cause - 1),
    "actor": ("actor", lambda raw: f"{raw.actor}:1"),
    "tag": ("type", lambda raw: "Leave"),
}


@pytest.mark.parametrize("part", CHANGES)
def test_every_part_of_every_envelope(part: str) -> None:
    """The report names a decision's difference. A fact has no cause, an edge as source, and its step's
    shutdown and end mark; its type and times come from outside.
    """
    name, change = CHANGES[part]
    outside = part in ("mono_ns", "wall_ns", "tag")
    for at, raw in enumerate(RAWS):
        if raw.tag != Checkpoint.__name__ and (raw.cause or not outside):
            edited = raw._replace(**{part: change(raw if raw.cause else raw._replace(cause=2))})
            found = replayed([*RAWS[:at], edited, *RAWS[at + 1 :]])
            assert found is not None, raw
            assert (found.seq, found.field) == (raw.seq, name if raw.cause else found.field), raw


def test_a_release_an_hour_later_is_no_identical_journal() -> None:
    """Only that record was moved, with a rebuilt chain: the times reveal it."""
    release = next(record for record in RECORDS if isinstance(record.event, ReleaseLock))
    found = history(
        replaced(release.seq, mono_ns=release.mono_ns + HOUR_NS, wall_ns=release.wall_ns + HOUR_NS)
    )
    result = verify(found)
    assert not result.identical
    assert result.divergence is not None
    assert (result.divergence.seq, result.divergence.field) == (release.seq, "time")
    assert result.divergence.expected.mono_ns - result.divergence.produced.mono_ns == HOUR_NS
    told = explain(found, result.divergence, VERSION)
    assert [reason.name for reason in told.reasons] == ["edited"]


# --- what cannot be executed


class FromTheFuture(Fact):
    """An unregistered fact of a later version."""


def test_a_fact_of_another_version_ends_the_execution() -> None:
    """The part before is executed; the whole is not reported as identical."""
    seq = seq_of(ContainerExited)
    found = verify(history(replaced(seq, event=FromTheFuture())))
    assert isinstance(found.failure, UnknownType)
    assert (found.stopped_seq, found.divergence, found.identical) == (seq, None, False)
    assert found.verdict.state == "intact"


def test_a_fact_that_does_not_fit_its_type_ends_it_too() -> None:
    """An edited or malformed fact stops execution, and cannot be redacted."""
    edited = changed(RECORDS, seq_of(ContainerExited), exit_code="none")
    assert isinstance(verify(history(edited)).failure, BadPayload)
    with pytest.raises(BadPayload):
        redact(history(edited), Pseudonyms())


def test_a_journal_without_a_checkpoint_is_not_executed() -> None:
    """Without a checkpoint the logic's version is unknown: it is reported, not guessed."""
    system = shutdown.Book().system
    records = [record for ms, fact in shutdown.first_life() for record in system.step(fact, Stamp(ms, ms))]
    found = history(records)
    divergence = verify(found).divergence
    assert divergence is not None
    assert (divergence.seq, divergence.field) == (1, NO_BEGIN)
    assert explain(found, divergence, VERSION).reasons[0].name == "edited"
    going_on = Replayer(goes_on=True)
    assert going_on.feed(found.raw()) == divergence
    assert going_on.system.episode, "a daemon goes on with the facts all the same"


def test_a_payload_that_is_no_payload_is_shown_as_it_is() -> None:
    """Undecodable bytes are displayed as hexadecimal digits."""
    seq = seq_of(PodEnded)
    edited = [raw._replace(payload=b"\xc1") if raw.seq == seq else raw for raw in RAWS]
    found = Replayer().feed(edited)
    assert found is not None
    assert (found.field, found.expected.data) == ("data", "c1")


#: One batch and one shutdown's actors, for any length.
GROWTH_MIB_MAX = 1.0


def peak_mib(folder: Path, shutdowns: int) -> float:
    place = folder / str(shutdowns)
    place.mkdir()
    lay_out(place, 30, shutdowns)
    tracemalloc.start()
    try:
        assert verify(History([DirectorySource(place)], logics=LOGICS)).identical
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_a_longer_journal_needs_no_more_memory(tmp_path: Path) -> None:
    """Streaming: ten times the shutdowns, the same memory."""
    short = peak_mib(tmp_path, 4)
    assert peak_mib(tmp_path, 40) - short < GROWTH_MIB_MAX


# --- the report


def explained(found: History, version: str = VERSION) -> Explanation:
    divergence = verify(found).divergence
    assert divergence is not None
    return explain(found, divergence, version)


def names(found: Explanation) -> list[str]:
    return [reason.name for reason in found.reasons]


def test_an_edited_decision_is_told_apart_from_other_logic() -> None:
    """Later records follow from the produced one: the record was edited, or the code differs just there."""
    edited = history(changed(RECORDS, seq_of(PodEnded), reason="made up"))
    found = explained(edited)
    assert names(found) == ["edited"]
    assert names(explained(edited, "9.9")) == ["edited", "other-version"]
    (row,) = found.differences
    assert astuple(row) == ("reason", "made up", "exit code 0; preStop failed: exit code 3")


def test_an_edited_fact_is_found_at_its_first_consequence() -> None:
    """Later records follow from the original fact: the fact was edited, or the code."""
    seq = next(record.seq for record in RECORDS if getattr(record.event, "exit_code", None) == 143)
    found = explained(history(changed(RECORDS, seq, exit_code=9)))
    assert names(found) == ["fact-edited"]
    assert "ContainerExited" in found.reasons[0].sentence
    assert "0.1.0" in found.reasons[0].sentence


def test_another_version() -> None:
    """Other logic differs in several records; the report names the writer's version."""
    edited = changed(RECORDS, seq_of(ShutdownBegan), budget_ns=7)
    found = explained(history(changed(edited, seq_of(PodEnded), reason="made up"), version="0.0.9"))
    assert names(found) == ["other-version"]
    assert "version 0.0.9 wrote it and this is 0.1.0" in found.reasons[0].sentence


def test_a_failure_of_the_machine_of_then() -> None:
    """An actor that failed then and does not now."""
    seq = seq_of(PodEnded)
    failed = ActorFailed(actor="HookActor", subject="uid-web-0", error="MemoryError")
    assert names(explained(history(replaced(seq, event=failed))))[0] == "failure"


def test_a_digest_names_actor_and_field() -> None:
    """A different state shows in the wave's digest, with the actor's state in that step."""
    seq = seq_of(StatesDigest)
    digests = dict(RECORDS[seq - 1].event.actors)  # type: ignore[attr-defined]
    kept = digests["EpisodeActor"]
    digests["EpisodeActor"] = kept[:3] + bytes([kept[3] ^ 1]) + kept[4:]
    found = explained(history(changed(RECORDS, seq, actors=digests)))
    assert found.field == "EpisodeActor listing_key"
    assert found.actor == "EpisodeActor"
    assert found.state["phase"] == "waves"


def test_a_checkpoint_that_the_process_went_on_from() -> None:
    """It had read less than exists: the recorded state, and its difference to the history's."""
    seq = seq_of(Checkpoint, 2)
    mark = RECORDS[seq - 1].event
    actors = tuple(
        msgspec.structs.replace(
            kept, state=msgspec.Raw(msgspec.msgpack.encode({"phase": "idle", "plans": 7}))
        )
        if kept.actor == "EpisodeActor"
        else kept
        for kept in mark.actors  # type: ignore[attr-defined]
    )
    found = explained(history(changed(RECORDS, seq, actors=actors)))
    assert found.actor == "EpisodeActor"
    assert found.state == {"phase": "idle", "plans": 7}
    assert ("plans", 7, 1) in map(astuple, found.state_changes)
    assert names(found) == ["fact-edited"]


def test_the_last_records_of_a_step_taken_away() -> None:
    """The journal ends, marked complete, before its last fact's consequences."""
    last = RECORDS[-1]
    assert last.cause
    shorter = [*RECORDS[:-2], msgspec.structs.replace(RECORDS[-2], last=True)]
    found = explained(history(shorter))
    assert found.seq == last.seq
    assert names(found) == ["edited"]
    assert found.causes[-1].actor == "edge"
