"""The border journal, and how many of the logic's comparisons the golden journals hold to what they say."""

from __future__ import annotations

import ast
import warnings
from functools import cache

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import StragglerEnded, WaveEnded, WaveStarted
from ebbtide.events.reader import History
from ebbtide.events.segment import LOGICS
from ebbtide.replay.verify import verify
from tests.conftest import Sample
from tests.replay import edges
from tests.replay.again import made_again
from tests.replay.mutants import ROOT, Mutant, journals, mutants, survives
from tests.replay.survivors import SURVIVORS

GOLDEN = ROOT / "tests" / "golden" / "edges-v1"
PARTS = 4
#: Sampled, one mutant of so many, and one of the listed survivors.
ONE_OF = 12

found = cache(journals)


def test_the_border_journal_replays() -> None:
    """All of its shutdowns, byte for byte."""
    result = verify(History([DirectorySource(GOLDEN)], logics=LOGICS))
    assert result.identical
    assert (result.episodes, result.events) == (16, 1866)


def test_the_border_journal_can_be_made_again() -> None:
    """The story that made it makes the same records today."""
    made_again(edges.write().files, GOLDEN)


def test_it_is_on_the_borders() -> None:
    """A wave of no time, and a straggler that is late by nothing."""
    records = list(History([DirectorySource(GOLDEN)]).records())
    assert any(isinstance(each.event, WaveStarted) and each.event.period_ns == 0 for each in records)
    assert any(isinstance(each.event, StragglerEnded) and each.event.late_ns == 0 for each in records)
    assert any(isinstance(each.event, WaveEnded) and each.event.outcome == "overran" for each in records)


def test_the_logic_as_it_is_survives() -> None:
    """Else every mutant would be killed, by whatever keeps the journals from being replayed at all."""
    mutant = next(mutants())
    compare = ast.parse(mutant.before, mode="eval").body
    assert isinstance(compare, ast.Compare)
    assert survives(mutant._replace(operator=type(compare.ops[mutant.operand])), found())


@pytest.mark.parametrize("part", range(PARTS))
def test_every_comparison_is_held_or_listed(part: int, sample: Sample) -> None:
    """Who lives on stands on a list with the reason; nobody else does."""
    mine = sample(list(mutants()), ONE_OF)[part::PARTS]
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # a fork where threads are
        left = [str(mutant) for mutant in mine if survives(mutant, found())]
    unlisted = [each for each in left if each not in SURVIVORS]
    assert not unlisted, f"no golden journal notices: {'; '.join(unlisted)}"


def test_nobody_is_listed_who_is_killed(sample: Sample) -> None:
    """What a journal has come to tell of is taken off the list, and what is not there any more."""
    by_name: dict[str, list[Mutant]] = {}
    for mutant in mutants():
        by_name.setdefault(str(mutant), []).append(mutant)
    gone = [name for name in SURVIVORS if name not in by_name]
    assert not gone, f"take off the list: {'; '.join(gone)}"
    listed = sample(SURVIVORS, ONE_OF)
    killed = [name for name in listed if not any(survives(each, found()) for each in by_name[name])]
    assert not killed, f"take off the list: {'; '.join(killed)}"
