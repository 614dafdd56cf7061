"""What must hold in any world: read, walked, and asked anywhere, a shutdown is the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay.library import simulate
from ebbtide.replay.states import states_at
from ebbtide.replay.step import Stepper
from ebbtide.replay.timeline import timeline
from tests.journals import write_files

#: With crashes, lost buses, cancels and late grants, as the seeds draw them.
SEEDS = range(300, 312)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reading_verbs_agree(seed: int, tmp_path: Path) -> None:
    """A walk sees the timeline's records, comes back through the same states, and `state` has those too."""
    write_files(tmp_path, simulate(seed, synthetic=5).files())
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
