"""The border journal replays, can be remade, and is on the borders."""

from __future__ import annotations

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import StragglerEnded, WaveEnded, WaveStarted
from ebbtide.events.reader import History
from ebbtide.events.segment import LOGICS
from ebbtide.replay.verify import verify
from tests.journals import GOLDEN as GOLDENS
from tests.replay import edges
from tests.replay.again import made_again

GOLDEN = GOLDENS / "edges-v1"


def test_the_border_journal_replays() -> None:
    """All of its shutdowns, byte for byte."""
    result = verify(History([DirectorySource(GOLDEN)], logics=LOGICS))
    assert result.identical
    assert (result.episodes, result.events) == (16, 1861)


def test_the_border_journal_can_be_made_again() -> None:
    """The story gives the same records today."""
    made_again(edges.write().files, GOLDEN)


def test_it_is_on_the_borders() -> None:
    """A wave of no time, and a straggler late by nothing."""
    records = list(History([DirectorySource(GOLDEN)]).records())
    assert any(isinstance(each.event, WaveStarted) and each.event.period_ns == 0 for each in records)
    assert any(isinstance(each.event, StragglerEnded) and each.event.late_ns == 0 for each in records)
    assert any(isinstance(each.event, WaveEnded) and each.event.outcome == "overran" for each in records)
