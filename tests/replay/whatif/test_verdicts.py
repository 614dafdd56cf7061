"""A sample of the proof (`tests.replay.whatif.truth`), and the configuration in force."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ebbtide.events.record.episodes import episodes
from ebbtide.replay.whatif.record import Changes, read_recorded_shutdown
from ebbtide.replay.whatif.verdicts import Curves
from ebbtide.replay.whatif.whatif_run import run_again
from tests.replay.whatif.bed import behaves, pod, record, settings, side
from tests.replay.whatif.truth import MODES, POPULATIONS, night, plan_of, tally

#: For each population in each mode; the proof has more.
SEEDS = len(POPULATIONS)


@pytest.mark.parametrize("mode", MODES)
def test_no_certain_verdict_is_false(mode: str) -> None:
    """With misfortunes, in five populations. These seeds have no exception."""
    found = tally([mode], range(20, 20 + SEEDS))
    assert not found.wrong
    assert found.of("same").all > 40


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed, population", list(enumerate(POPULATIONS)))
def test_the_configuration_in_force_changes_nothing(mode: str, seed: int, population: str) -> None:
    """A file has no projection version: the daemon sets it."""
    then = night(plan_of(seed, MODES[mode], population))
    for each in episodes(then.history):
        shutdown = read_recorded_shutdown(then.history, each.first_seq)
        in_force = replace(shutdown.settings, projection_version=1)
        found = run_again(shutdown, Changes(settings=in_force))
        assert found.is_same
        assert all(side.change == "same" for side in found.pods)


def test_a_chance_follows_the_stops_on_record() -> None:
    """Where others of the workload ended after the time that a killed pod had, it may do so too."""
    known = record([behaves(pod("slow-0"), None)])
    longer = settings(low=40)
    others = [*range(22, 38, 2)]
    nights = [record([behaves(pod("slow-0"), each)], longer).account for each in others]
    stuck = [record([behaves(pod("slow-0"), None)], longer).account for _ in others]
    alone, likely, hardly = (
        side(run_again(known.shutdown, Changes(settings=longer), Curves(on_record)), "slow-0").chance_percent
        for on_record in ((), nights, stuck)
    )
    assert alone is not None
    assert likely is not None
    assert hardly is not None
    assert hardly < alone < likely
