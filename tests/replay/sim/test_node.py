"""A simulated Kubernetes node: each mode, what goes wrong with it, and what must hold in every seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import (
    AwaitUnmounts,
    DeletePod,
    DetachCertified,
    HandedOver,
    KillContainer,
    KubeletStopped,
    LeftUndone,
    MeansChosen,
    PodEnded,
    SendSignal,
    StartKubelet,
    StopKubelet,
    WaveEnded,
)
from ebbtide.events.facts import OrderEnded
from ebbtide.replay.sim.node import KUBELET, Happening
from ebbtide.replay.sim.scenario import ContainerPlan, HookPlan, NodeMode, PodPlan
from ebbtide.replay.sim.simulate import Simulated, SimulationRequest, simulate
from tests.conftest import Sample
from tests.replay.sim.test_faults import PODS, Run, pod

#: One seed of so many, beside the first sixty.
ONE_OF = 3

MODES: tuple[NodeMode, ...] = ("auto", "api", "cri", "observe")


def of(plan: PodPlan, **changes: Any) -> PodPlan:
    """The same pod with what only a Kubernetes node's has."""
    return plan._replace(pod=replace(plan.pod, **changes))


def seen(run: Run, *whats: str) -> list[Happening]:
    return list(run.machine.log.of(*whats))


def test_api_deletes_and_the_kubelet_ends() -> None:
    """Nothing is signalled by us; the certificate is safe, and its pods' statuses are all there."""
    run = Run(kind="poweroff", mode="api")
    assert run.fates == dict.fromkeys(("web", "slow", "db"), "graceful")
    assert [event.means for event in run.events(MeansChosen)] == ["api"]
    assert len(run.events(DeletePod)) == 3
    assert not run.events(SendSignal)
    assert {each.life for each in seen(run, "signal")} == {KUBELET}
    assert [event.safe for event in run.events(DetachCertified)] == [True]


def test_cri_stops_the_kubelet_and_a_cancel_starts_it_again() -> None:
    """It is stopped beside the first wave, and runs again on the machine that stays up."""
    run = Run(kind="reboot", mode="cri", cancel_after_ns=2 * NS_PER_SECOND)
    assert [event.result for event in run.events(KubeletStopped)] == ["done"]
    assert len(run.events(StartKubelet)) == 1
    assert run.machine.boots[0].node.kubelet.running
    assert [each.what for each in seen(run, "kubelet-start", "kubelet-stop")][-2:] == [
        "kubelet-stop",
        "kubelet-start",
    ]


def test_a_kubelet_that_stays_starts_pods_again() -> None:
    """Which the trail says: nobody could stop it."""
    run = Run(kind="reboot", mode="cri", kubelet="stays")
    assert [event.result for event in run.events(KubeletStopped)][:1] == ["failed"]
    assert seen(run, "restart")


def test_deletes_that_nobody_answers() -> None:
    """A slow server may have taken a delete that has no answer: such a pod's hook is not run again."""
    ways: dict[tuple[str, bool], int] = {}
    for seed in range(12):
        run = Run(seed=seed, kind="poweroff", mode="api", api_takes_ns=3 * NS_PER_SECOND)
        results = {event.key: event.result for event in run.events(OrderEnded)}
        taken = {each.uid: None for each in seen(run, "delete")}
        hooks = {each.uid: None for each in seen(run, "hook") if each.life != KUBELET}
        for order in run.events(DeletePod):
            way = results[order.key], order.uid in taken
            ways[way] = ways.get(way, 0) + 1
            assert way[0] == "failed" or order.uid not in hooks
    assert sorted(ways) == [("failed", False), ("timed-out", False), ("timed-out", True)]


def test_a_node_that_may_not_be_tainted() -> None:
    """What the API server's fact says stands in the choice of means."""
    run = Run(kind="poweroff", mode="api", taints=False)
    assert [event.taints for event in run.events(MeansChosen)] == [False]


def test_a_runtime_that_is_away() -> None:
    """Mode auto takes the API then, also for a reboot."""
    run = Run(kind="reboot", mode="auto", runtime_refuses="everything")
    assert [event.means for event in run.events(MeansChosen)] == ["api"]


def test_observe_looks_on() -> None:
    """The kubelet's own waves, its own lock; nothing is ordered for a pod."""
    run = Run(kind="poweroff", mode="observe", kubelet_lock=True)
    assert run.fates == dict.fromkeys(("web", "slow", "db"), "graceful")
    assert not run.events(DeletePod) + run.events(SendSignal) + run.events(KillContainer)
    assert not run.events(StopKubelet)
    assert not run.events(LeftUndone)


