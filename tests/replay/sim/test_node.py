"""A simulated Kubernetes node: modes, faults, and invariants of all seeds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import InventoryTaken, OrderEnded
from ebbtide.replay.sim.scenario import NodeMode, PodPlan
from ebbtide.replay.sim.sim_node import KUBELET, NOT_LISTED_YET, Happening
from tests.replay.sim.nodes import MODES, Name, try_out
from tests.replay.sim.test_faults import Run


def of(plan: PodPlan, **changes: Any) -> PodPlan:
    return plan._replace(pod=replace(plan.pod, **changes))


def seen(run: Run, *whats: str) -> list[Happening]:
    return list(run.machine.log.of(*whats))


@pytest.mark.parametrize(("hangs_ms", "source"), [(None, "simulated"), (-5000, "table")])
def test_a_runtime_that_is_not_asked(hangs_ms: int | None, source: str) -> None:
    """Pods ended before the kubelet: only a look shows its restarts."""
    hangs_ns = None if hangs_ms is None else hangs_ms * MS
    run = Run(kind="reboot", mode="cri", kubelet="slow", runtime_hangs_after_ns=hangs_ns)
    assert set(run.fates.values()) == {"graceful"}
    assert [event.source for event in run.events(InventoryTaken)] == ["simulated", source, source]
    safe = source == "simulated"
    assert [(event.safe, event.restarts) for event in run.events(decisions.DetachCertified)] == [
        (safe, not safe)
    ]


@pytest.mark.parametrize(("hangs_ms", "over_ms"), [(-200, 1000), (-2500, 500), (500, 3500)])
def test_a_hung_runtime_in_mode_api(hangs_ms: int, over_ms: int) -> None:
    """If it hung before the signal, the kubelet's pods are taken over within a second."""
    run = Run(kind="poweroff", mode="api", runtime_hangs_after_ns=hangs_ms * MS)
    over_ns = run.account.by.handed_over_ns
    assert over_ns is not None
    assert over_ms * MS <= over_ns <= (over_ms + 100) * MS
    assert set(run.fates.values()) == {"graceful"}


def test_deletes_that_nobody_answers() -> None:
    """A slow server may have carried out an unanswered delete: the hook does not run again."""
    ways: dict[tuple[str, bool], int] = {}
    for seed in range(12):
        run = Run(seed=seed, kind="poweroff", mode="api", api_takes_ns=3 * NS_PER_SECOND)
        results = {event.key: event.result for event in run.events(OrderEnded)}
        taken = {each.uid: None for each in seen(run, "delete")}
        hooks = {each.uid: None for each in seen(run, "hook") if each.life != KUBELET}
        for order in run.events(decisions.DeletePod):
            way = results[order.key], order.uid in taken
            ways[way] = ways.get(way, 0) + 1
            assert way[0] == "failed" or order.uid not in hooks
    assert sorted(ways) == [("failed", False), ("timed-out", False), ("timed-out", True)]


# --- what hangs


@pytest.mark.parametrize(("list_ms", "known"), [(900, True), (3500, False)])
def test_a_signal_right_after_the_very_first_start(list_ms: int, known: bool) -> None:
    """Without an earlier list the plan waits 1.5 s for the API server, then has no priorities."""
    run = Run(kind="reboot", mode="cri", first_start_after_ns=-100 * MS, first_list_takes_ns=list_ms * MS)
    first = run.events(InventoryTaken)[0]
    assert first.untold == ("" if known else NOT_LISTED_YET)
    assert [event.uid for event in run.events(decisions.SendSignal)][-1:] == ["uid-db"]
    assert [len(wave.pods) for wave in run.account.waves] == ([2, 1] if known else [3, 0])
    assert len(run.events(InventoryTaken)) > 1


# --- seeds


@pytest.mark.parametrize("mode", MODES)
def test_many_seeds(mode: NodeMode) -> None:
    for seed in range(60):
        result = try_out(Name(seed, mode))
        assert not result.breaches, str(result)


@pytest.mark.parametrize(
    ("seed", "mode"),
    [
        # The daemon: these pods got no stop.
        (804986097713, "api"),  # a pod with a hook, under a kubelet that hangs and that nobody can ask
        (804986099481, "api"),  # the same, whose grace ends with its wave
        (649, "api"),  # a kubelet that hangs so late that its endpoint's silence is not known yet
        (804986103180, "auto"),  # one that was only looked on, adopted by a shutdown that ends pods itself
        (36, "api"),  # hooks again, whom nobody can ask
        (1397, "api"),  # a grace of 2 s is over before the endpoint's silence is known
        (206, "api"),  # a kubelet that hangs after a cancel has nothing taken from it
        (1316, "api"),  # a runtime that has hung since before the very first start
        # The daemon: after a crash with an open delete, a hook of the kubelet ran again.
        (911, "api"),
        (2839, "api"),
        # The daemon.
        (45504, "auto"),  # most of a grant of 2 s was waited for priorities, and SIGKILL came at once
        (49601, "api"),  # a delete without an answer before a cancel was not given again
        (52029, "api"),  # started again after a cancel: the grace of its first life was taken for its own
        (100745, "api"),  # a daemon that died while the last statuses went out did not look once more
        (410469, "api"),  # an unanswered delete reached the kubelet late, which ran the hook of a second life
        # The model.
        (402463, "observe"),  # a pod that has ended by the look joins as one that runs
        (40810, "cri"),  # a kubelet starts a pod again through a runtime that hangs
        (66589, "api"),  # a runtime that wakes up is looked at
        (111165, "api"),  # a kubelet wakes up while it is being stopped
        (111612, "auto"),  # a stop signal is open, of a runtime that hangs, when the daemon dies
        # The judgement.
        (413961, "api"),  # finished over the runtime in a shutdown by the API: its kubelet has no delete
        (50428, "auto"),  # started again while its pod is stopped: with its pod's times
        (54527, "observe"),  # a wave that was empty begins with the pod that joins it
        (301735, "observe"),  # released at the very end of the time for the last statuses
        (48506, "cri"),  # what was started again before a runtime hung for good is seen by nobody
        (100711, "observe"),  # a kubelet's stop that waits for a runtime, of a shutdown that is over
        (741381854572, "auto"),  # ended by a cancelled shutdown, started again early in the next one
        (120178, "cri"),  # a power cut while a slow API server takes the last status
        (804986097049, "api"),  # a power cut while the last volumes are waited for
        (804986097021, "api"),  # a runtime wakes up with a stop signal of each of two shutdowns
        (8401, "api"),  # a container of a pod that a cancelled shutdown still stops is started again
    ],
)
def test_seeds_that_broke_once(seed: int, mode: NodeMode) -> None:
    """Each with its cause."""
    result = try_out(Name(seed, mode))
    assert not result.breaches, str(result)
