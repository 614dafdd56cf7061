"""Journals of many nodes: each is there once, whatever its ID prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.cli.common.reading import JournalPool
from ebbtide.cli.common.saving import write_journal
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay import NoJournal
from ebbtide.replay import open as open_journal
from ebbtide.replay.advise import advise
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of

#: Seeds whose journal IDs, and so file names, share their first eight digits.
ALIKE = (70979, 110352)


def simulated(seed: int) -> Machine:
    return Machine(plan_of(SimulationRequest(synthetic=4, calm=True), seed)).run()


def fleet(folder: Path) -> list[Machine]:
    machines = [simulated(seed) for seed in ALIKE]
    for seed, machine in zip(ALIKE, machines, strict=True):
        write_journal(folder / f"node-{seed}", machine.journal.files())
    return machines


def test_no_node_vanishes(tmp_path: Path) -> None:
    """Two journals with a common ID prefix stay two, with all shutdowns, also for the advice."""
    machines = fleet(tmp_path)
    ids = [machine.journal.journal_id.hex() for machine in machines]
    assert ids[0][:8] == ids[1][:8]
    assert ids[0] != ids[1]
    pool = JournalPool([tmp_path])
    advice = advise(pool.shutdown_records())
    assert sorted(each.journal_id.hex() for each in pool.verdicts) == sorted(ids)
    assert (len(pool), pool.code, advice.nodes) == (2, 0, 2)
    histories = (History([machine.journal.source()]) for machine in machines)
    assert advice.shutdowns == sum(len(list(episodes(history))) for history in histories)


def test_what_begins_several_ids_names_none(tmp_path: Path) -> None:
    """The library refuses an ambiguous prefix."""
    machines = fleet(tmp_path)
    places = [tmp_path / f"node-{seed}" for seed in ALIKE]
    whole = machines[0].journal.journal_id.hex()
    with pytest.raises(NoJournal, match=f"several journals begin with {whole[:8]}: "):
        open_journal(places, whole[:8])
    assert open_journal(places, whole).id == whole
