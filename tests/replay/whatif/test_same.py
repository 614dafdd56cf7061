"""Without a change the new run equals the record, event by event, in time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes, shutdown_records
from ebbtide.events.record.shutdown_record import PodRecord
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.whatif.record import Changes
from ebbtide.replay.whatif.whatif_run import what_if
from tests.conftest import Sample
from tests.replay.sim.nodes import MODES
from tests.replay.whatif.bed import drawn, recorded
from tests.world.worlds import Name, try_out

SEEDS, SEEDS_A_TEST = 112, 16
WORLDS = 60
#: One seed and one world of so many.
ONE_OF = 3


@pytest.fixture
def seeds(first: int, sample: Sample) -> Sequence[int]:
    return sample(range(first, first + SEEDS_A_TEST), ONE_OF)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_a_simulated_shutdown_is_the_same_again(seeds: Sequence[int]) -> None:
    """With restarts, power cuts, cancels and refusals: both runs equal the record."""
    for seed in seeds:
        found = recorded(drawn(seed)).ask()
        assert found.is_same, f"seed {seed}"
        assert found.best == found.then, f"seed {seed}"


def fate(line: PodRecord) -> tuple[PodOutcome | None, int | None]:
    """As in an account: a spared or surviving pod has no end."""
    return line.outcome, None if line.outcome in ("spared", "failed", "unknown") else line.ended_ns


@pytest.mark.parametrize("mode", ["", *MODES])
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_what_was_is_what_the_account_says(seeds: Sequence[int], mode: NodeMode) -> None:
    """Each shutdown's outcome, end and pods; also when one signal ends one and opens the next, a container
    is started again, the runtime does not answer, or the kubelet ends the pods.
    """
    for seed in seeds:
        source = simulate(SimulationRequest(synthetic=10, mode=mode), seed).machine.journal.source
        for account in shutdown_records(History([source()]), boot_id="another"):
            found = what_if(History([source()]), account.first_seq, Changes())
            then, where = found.then, f"seed {seed}, {account.id}"
            assert (then.outcome, then.total_ns) == (account.outcome, account.ended_ns), where
            told = {pod.uid: (pod.outcome, pod.ended_ns) for pod in account.pods}
            known = {uid: fate(line) for uid, line in then.pods.items() if line.outcome is not None}
            assert known.items() <= told.items(), where
            assert found.is_same, where
            assert not any(code == "order" for code, _ in found.assumptions), where
            assert found.best == found.worst == then, where
            assert found.total == (then.total_ns, then.total_ns), where


def test_what_the_real_daemon_recorded_is_the_same_again(sample: Sample) -> None:
    """The daemon under Trio, with failing disks and nodes."""
    told = 0
    for seed in sample(range(WORLDS), ONE_OF):
        world = try_out(Name(seed)).run
        sources = [place.source for place in world.disks.places]
        there = {raw.seq for raw in History(sources).raw()}
        # A disk may have lost the start that its checkpoint remembers.
        for episode in (each for each in episodes(History(sources)) if each.first_seq in there):
            assert what_if(History(sources), episode.first_seq, Changes()).is_same, f"{Name(seed)}"
            told += 1
    assert told