def test_observe_names_what_the_kubelet_leaves() -> None:
    """One without a graceful shutdown of its own ends nothing."""
    run = Run(kind="poweroff", mode="observe")
    assert set(run.fates.values()) == {"unknown"}


@pytest.mark.parametrize("after_ms", [-2000, 0, 2500])
def test_an_api_server_that_goes_away_hands_over(after_ms: int) -> None:
    """Before the signal, with it, or between two waves: no wave is lost, and it is one way."""
    pods = (*PODS, pod("far", ContainerPlan(stop_ns=6000 * MS)))
    lost_ns, back_ns = after_ms * MS, (after_ms + 7000) * MS
    run = Run(pods, kind="poweroff", mode="api", api_lost_after_ns=lost_ns, api_back_after_ns=back_ns)
    assert set(run.fates.values()) == {"graceful"}
    assert len(run.events(HandedOver)) <= 1
    assert run.account.outcome == "complete"


def test_static_pods_come_last_over_the_runtime() -> None:
    """Handed over by plan with the whole last range; the release does not wait for the kubelet."""
    pods = (*PODS, of(pod("proxy", priority=1000), static=True))
    run = Run(pods, kind="poweroff", mode="api")
    assert len(run.events(HandedOver)) == 1
    assert [event.uid for event in run.events(DeletePod)] == ["uid-web", "uid-slow"]
    assert {event.uid for event in run.events(SendSignal)} == {"uid-db", "uid-proxy"}
    assert run.account.by.handed_over_ns is not None
    assert (run.account.ended_ns or 0) < 8 * NS_PER_SECOND


def test_a_wave_waits_for_its_volumes_but_not_for_ever() -> None:
    """Unmounted late, they cost its time; the certificate says so if they are mounted at the end."""
    pods = (of(pod("db"), volumes=True), pod("web", priority=1000))
    quick = Run(pods, kind="poweroff", mode="api", unmount_takes_ns=1500 * MS)
    assert len(quick.events(AwaitUnmounts)) == 1
    assert 1500 * MS < (quick.account.waves[0].ended_ns or 0) < 2300 * MS
    assert [event.safe for event in quick.events(DetachCertified)] == [True]
    late = Run(pods, kind="poweroff", mode="api", unmount_takes_ns=60 * NS_PER_SECOND)
    assert [event.mounted for event in late.events(WaveEnded)][:1] == [("uid-db",)]
    assert [event.safe for event in late.events(DetachCertified)] == [False]


def test_a_hook_runs_once_over_a_hand_over() -> None:
    """The kubelet has begun it; handed over, the pod is only signalled."""
    hooked = pod("web", ContainerPlan(stop_ns=500 * MS, hook=HookPlan(takes_ns=6000 * MS)), hook="exec")
    other = of(pod("db"), static=True)
    run = Run((hooked, other), kind="poweroff", mode="api", api_lost_after_ns=500 * MS)
    assert len(seen(run, "hook")) == 1


@pytest.mark.parametrize(("again_ms", "spared"), [(900, ["db"]), (5000, ["web", "slow", "db"])])
def test_a_delete_that_is_not_taken_before_a_cancel(again_ms: int, spared: list[str]) -> None:
    """Its pod is spared, unless the next shutdown has begun by then; that one ends every pod."""
    run = Run(
        kind="poweroff", mode="api", api="fails", cancel_after_ns=500 * MS, again_after_ns=again_ms * MS
    )
    called_off = [event.uid for event in run.events(PodEnded) if event.outcome == "spared"]
    assert sorted(called_off) == sorted(f"uid-{name}" for name in spared)
    assert {event.uid for event in run.events(PodEnded) if event.outcome == "graceful"} == {
        "uid-web",
        "uid-slow",
        "uid-db",
    }


@pytest.mark.parametrize("mode", MODES)
def test_many_seeds(mode: NodeMode) -> None:
    """Every invariant, in runs with everything that can go wrong."""
    broken = _broken(mode, range(60))
    assert not broken, broken[0].breaches[:3]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", range(4))
def test_very_many_seeds(mode: NodeMode, part: int, sample: Sample) -> None:
    """The same, longer."""
    broken = _broken(mode, sample(range(60, 1060), ONE_OF)[part::4])
    assert not broken, broken[0].breaches[:3]


def _broken(mode: NodeMode, seeds: Iterable[int]) -> list[Simulated]:
    runs = (simulate(SimulationRequest(synthetic=8, mode=mode), seed) for seed in seeds)
    return [run for run in runs if run.breaches]
