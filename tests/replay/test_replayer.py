"""Replay: the golden journal follows from its facts, and each difference is found and named."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ebbtide.actors.kubelet import KUBELET
from ebbtide.events.base import Checkpoint
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import RawRecord, encode_event
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Divergence, Replayer
from tests.journals import SHUTDOWN, Memory
from tests.replay import shutdown
from tests.replay.again import checkpoint_of, made_again


def raws() -> list[RawRecord]:
    return list(History([DirectorySource(SHUTDOWN)]).raw())


def verify(records: Iterator[RawRecord] | list[RawRecord]) -> Divergence | None:
    replayer = Replayer()
    return replayer.feed(records) or replayer.finish()


def first(tag: str) -> RawRecord:
    return next(raw for raw in raws() if raw.tag == tag)


def test_the_golden_journal_replays_to_the_same_bytes() -> None:
    """Two processes, a restart, and the next boot."""
    replayer = Replayer()
    assert replayer.feed(raws()) is None
    assert replayer.finish() is None
    assert replayer.events == 99


def test_the_golden_journal_can_be_made_again() -> None:
    """The story gives the same records today: format, encoding and logic are unchanged."""
    made_again(shutdown.write().files, SHUTDOWN)


def test_a_checkpoint_may_lack_an_actor_that_knows_nothing() -> None:
    """An older version lacked it; an actor with state must be there."""
    records = list(History([Memory(shutdown.write().files)]).raw())
    later = [raw for raw in records if raw.tag == Checkpoint.__name__][1]
    mark, verdicts = checkpoint_of(later), {}
    for kept in mark.actors:
        less = msgspec.structs.replace(mark, actors=tuple(each for each in mark.actors if each is not kept))
        payload = encode_event(less)
        without = [raw._replace(payload=payload) if raw.seq == later.seq else raw for raw in records]
        verdicts[kept.actor, kept.subject] = verify(without) is None
    knows = {(kept.actor, kept.subject): bool(msgspec.msgpack.decode(kept.state)) for kept in mark.actors}
    assert verdicts == {who: not known for who, known in knows.items()}
    assert verdicts[KUBELET.name, ""]


def test_a_journal_without_its_beginning_replays_from_its_first_checkpoint() -> None:
    """After retention the rest verifies from its first checkpoint."""
    second = [raw.seq for raw in raws() if raw.tag == "Checkpoint"][1]
    assert verify([raw for raw in raws() if raw.seq >= second]) is None
