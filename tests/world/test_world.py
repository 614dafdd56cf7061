"""The world in CI: the points of one small shutdown, and as many seeds as half a minute allows.

A failure names its world: the first line of the message is the command that runs it again.
"""

from __future__ import annotations

import pytest

from ebbtide import daemon
from ebbtide.actors import container
from ebbtide.actors.system import LOOK_NS
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import Checkpoint
from ebbtide.events.decisions import Armed, EpisodeClosed
from ebbtide.events.reader import History
from tests.conftest import Sample
from tests.world.runs import run
from tests.world.worlds import (
    Name,
    Result,
    every_point,
    parts,
    scenario_of,
    shrink,
    try_out,
)

#: About 35 ms each. More by hand: python -m tests.world --seeds 100000 --seconds 3600
SEEDS = 600
PARTS = 12
#: Sampled, one seed and one point of so many. A write is a point before it and one after it: with an odd
#: number both are met.
ONE_OF = 15

#: What a crash may add to the small shutdown: the pause, the start itself, and a look at what fell due.
CRASH_COSTS_NS = 100 * MS + 150 * MS + LOOK_NS


def _ended_ns(result: Result) -> int:
    """When the first boot's machine was down."""
    return next(seen.at_ns for seen in result.world.log.of("down"))


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int, sample: Sample) -> None:
    """Whatever the seed makes go wrong, every invariant holds."""
    for seed in sample(range(SEEDS), ONE_OF)[part::PARTS]:
        result = try_out(Name(seed))
        assert not result.breaches, str(result)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_daemon_may_die_at_every_point(part: int, sample: Sample) -> None:
    """Killed at any await, write or touch, the daemon comes back, and the shutdown takes no longer for it."""
    limit_ns = _ended_ns(try_out(Name())) + CRASH_COSTS_NS
    for name in sample(every_point(Name(), "crash-at"), ONE_OF)[part::PARTS]:
        result = try_out(name)
        assert not result.breaches, str(result)
        assert _ended_ns(result) <= limit_ns, (
            f"{result.name}: down at {_ended_ns(result)} ns, {limit_ns} allowed"
        )
        assert any(result.world.log.of("unlock")), f"{result.name}: the lock was never released"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_may_go_at_every_point(part: int, sample: Sample) -> None:
    """Whatever sectors had reached the disk, the next boot reads its journal and says how far it came."""
    for name in sample(every_point(Name(), "cut-at"), ONE_OF)[part::PARTS]:
        result = try_out(name)
        assert not result.breaches, str(result)


@pytest.mark.parametrize(
    "seed",
    [
        # Ordered in the step that says its pod's end, carried out after it; the next shutdown tells it again.
        125049878027,
        # A shutdown that went with the journal: until the daemon has asked logind it starts what appears.
        333282260056,
        # Nothing ran in the first shutdown, which was called off; in the second a process outlives SIGKILL.
        333282266570,
        # The daemon dies before it has written that nobody answered a stop, and the runtime hangs still.
        11812,
        # A daemon that comes back at the end has no time left in which anybody could obey a stop signal, and
        # says so by SIGKILL alone.
        *(1451, 1902, 1909, 813382284941, 402714, 402942),
        # A pod that is started when the last SIGKILL of a tiny grant is due is killed at once.
        330104706698,
        # What a daemon that comes back after a cancel stops then has the floor; and what it stops late is
        # stopped for that shutdown.
        *(784625856251, 813382285353),
        # A daemon that somebody stops leaves while a hook runs, and tells nobody to stop.
        404200,
        # The disk is full at its start: it takes the shutdown that it finds for one that has just begun.
        600355,
        # A wave began while the disk hung, and once more after the daemon's death.
        42123,
    ],
)
def test_seeds_that_broke_once(seed: int) -> None:
    """Each with what made it hard."""
    result = try_out(Name(seed))
    assert not result.breaches, str(result)


@pytest.mark.parametrize(("seconds", "each"), [(0, True), (10**6, False)])
def test_a_segment_begins_once_a_shutdown_is_settled(
    seconds: int, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind every close that opens no other one; where the last segment is of just now, not for each."""
    monkeypatch.setattr(daemon, "SETTLED_SEGMENT_SECONDS_MIN", seconds)
    begun = []
    for seed in range(12):
        result = try_out(Name(seed))
        assert not result.breaches, str(result)
        records = list(History([place.source for place in result.world.disks.places]).records())
        closed = False
        for at, record in enumerate(records[:-1]):
            closed |= isinstance(record.event, EpisodeClosed)
            if closed and record.last:
                closed = False
                following = records[at + 1]
                if not following.episode:
                    begun.append(isinstance(following.event, Checkpoint))
    assert len(begun) > 5
    assert all(begun) is each


def test_a_seed_is_a_world() -> None:
    """The same seed gives the same happenings at the same nanoseconds, and the same bytes of journal."""
    first, second = (try_out(Name(42)).world for _ in range(2))
    assert first.log.seen == second.log.seen
    assert first.points == second.points
    files = [
        [
            (file.name, place.read(file.name, 0, file.size))
            for place in world.disks.places
            for file in place.files()
        ]
        for world in (first, second)
    ]
    assert files[0] == files[1]


def test_nothing_is_frozen_in_a_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is armed again while its cancelled shutdown still ends pods: a collection would hold them up."""
    frozen: list[None] = []
    monkeypatch.setattr(daemon, "freeze_what_stays", lambda: frozen.append(None))
    # Which story a seed tells changes with the code; a few of twenty are of this kind.
    for seed in range(60):
        frozen.clear()
        world = run(*scenario_of(Name(seed=seed)))
        records = {record.seq: record for boot in world.boots for record in boot.records}
        episodes = [record.episode for record in records.values() if isinstance(record.event, Armed)]
        if any(episodes):
            assert len(frozen) == episodes.count(0), f"seed {seed}"
            return
    pytest.fail("of 60 seeds none arms a node in a shutdown")


def test_a_breach_shrinks_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that forgets the 2 s between stop signal and SIGKILL: one pod and one shutdown show it."""
    monkeypatch.setattr(container, "FLOOR_NS", 0)
    broken = next(
        result
        for result in map(try_out, map(Name, range(60)))
        if any(breach.invariant == "grace_is_kept" for breach in result.breaches)
    )
    least = shrink(broken)
    assert any(breach.invariant == "grace_is_kept" for breach in least.breaches)
    left = [part for part in parts(scenario_of(broken.name)[0]) if part not in least.name.without]
    assert [part.split(".")[0] for part in left] == ["boot", "pod"]
    assert f"--seed {broken.name.seed}" in str(least.name) or broken.name.seed == 0
    assert f" --without {' '.join(least.name.without)}" in str(least.name)
