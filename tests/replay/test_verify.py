"""What a verification says of a journal that it cannot execute in full, or is asked about in part."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from benchmarks.episodes import lay_out
from ebbtide.events.base import Checkpoint, Fact, Record, Stamp, StatesDigest
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


class FromTheFuture(Fact, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact that this version does not know, because it is not registered."""


def raws() -> list[RawRecord]:
    return list(history(RECORDS).raw())


def seq_of(kind: type, at: int = 0) -> int:
    return [record.seq for record in RECORDS if isinstance(record.event, kind)][at]


def spoilt(seq: int, event: msgspec.Struct) -> list[Record]:
    return [
        msgspec.structs.replace(record, event=event) if record.seq == seq else record for record in RECORDS
    ]


def test_a_fact_of_another_version_ends_the_execution() -> None:
    """What stands before it was executed; that the whole is identical is not said."""
    seq = seq_of(ContainerExited)
    found = verify(history(spoilt(seq, FromTheFuture())))
    assert isinstance(found.failure, UnknownType)
    assert (found.stopped_seq, found.divergence, found.identical) == (seq, None, False)
    assert found.verdict.state == "intact"


def test_a_fact_that_does_not_fit_its_type_ends_it_too() -> None:
    """It was edited, or miswritten; nothing is made of it, and it cannot be redacted either."""
    edited = changed(RECORDS, seq_of(ContainerExited), exit_code="none")
    assert isinstance(verify(history(edited)).failure, BadPayload)
    with pytest.raises(BadPayload):
        redact(history(edited), Pseudonyms())


def test_one_shutdown_of_a_journal() -> None:
    """Its events are counted, and a difference behind it is not held against it."""
    (number,) = {record.episode for record in RECORDS} - {0}
    found = verify(history(RECORDS), number)
    assert found.identical
    assert (found.episodes, found.events) == (1, [record.episode for record in RECORDS].count(number))
    later = changed(RECORDS, len(RECORDS), status_flush_ns=1)
    assert verify(history(later), number).divergence is None
    assert verify(history(changed(RECORDS, seq_of(PodEnded), reason="x")), number).divergence is not None


def test_a_journal_without_a_checkpoint_is_not_executed() -> None:
    """Nothing says under which logic its decisions were made: that is said, and nobody guesses."""
    system = shutdown.Book().system
    records = [record for ms, fact in shutdown.first_life() for record in system.step(fact, Stamp(ms, ms))]
    found = history(records)
    divergence = verify(found).divergence
    assert divergence is not None
    assert (divergence.seq, divergence.field) == (1, NO_BEGIN)
    assert explain(found, divergence, VERSION).reasons[0].name == "no-begin"
    going_on = Replayer(goes_on=True)
    assert going_on.feed(found.raw()) == divergence
    assert going_on.system.episode, "a daemon goes on with the facts all the same"


def test_a_payload_that_is_no_payload_is_shown_as_it_is() -> None:
    """Edited into something that cannot be decoded: its bytes, in hexadecimal digits."""
    seq = seq_of(PodEnded)
    edited = [raw._replace(payload=b"\xc1") if raw.seq == seq else raw for raw in raws()]
    found = Replayer().feed(edited)
    assert found is not None
    assert (found.field, found.expected.data) == ("data", "c1")


def test_a_digest_that_is_none() -> None:
    """Edited into another shape, the digest differs as such."""
    seq = seq_of(StatesDigest)
    payload = msgspec.msgpack.encode({"actors": 7})
    edited = [raw._replace(payload=payload) if raw.seq == seq else raw for raw in raws()]
    found = Replayer().feed(edited)
    assert found is not None
    assert found.field == "actors"


def test_a_checkpoint_with_fewer_actors_or_orders() -> None:
    """Each actor that is in both agrees: then it is their number, or the open orders."""
    mark = RECORDS[seq_of(Checkpoint, 1) - 1].event
    assert isinstance(mark, Checkpoint)
    fewer = history(changed(RECORDS, seq_of(Checkpoint, 1), actors=mark.actors[:-1]))
    divergence = verify(fewer).divergence
    assert divergence is not None
    assert divergence.field == "actors"
    orders = verify(history(changed(RECORDS, seq_of(Checkpoint, 1), open_orders=()))).divergence
    assert orders is not None
    assert orders.field == "open orders"
    assert explain(fewer, divergence, VERSION).actor == "journal"


def test_what_cannot_be_read_behind_a_difference_agrees_with_nothing() -> None:
    """That the rest follows from what is produced is only said of a rest that can be executed."""
    edited = changed(RECORDS, seq_of(PodEnded), reason="made up")
    last = seq_of(ContainerExited, -1)
    edited = [
        msgspec.structs.replace(record, event=FromTheFuture()) if record.seq == last else record
        for record in edited
    ]
    found = history(edited)
    divergence = verify(found).divergence
    assert divergence is not None
    assert "edited" not in [reason.name for reason in explain(found, divergence, VERSION).reasons]


#: Of one batch and one shutdown's actors; a journal of any length adds nothing.
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
    """It is streamed: ten times the shutdowns, the same memory at the most."""
    short = peak_mib(tmp_path, 4)
    assert peak_mib(tmp_path, 40) - short < GROWTH_MIB_MAX
