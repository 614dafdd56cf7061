"""Any seed holds every invariant, and the invariants detect violations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import force_setattr, replace

from ebbtide.actors import hook
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import PodEnded, PodPlanned, PodStopBegan, ReleaseLock, WaveStarted
from ebbtide.replay.sim import simulate as checking
from ebbtide.replay.sim.invariants import breaches
from ebbtide.replay.sim.scenario import DEFAULT_SETTINGS, NodeMode
from ebbtide.replay.sim.sim_node import Happening
from ebbtide.replay.sim.simulate import Machine, Simulated, SimulationRequest, check_run, plan_of, simulate
from tests.conftest import Sample

#: About 12 ms each. By hand: ebbtide simulate --seeds 0..99999
SEEDS, PARTS = 600, 6
#: The sample's stride; coprime to the 40 sizes, so that each comes.
ONE_OF = 7

#: Empty: mode process.
MODES: tuple[NodeMode, ...] = ("", "cri", "api", "observe", "auto")


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int, sample: Sample) -> None:
    """Every invariant holds and the journal replays to the byte."""
    for seed in sample(range(SEEDS), ONE_OF)[part::PARTS]:
        run = simulate(SimulationRequest(synthetic=4 + seed % 40), seed)
        assert not run.breaches, f"ebbtide simulate --synthetic {4 + seed % 40} --seed {seed}: {run.breaches}"


@settings(max_examples=40, deadline=None)
@given(seed=some.integers(0, 2**63 - 1), pods=some.integers(0, 25))
def test_any_seed(seed: int, pods: int) -> None:
    assert simulate(SimulationRequest(synthetic=pods), seed).breaches == []


@pytest.mark.parametrize("reserve_seconds", [0, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_no_pod_has_less_than_its_plan(mode: NodeMode, reserve_seconds: int) -> None:
    """With any reserve, when nothing fails; `grace_is_kept` checks the time that it then has."""
    settings = replace(DEFAULT_SETTINGS, reserve_seconds=reserve_seconds)
    for seed in range(16, 22):
        wanted = SimulationRequest(settings=settings, synthetic=8, calm=True, mode=mode)
        run, planned = simulate(wanted, seed), dict[str, int]()
        assert not run.breaches
        for event in (record.event for record in run.machine.journal.records):
            if isinstance(event, PodPlanned):
                planned[event.pod.uid] = event.grace_seconds
            elif isinstance(event, PodStopBegan):
                assert event.grace_ns >= planned[event.uid] * NS_PER_SECOND


def test_a_stop_that_the_next_daemon_sends_again() -> None:
    """A runtime that needs two seconds: SIGKILL is due when the stop arrives."""
    assert simulate(SimulationRequest(synthetic=4), 17561).breaches == []


# --- teeth


def calm_run() -> Machine:
    """A calm run with hooks and one killed pod."""
    machine = Machine(plan_of(SimulationRequest(calm=True, synthetic=40), 5)).run()
    assert check_run(machine) == []
    assert {"hook", "kill", "release"} <= {seen.what for seen in machine.log.seen}
    return machine


def broken(machine: Machine) -> set[str]:
    return {breach.invariant for breach in breaches(checking.boot_views(machine))}


def at(machine: Machine, what: str) -> int:
    return next(index for index, seen in enumerate(machine.log.seen) if seen.what == what)


def hook_twice(machine: Machine) -> None:
    seen = machine.log.seen
    seen.insert(at(machine, "hook") + 1, seen[at(machine, "hook")])


def stop_twice(machine: Machine) -> None:
    seen = machine.log.seen
    seen.insert(at(machine, "signal") + 1, seen[at(machine, "signal")])


def killed_early(machine: Machine) -> None:
    index = at(machine, "kill")
    seen = machine.log.seen
    seen[index] = seen[index]._replace(at_ns=seen[index].at_ns - 2 * NS_PER_SECOND)


def killed_untold(machine: Machine) -> None:
    """A killed pod without a stop signal."""
    killed = machine.log.seen[at(machine, "kill")].uid
    machine.log.seen[:] = [each for each in machine.log.seen if (each.what, each.uid) != ("signal", killed)]


def never_told(machine: Machine) -> None:
    """The last pod runs to the end without a stop."""
    last = [seen for seen in machine.log.seen if seen.what == "signal"][-1]

    def theirs(seen: Happening) -> bool:
        return seen.uid == last.uid and seen.what in ("signal", "exit", "hook")

    machine.log.seen[:] = [seen for seen in machine.log.seen if not theirs(seen)]


def limit_reached(machine: Machine) -> None:
    seen = machine.log.seen
    seen.insert(at(machine, "kill"), seen[at(machine, "kill")]._replace(what="limit", detail="1", uid=""))


def wave_too_soon(machine: Machine) -> None:
    """A later wave's pod is stopped before an earlier wave ended."""
    seen = machine.log.seen
    signals = [index for index, each in enumerate(seen) if each.what == "signal"]
    accounts = Simulated(0, machine, []).shutdown_records()
    uids = {wave.index: wave.pods for account in accounts for wave in account.waves}
    first_uid = next(uid for uid in (seen[index].uid for index in signals) if uid in uids[0])
    exit_at = next(i for i, each in enumerate(seen) if each.what == "exit" and each.uid == first_uid)
    last = seen[signals[-1]]
    late = seen[exit_at]._replace(at_ns=last.at_ns + NS_PER_SECOND)
    seen[exit_at] = late
    # Waves with all the time in the world.
    for booted in machine.boots:
        for record in booted.records:
            if isinstance(record.event, WaveStarted):
                force_setattr(record.event, "deadline_ns", 1 << 60)


