"""A simulated Kubernetes node: each mode, what goes wrong with it, and what must hold in every seed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.actors import container
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
from ebbtide.events.facts import ApiRead, InventoryTaken, KubeletRead, OrderEnded
from ebbtide.replay.sim.node import KUBELET, NOT_LISTED_YET, Happening
from ebbtide.replay.sim.scenario import ContainerPlan, HookPlan, NodeMode, PodPlan
from tests.replay.sim.nodes import MODES, Name, Tried, parts, shrink, try_out, whole_plan
from tests.replay.sim.test_faults import PODS, Run, pod


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


@pytest.mark.parametrize(("hangs_ms", "source"), [(None, "simulated"), (-5000, "table")])
def test_a_runtime_that_is_not_asked(hangs_ms: int | None, source: str) -> None:
    """Pods have ended before the kubelet: what it had started again by then only a look can show."""
    hangs_ns = None if hangs_ms is None else hangs_ms * MS
    run = Run(kind="reboot", mode="cri", kubelet="slow", runtime_hangs_after_ns=hangs_ns)
    assert set(run.fates.values()) == {"graceful"}
    assert [event.source for event in run.events(InventoryTaken)] == ["simulated", source, source]
    safe = source == "simulated"
    assert [(event.safe, event.restarts) for event in run.events(DetachCertified)] == [(safe, not safe)]


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


def test_observe_looks_on() -> None:
    """The kubelet's own waves, its own lock; nothing is ordered for a pod."""
    run = Run(kind="poweroff", mode="observe", kubelet_lock=True)
    assert run.fates == dict.fromkeys(("web", "slow", "db"), "graceful")
    assert not run.events(DeletePod) + run.events(SendSignal) + run.events(KillContainer)
    assert not run.events(StopKubelet)
    assert not run.events(LeftUndone)


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


# --- what hangs ----------------------------------------------------------------------------------


def test_a_kubelet_that_hangs_is_found_silent() -> None:
    """Its unit is active. Its health endpoint is asked each second, and says nothing for three."""
    run = Run(kind="poweroff", mode="api", kubelet_hangs_after_ns=-500 * MS)
    said = [(event.active, event.healthy) for event in run.events(KubeletRead)]
    assert said[:2] == [(True, True), (True, False)]
    (over,) = run.events(HandedOver)
    assert "does not answer" in over.reason
    assert {each.life for each in seen(run, "signal")} == {1}
    assert set(run.fates.values()) == {"graceful"}


def test_a_kubelet_that_hangs_where_nobody_can_ask_it() -> None:
    """Only its pods show it: none of them is stopped."""
    run = Run(kind="poweroff", mode="api", kubelet_hangs_after_ns=-500 * MS, kubelet_health=False)
    assert [event.reason for event in run.events(HandedOver)] == ["the kubelet has stopped no container"]
    assert {each.life for each in seen(run, "signal")} == {1}


def test_a_kubelet_that_wakes_up_does_what_was_left() -> None:
    """What it has heard before it is known to be silent it does late; nobody else does it."""
    run = Run(
        kind="poweroff",
        mode="api",
        kubelet_hangs_after_ns=-10 * MS,
        kubelet_wakes_after_ns=2000 * MS,
    )
    assert not run.events(HandedOver)
    assert {each.life for each in seen(run, "signal")} == {KUBELET}
    assert min(each.at_ns for each in seen(run, "signal")) >= seen(run, "kubelet-wakes")[0].at_ns


def test_what_a_kubelet_asked_before_it_hung_goes_on() -> None:
    """The runtime ends the time of a stop that was given to it."""
    stubborn = of(pod("stubborn", ContainerPlan(stop_ns=None)), grace_seconds=3)
    run = Run((stubborn,), kind="poweroff", mode="api", kubelet_hangs_after_ns=500 * MS)
    assert {each.life for each in seen(run, "kill")} == {KUBELET}


def test_a_kubelet_that_hangs_is_killed_to_stop_it() -> None:
    """Its service manager waits two seconds for it, and the first wave goes on beside that."""
    run = Run(kind="reboot", mode="cri", kubelet_hangs_after_ns=-500 * MS)
    stopped = seen(run, "kubelet-stop")[0].at_ns - seen(run, "shutdown")[0].at_ns
    assert 2000 * MS <= stopped <= 2200 * MS
    assert set(run.fates.values()) == {"graceful"}


def test_an_api_server_that_hangs_is_noticed_by_a_delete() -> None:
    """Long before its silent watch tells."""
    run = Run(kind="poweroff", mode="api", api_hangs_after_ns=-200 * MS)
    signal_ns = seen(run, "shutdown")[0].at_ns
    away = [
        run.machine.boots[0].since_ns + record.mono_ns - signal_ns
        for record in run.machine.journal.records
        if isinstance(record.event, ApiRead) and not record.event.reachable
    ]
    assert len(away) == 1
    assert away[0] < 4000 * MS
    assert len(run.events(HandedOver)) == 1
    assert set(run.fates.values()) == {"graceful"}


