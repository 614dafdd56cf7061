"""A seed is a journal, byte for byte: in another process, by another Python, on another day."""

from __future__ import annotations

import pytest

from ebbtide.actors.edges.linux.proc import PROCESS_STATES
from ebbtide.events.decisions import PROJECTION_VERSION, ShutdownBegan
from ebbtide.events.facts import AutopsyTaken
from ebbtide.events.reader import History
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.pythons import PYTHONS, ran
from tests.replay.sim.seeds import GOLDEN, digest, lines


def test_golden() -> None:
    """The promised seeds give the bytes that they gave when they were written down."""
    assert list(lines()) == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("hash_seed", ["1", "271828", "random"])
def test_every_python(python: str, hash_seed: str) -> None:
    """Processes of every Python that there is, under any hash seed, write the bytes that are promised."""
    assert ran(python, hash_seed, "tests.replay.sim.seeds") == GOLDEN.read_text()


def test_another_seed_is_another_run() -> None:
    """Ids, pods and times all come from the seed."""
    first, second = (simulate(SimulationRequest(), seed) for seed in (1, 2))
    assert digest(first) != digest(second)
    assert first.machine.journal.journal_id != second.machine.journal.journal_id
    assert first.machine.machine_id != second.machine.machine_id


def test_a_reader_finds_it_intact() -> None:
    """To every reader it is a genuine journal: intact, each shutdown told, two boots."""
    run = simulate(SimulationRequest(calm=True), 3)
    verdict = History([run.machine.journal.source()]).read()
    assert verdict.state == "intact"
    (account,) = run.shutdown_records()
    assert account.outcome == "complete"
    assert len(account.pods) >= 30
    assert account.node == "node-3"


def test_its_trace_is_named_as_a_daemons() -> None:
    """A simulated shutdown records the projection in force, and nothing of this machine's environment."""
    run = simulate(SimulationRequest(synthetic=3, calm=True), 3)
    events = (record.event for record in run.machine.journal.records)
    (began,) = (event for event in events if isinstance(event, ShutdownBegan))
    assert (began.projection_version, began.resource) == (PROJECTION_VERSION, {})


def test_its_processes_are_told_in_the_words_of_a_real_node() -> None:
    """A state is a word, as what reads /proc writes it, and no letter."""
    records = simulate(SimulationRequest(synthetic=30), 7).machine.journal.records
    taken = [record.event for record in records if isinstance(record.event, AutopsyTaken)]
    assert {process.state for each in taken for process in each.processes} == {PROCESS_STATES["S"]}
