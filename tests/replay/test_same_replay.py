"""A replay gives the same bytes in any process: under any hash seed, and under any Python that there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.journals import write_files
from tests.pythons import PYTHONS, ran
from tests.replay.executed import digest

REPLAYS = 100
PROCESSES = 10
EACH = REPLAYS // PROCESSES


def executed(python: str, seed: str, journal: Path) -> list[str]:
    """One process's answers: the hash of everything that it produced, once for each time that it replays."""
    return ran(python, seed, "tests.replay.executed", journal, str(EACH)).split()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = simulate(SimulationRequest(synthetic=12), 1).files()
    return write_files(tmp_path_factory.mktemp("journal"), files)


@pytest.mark.proof
def test_a_hundred_replays(journal: Path) -> None:
    """Ten processes under random hash seeds, ten replays each: one and the same hash."""
    answers = [answer for _ in range(PROCESSES) for answer in executed(sys.executable, "random", journal)]
    assert answers == [digest(journal)] * REPLAYS


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python(python: str, journal: Path) -> None:
    """What an older or a newer Python produces is what this one does."""
    assert executed(python, "random", journal) == [digest(journal)] * EACH
