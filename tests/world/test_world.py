"""The world in CI: each point of a small shutdown, and half a minute of seeds.

A failure's first line is the command to repeat it.
"""

from __future__ import annotations

import pytest

from ebbtide import daemon
from ebbtide.actors import hook
from ebbtide.actors.system import LOOK_NS
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import Checkpoint
from ebbtide.events.decisions import Armed, EpisodeClosed
from ebbtide.events.reader import History
from tests.conftest import Sample
from tests.world.worlds import Name, Result, every_point, fewest, parts, run, scenario_of, try_out

#: About 35 ms each. More by hand: python -m tests.world --seeds 100000 --seconds 3600
SEEDS = 600
PARTS = 12
#: Sample stride. A write has a point before and after: an odd stride meets both.
ONE_OF = 15

#: A crash's extra time: the pause, the start, and a look.
CRASH_COSTS_NS = 100 * MS + 150 * MS + LOOK_NS


def _ended_ns(result: Result) -> int:
    """When the first boot's machine was down."""
    return next(seen.at_ns for seen in result.run.log.of("down"))


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int, sample: Sample) -> None:
    """Whatever the seed makes go wrong, every invariant holds."""
    for seed in sample(range(SEEDS), ONE_OF)[part::PARTS]:
        result = try_out(Name(seed))
        assert not result.breaches, str(result)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_daemon_may_die_at_every_point(part: int, sample: Sample) -> None:
    """After a kill at any point the daemon returns, and the shutdown takes no longer."""
    limit_ns = _ended_ns(try_out(Name())) + CRASH_COSTS_NS
    for name in sample(every_point(Name(), "crash-at"), ONE_OF)[part::PARTS]:
        result = try_out(name)
        assert not result.breaches, str(result)
        assert _ended_ns(result) <= limit_ns, (
            f"{result.name}: down at {_ended_ns(result)} ns, {limit_ns} allowed"
        )
        assert any(result.run.log.of("unlock")), f"{result.name}: the lock was never released"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_may_go_at_every_point(part: int, sample: Sample) -> None:
    """Whatever sectors survived, the next boot reads the journal and reports the progress."""
    for name in sample(every_point(Name(), "cut-at"), ONE_OF)[part::PARTS]:
        result = try_out(name)
        assert not result.breaches, str(result)


@pytest.mark.parametrize(
    "seed",
    [
        # Ordered in the step of its pod's end, executed after it; the next shutdown reports it again.
        125049878027,
        # The shutdown vanished with the journal: until logind answers, the daemon starts new pods.
        333282260056,
        # The first shutdown, without pods, is cancelled; in the second a process survives SIGKILL.
        333282266570,
        # The daemon dies before it records an unanswered stop, and the runtime still hangs.
        11812,
        # A daemon that returns at the end has no time for a stop signal: it records only SIGKILL.
        *(1451, 1902, 1909, 813382284941, 402714, 402942),
        # A pod that starts when a tiny grant's last SIGKILL is due is killed at once.
        330104706698,
        # A daemon that returns after a cancel gives its stops the floor; a late stop belongs to that
        # shutdown.
        *(784625856251, 813382285353),
        # A stopped daemon leaves during a hook and sends no stop.
        404200,
        # A full disk at the start: the daemon takes the shutdown for a new one.
        600355,
        # A wave began on a hung disk, and again after the daemon's death.
        42123,
    ],
)
def test_seeds_that_broke_once(seed: int) -> None:
    """Each with its difficulty."""
    result = try_out(Name(seed))
    assert not result.breaches, str(result)


@pytest.mark.parametrize(("seconds", "each"), [(0, True), (10**6, False)])
def test_a_segment_begins_once_a_shutdown_is_settled(
    seconds: int, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each close that opens no other one; not right after a new segment."""
    monkeypatch.setattr(daemon, "SETTLED_SEGMENT_SECONDS_MIN", seconds)
    begun = []
    for seed in range(12):
        result = try_out(Name(seed))
        assert not result.breaches, str(result)
        records = list(History([place.source for place in result.run.disks.places]).records())
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
    """The same events at the same nanoseconds, and the same journal bytes."""
    first, second = (try_out(Name(42)).run for _ in range(2))
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
    """The node rearms while its cancelled shutdown still ends pods: a collection would delay them."""
    frozen: list[None] = []
    monkeypatch.setattr(daemon, "freeze_what_stays", lambda: frozen.append(None))
    # Code changes a seed's story; a few of twenty are of this kind.
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
    """Without the 2 s between stop signal and SIGKILL, one pod and one shutdown remain."""
    monkeypatch.setattr(hook, "FLOOR_NS", 0)
    broken = next(
        result
        for result in map(try_out, map(Name, range(60)))
        if any(breach.invariant == "grace_is_kept" for breach in result.breaches)
    )
    least = fewest(broken)
    assert any(breach.invariant == "grace_is_kept" for breach in least.breaches)
    left = [part for part in parts(scenario_of(broken.name)[0]) if part not in least.name.without]
    assert [part.split(".")[0] for part in left] == ["boot", "pod"]
    assert f"--seed {broken.name.seed}" in str(least.name) or broken.name.seed == 0
    assert f" --without {' '.join(least.name.without)}" in str(least.name)
