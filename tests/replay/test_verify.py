"""Verification of a journal that cannot be executed fully, or of a part."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from benchmarks.episodes import lay_out
from ebbtide.events.base import Fact, Record, Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType
from ebbtide.events.decisions import PodEnded
from ebbtide.events.facts import ContainerExited
from ebbtide.events.reader import History
from ebbtide.events.segment import LOGICS
from ebbtide.replay.divergence import explain
from ebbtide.replay.redact import Pseudonyms, redact
from ebbtide.replay.replayer import NO_BEGIN, Replayer
from ebbtide.replay.verify import verify
from tests.journals import VERSION, changed, history
from tests.replay import shutdown

RECORDS = shutdown.write().records


class FromTheFuture(Fact):
    """An unregistered fact of a later version."""


def raws() -> list[RawRecord]:
    return list(history(RECORDS).raw())


def seq_of(kind: type, at: int = 0) -> int:
    return [record.seq for record in RECORDS if isinstance(record.event, kind)][at]


def spoilt(seq: int, event: msgspec.Struct) -> list[Record]:
    return [
        msgspec.structs.replace(record, event=event) if record.seq == seq else record for record in RECORDS
    ]


def test_a_fact_of_another_version_ends_the_execution() -> None:
    """The part before is executed; the whole is not reported as identical."""
    seq = seq_of(ContainerExited)
    found = verify(history(spoilt(seq, FromTheFuture())))
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
    edited = [raw._replace(payload=b"\xc1") if raw.seq == seq else raw for raw in raws()]
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