def test_a_delete_may_be_taken_when_the_api_server_wakes_up() -> None:
    """It lay in its socket; the pod has its one hook and its one stop signal all the same."""
    late = 0
    for seed in range(12):
        run = Run(
            seed=seed,
            kind="poweroff",
            mode="api",
            api_hangs_after_ns=-200 * MS,
            api_wakes_after_ns=2500 * MS,
        )
        woke_ns = seen(run, "api-back")[0].at_ns
        late += sum(each.at_ns == woke_ns for each in seen(run, "delete"))
    assert late


@pytest.mark.parametrize(("list_ms", "known"), [(900, True), (3500, False)])
def test_a_signal_right_after_the_very_first_start(list_ms: int, known: bool) -> None:
    """With no list from before, the plan waits 1.5 s for the API server's; then it has no priorities."""
    run = Run(
        kind="reboot",
        mode="cri",
        first_start_after_ns=-100 * MS,
        first_list_takes_ns=list_ms * MS,
    )
    first = run.events(InventoryTaken)[0]
    assert first.untold == ("" if known else NOT_LISTED_YET)
    assert [event.uid for event in run.events(SendSignal)][-1:] == ["uid-db"]
    assert [len(wave.pods) for wave in run.account.waves] == ([2, 1] if known else [3, 0])
    assert len(run.events(InventoryTaken)) > 1


def test_a_power_cut_while_the_last_status_is_on_its_way() -> None:
    """The API server takes three seconds for it, which the release waits for: nobody dawdles."""
    run = Run((pod("db"),), kind="halt", mode="cri", api_takes_ns=3000 * MS, power_cut_after_ns=3000 * MS)
    assert not seen(run, "release")


# --- seeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_many_seeds(mode: NodeMode) -> None:
    """Every invariant, in runs with everything that can go wrong."""
    for seed in range(60):
        result = try_out(Name(seed, mode))
        assert not result.breaches, str(result)


@pytest.mark.proof
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", range(4))
def test_very_many_seeds(mode: NodeMode, part: int) -> None:
    """The same, longer. More by hand: python -m tests.replay.sim --seeds 100000 --fresh"""
    for seed in range(60 + part, 1060, 4):
        result = try_out(Name(seed, mode))
        assert not result.breaches, str(result)


@pytest.mark.parametrize(
    ("seed", "mode"),
    [
        # The daemon: nobody told these pods to stop.
        (804986097713, "api"),  # a pod with a hook, under a kubelet that hangs and that nobody can ask
        (804986099481, "api"),  # the same, whose grace ends with its wave
        (649, "api"),  # a kubelet that hangs so late that its endpoint's silence is not known yet
        (804986103180, "auto"),  # one that was only looked on, adopted by a shutdown that ends pods itself
        (36, "api"),  # hooks again, whom nobody can ask
        (1397, "api"),  # a grace of 2 s is over before the endpoint's silence is known
        (206, "api"),  # a kubelet that hangs after a cancel has nothing taken from it
        (1316, "api"),  # a runtime that has hung since before the very first start
        # The daemon: a hook that the kubelet runs was begun again, after a crash with the pod's delete open.
        (911, "api"),
        (2839, "api"),
        # The daemon.
        (
            45504,
            "auto",
        ),  # of a grant of 2 s more than half was waited for priorities, and SIGKILL came at once
        (
            49601,
            "api",
        ),  # a delete that nobody answered before a cancel was not given again by the next shutdown
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
        (
            741381854572,
            "auto",
        ),  # a pod that a cancelled shutdown ended is started again early in the next one
        (120178, "cri"),  # a power cut while a slow API server takes the last status
        (804986097049, "api"),  # a power cut while the last volumes are waited for
        (804986097021, "api"),  # a runtime wakes up with a stop signal of each of two shutdowns
        (8401, "api"),  # a container of a pod that a cancelled shutdown still stops is started again
    ],
)
def test_seeds_that_broke_once(seed: int, mode: NodeMode) -> None:
    """By whose mistake stands beside each."""
    result = try_out(Name(seed, mode))
    assert not result.breaches, str(result)


def test_everything_that_can_be_drawn_is_drawn() -> None:
    """In the seeds that every run of the tests has, in one mode or another."""
    drawn = {part for seed in range(60) for mode in MODES for part in parts(whole_plan(Name(seed, mode)))}
    assert drawn >= {
        "runtime_hangs_after_ns",
        "runtime_wakes_after_ns",
        "kubelet_hangs_after_ns",
        "kubelet_wakes_after_ns",
        "kubelet_health",
        "api_hangs_after_ns",
        "api_wakes_after_ns",
        "first_start_after_ns",
        "again_after_ns",
    }


def test_a_breach_shrinks_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that forgets the 2 s between stop signal and SIGKILL: one pod shows it."""
    monkeypatch.setattr(container, "FLOOR_NS", 0)

    def early(result: Tried) -> bool:
        return any(breach.invariant == "grace_is_kept" for breach in result.breaches)

    broken = next(result for result in (try_out(Name(seed, "cri")) for seed in range(200)) if early(result))
    least = shrink(broken)
    assert early(least)
    left = [part for part in parts(whole_plan(broken.name)) if part not in least.name.without]
    assert len([part for part in left if part.startswith("pod.")]) == 1
    again = f"python -m tests.replay.sim --mode cri --seed {broken.name.seed} --without "
    assert str(least).splitlines()[0] == again + " ".join(least.name.without)
