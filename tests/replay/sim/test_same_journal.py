"""A seed gives the same journal bytes in any process, Python and time."""

from __future__ import annotations

import pytest

from ebbtide.actors.edges.linux.proc import PROCESS_STATES
from ebbtide.events.facts import AutopsyTaken
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.pythons import PYTHONS, ran
from tests.replay.sim.seeds import GOLDEN, lines


def test_golden() -> None:
    """The promised seeds give the stored bytes."""
    assert list(lines()) == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("hash_seed", ["1", "271828", "random"])
def test_every_python(python: str, hash_seed: str) -> None:
    """Every installed Python, under any hash seed."""
    assert ran(python, hash_seed, "tests.replay.sim.seeds") == GOLDEN.read_text()


def test_its_processes_are_told_in_the_words_of_a_real_node() -> None:
    """Process states are words, as the /proc reader gives them."""
    records = simulate(SimulationRequest(synthetic=30), 7).machine.journal.records
    taken = [record.event for record in records if isinstance(record.event, AutopsyTaken)]
    assert {process.state for each in taken for process in each.processes} == {PROCESS_STATES["S"]}