def no_fate(machine: Machine) -> None:
    """A planned pod without a recorded end."""
    for index, booted in enumerate(machine.boots):
        first = next((each for each in booted.records if isinstance(each.event, PodEnded)), None)
        kept = [each for each in booted.records if each is not first]
        machine.boots[index] = booted._replace(records=kept)


def forgotten_release(machine: Machine) -> None:
    """The journal lacks the release."""
    for index, booted in enumerate(machine.boots):
        kept = [each for each in booted.records if not isinstance(each.event, ReleaseLock)]
        machine.boots[index] = booted._replace(records=kept)


def ended_long_before(machine: Machine) -> None:
    """All pods had ended at the signal."""
    signal_ns = machine.log.seen[at(machine, "shutdown")].at_ns
    machine.log.seen[:] = [
        each._replace(at_ns=signal_ns) if each.what == "exit" else each
        for each in machine.log.seen
        if each.what != "appeared"
    ]


def never_released(machine: Machine) -> None:
    ended_long_before(machine)
    del machine.log.seen[at(machine, "release")]


TEETH: dict[str, tuple[Callable[[Machine], None], str]] = {
    "a hook that ran twice": (hook_twice, "no_hook_twice"),
    "a stop signal sent twice": (stop_twice, "no_stop_twice"),
    "a SIGKILL before its time": (killed_early, "grace_is_kept"),
    "a SIGKILL without a word": (killed_untold, "a_stop_signal_precedes_sigkill"),
    "a pod that was never told": (never_told, "every_pod_is_signalled"),
    "logind's limit": (limit_reached, "the_grant_is_enough"),
    "a wave that did not wait": (wave_too_soon, "waves_keep_their_order"),
    "a pod without a fate": (no_fate, "each_pod_ends_once"),
    "no release": (never_released, "the_lock_is_released_at_once"),
    "a late release": (ended_long_before, "the_lock_is_released_at_once"),
    "a release that nobody remembers": (forgotten_release, "a_release_is_remembered"),
}


@pytest.mark.parametrize("name", TEETH)
def test_the_invariants_see(name: str) -> None:
    tamper, invariant = TEETH[name]
    machine = calm_run()
    tamper(machine)
    assert invariant in broken(machine)


def test_a_flipped_bit_is_seen() -> None:
    """An unreadable or differently replaying journal is a breach."""
    machine = calm_run()
    parts = next(iter(machine.journal._parts.values()))
    spoiled = bytearray(parts[-1])
    spoiled[len(spoiled) // 2] ^= 1
    parts[-1] = bytes(spoiled)
    assert [breach.invariant for breach in check_run(machine)] == ["the_journal_is_sound"]


def test_broken_logic_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed finds a daemon without the 2 s between stop signal and SIGKILL."""
    monkeypatch.setattr(hook, "FLOOR_NS", 0)
    found = {
        breach.invariant
        for seed in range(60)
        for breach in simulate(SimulationRequest(synthetic=12), seed).breaches
    }
    assert "grace_is_kept" in found
