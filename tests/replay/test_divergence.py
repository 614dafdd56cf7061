"""A divergence report: both sides, causes, state, and the likely reason."""

from __future__ import annotations

import msgspec
from msgspec.structs import astuple

from ebbtide.events.base import Checkpoint, Record, StatesDigest
from ebbtide.events.decisions import ActorFailed, PodEnded, ShutdownBegan
from ebbtide.events.reader import History
from ebbtide.replay.divergence import Explanation, explain
from ebbtide.replay.verify import verify
from tests.journals import VERSION, changed, history
from tests.replay import shutdown

RECORDS = shutdown.write().records


def seq_of(kind: type, at: int = 0) -> int:
    return [record.seq for record in RECORDS if isinstance(record.event, kind)][at]


def explained(found: History, version: str = VERSION) -> Explanation:
    divergence = verify(found).divergence
    assert divergence is not None
    return explain(found, divergence, version)


def names(found: Explanation) -> list[str]:
    return [reason.name for reason in found.reasons]


def replaced(seq: int, event: msgspec.Struct) -> list[Record]:
    return [
        msgspec.structs.replace(record, event=event) if record.seq == seq else record for record in RECORDS
    ]


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
    assert names(explained(history(replaced(seq, failed))))[0] == "failure"


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
