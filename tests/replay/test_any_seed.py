"""Property: whatever is simulated, verifies; and no reader writes to the journal that it reads."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ebbtide.actors.actor import LOGIC_FLAGS
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay import library
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.states import states_at
from ebbtide.replay.step import Stepper
from ebbtide.replay.timeline import timeline
from ebbtide.replay.verify import verify
from tests.journals import Memory, write_files

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_simulate_then_verify_is_identical(part: int) -> None:
    """For any seed, with everything that may go wrong on a node."""
    for seed in range(1000 + part, 1080, PARTS):
        run = simulate(SimulationRequest(synthetic=seed % 40), seed)
        found = verify(History([Memory(run.files())], logic_flags=LOGIC_FLAGS))
        assert found.identical, f"seed {seed}: {found.divergence or found.verdict.banner}"
        assert found.events > 0


#: Of one batch and one shutdown's actors; a journal of any length adds nothing.
GROWTH_MIB_MAX = 1.0


def _peak_mib(folder: Path, shutdowns: int) -> float:
    from benchmarks.episodes import lay_out

    place = folder / str(shutdowns)
    place.mkdir()
    lay_out(place, 30, shutdowns)
    tracemalloc.start()
    try:
        assert verify(History([DirectorySource(place)], logic_flags=LOGIC_FLAGS)).identical
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_a_longer_journal_needs_no_more_memory(tmp_path: Path) -> None:
    """It is streamed: ten times the shutdowns, the same memory at the most."""
    short = _peak_mib(tmp_path, 4)
    assert _peak_mib(tmp_path, 40) - short < GROWTH_MIB_MAX


#: With crashes, lost buses, cancels and late grants, as the seeds draw them.
SEEDS = range(300, 312)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reading_verbs_agree(seed: int, tmp_path: Path) -> None:
    """A walk sees the timeline's records, comes back through the same states, and `state` has those too."""
    write_files(tmp_path, library.simulate(seed, synthetic=5).files())
    history = History([DirectorySource(tmp_path)])
    for episode in episodes(history):
        walk = Stepper(history, episode, kept_max=9)
        there = [(walk.here.line.seq, dict(walk.known))]
        while walk.next():
            there.append((walk.here.line.seq, dict(walk.known)))
        assert walk.divergence is None
        assert [seq for seq, _ in there] == [
            line.seq for line in timeline(history.batches(), episode.first_seq)
        ]
        back = [(walk.here.line.seq, dict(walk.known))]
        while walk.back():
            back.append((walk.here.line.seq, dict(walk.known)))
        assert back[::-1] == there
        for seq, known in there[::10]:
            found = states_at(history, seq)
            assert found is not None
            assert found.known == known
