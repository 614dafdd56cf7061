"""Re-execution: the golden journal is what its facts lead to, and every difference is found and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.actor import LOGIC_FLAGS, STATES_DIGEST
from ebbtide.actors.kubelet import KUBELET
from ebbtide.events.base import Checkpoint
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import RawRecord, encode_event
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Divergence, Replayer
from tests.journals import SHUTDOWN, Memory
from tests.replay import shutdown
from tests.replay.again import checkpoint_of, made_again

#: The journals of every set of logic flags that was in force in a release, and how many records each has; the
#: last is of those that the next release brings, and is made anew until then.
GOLDENS = {
    SHUTDOWN: ((), 96),
    SHUTDOWN.with_name("shutdown-v1-states-digest"): ((STATES_DIGEST,), 99),
    SHUTDOWN.with_name("shutdown-v1-unreleased"): (LOGIC_FLAGS, 99),
}
GOLDEN = SHUTDOWN.with_name("shutdown-v1-states-digest")


def raws(folder: Path = GOLDEN) -> list[RawRecord]:
    return list(History([DirectorySource(folder)]).raw())


def verify(records: Iterator[RawRecord] | list[RawRecord]) -> Divergence | None:
    replayer = Replayer()
    return replayer.feed(records) or replayer.finish()


def first(tag: str) -> RawRecord:
    return next(raw for raw in raws() if raw.tag == tag)


@pytest.mark.parametrize("folder", GOLDENS, ids=lambda folder: folder.name)
def test_a_golden_journal_replays_to_the_same_bytes(folder: Path) -> None:
    """Two processes, a restart in the middle, and the next boot; an older journal under its own flags."""
    replayer = Replayer()
    assert replayer.feed(raws(folder)) is None
    assert replayer.finish() is None
    assert (replayer.system.flags, replayer.events) == GOLDENS[folder]


@pytest.mark.parametrize("folder", GOLDENS, ids=lambda folder: folder.name)
def test_a_golden_journal_can_be_made_again(folder: Path) -> None:
    """The story that made it makes the same records today: format, encoding and logic are as they were.

    But for the checkpoints, which have an actor more than they had: each says what the old one said.
    """
    made_again(shutdown.write(GOLDENS[folder][0]).files, folder)


def test_a_checkpoint_may_lack_an_actor_that_knows_nothing() -> None:
    """Another version did not have it yet; one that knows something cannot be left out."""
    records = list(History([Memory(shutdown.write(LOGIC_FLAGS).files)]).raw())
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


def test_there_is_a_golden_journal_of_todays_logic() -> None:
    """Whoever adds a logic flag adds the journal that proves it, and leaves the others as they are."""
    assert LOGIC_FLAGS in [flags for flags, _ in GOLDENS.values()]


def test_a_journal_without_its_beginning_replays_from_its_first_checkpoint() -> None:
    """Retention removes the oldest segments; what is left is verified from its first checkpoint."""
    second = [raw.seq for raw in raws() if raw.tag == "Checkpoint"][1]
    assert verify([raw for raw in raws() if raw.seq >= second]) is None
