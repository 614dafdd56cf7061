"""Advice: needed times, pods that no period saves, and the configuration to paste."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from ebbtide import replay
from ebbtide.cli.config import check_configuration
from ebbtide.cli.replay.replay_advise import buys_text
from ebbtide.config import load
from ebbtide.events.record import shutdown_record
from ebbtide.events.values import Period, ProcessReport, Settings
from ebbtide.replay.advise import (
    MEDIAN,
    P95,
    Advice,
    Caution,
    Evidence,
    Survival,
    Trial,
    Workload,
    WorkloadVerdict,
    conclude,
    curve_text,
    observed_stops,
    survival,
)
from ebbtide.replay.advise import advise as advise_with
from ebbtide.replay.sim.scenario import PodPlan
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.whatif.record import WrongChange
from tests.conftest import Sample
from tests.journals import write_files
from tests.replay.sim.nodes import MODES
from tests.replay.whatif.bed import SECOND

#: The bare estimate: no margin, any evidence suffices.
BARE = Caution(margin_percent=0, stops_min=1, share_min=Fraction(0))

PERIODS = (Period(priority=0, seconds=20), Period(priority=1000, seconds=10))


def ended(
    name: str, seconds: float, *, wanted: int | None = 60, priority: int = 0, **more: Any
) -> shutdown_record.PodRecord:
    """It ended by itself after so long."""
    took_ns = int(seconds * SECOND)
    return told(name, wanted, priority, outcome="graceful", ended_ns=SECOND + took_ns, **more)


def killed(
    name: str, seconds: float, *, wanted: int | None = 60, priority: int = 0, **more: Any
) -> shutdown_record.PodRecord:
    """It got SIGKILL after so long."""
    at_ns = SECOND + int(seconds * SECOND)
    container = shutdown_record.ContainerRecord(
        name="main", signalled_ns=SECOND, taken_ns=SECOND, killed_ns=at_ns, exited_ns=at_ns + 5
    )
    more = {"containers": (container,), "ended_ns": at_ns + 5, "grace_ns": at_ns - SECOND, **more}
    return told(name, wanted, priority, outcome="killed", **more)


def told(name: str, wanted: int | None, priority: int, **more: Any) -> shutdown_record.PodRecord:
    fields = {"grace_ns": 20 * SECOND, "began_ns": SECOND, **more}
    return shutdown_record.PodRecord(
        uid=f"uid-{name}",
        namespace="shop",
        name=name,
        priority=priority,
        wanted_grace_seconds=wanted,
        **fields,  # type: ignore[arg-type]
    )


def account(*pods: shutdown_record.PodRecord, number: int = 1, **more: Any) -> shutdown_record.ShutdownRecord:
    fields: dict[str, Any] = {
        "configuration": shutdown_record.ConfigurationRecord(
            periods=PERIODS, requested_ns=30 * SECOND, reserve_ns=5 * SECOND
        ),
        "node": "node-1",
        "started_wall_ns": number,
        "last_ns": 90 * SECOND,
        **more,
    }
    return shutdown_record.ShutdownRecord(
        id=f"0011-{number}",
        trace_id="",
        journal_id="",
        first_seq=number,
        last_seq=number,
        machine_id="m",
        boot_id="b",
        version="1",
        kind="reboot",
        outcome="complete",
        started_mono_ns=0,
        pods=pods,
        **fields,
    )


def advise(shutdowns: Iterable[shutdown_record.ShutdownRecord], caution: Caution = BARE) -> Advice:
    return advise_with(shutdowns, caution)


def named(advice: Advice, name: str) -> Workload:
    return next(each for each in advice.workloads if each.name == name)


def test_a_wave_needs_what_its_slowest_pod_needs() -> None:
    """Whole seconds above the slowest pod: at the end of its grace a pod is killed."""
    advice = advise([account(ended("web-0", 3.2), ended("web-1", 7), ended("db-0", 0.1, priority=1000))])
    assert [wave.seconds for wave in advice.waves] == [8, 1]
    assert advice.waves[0].why == "the slowest, shop/web, took 7 s"
    assert (advice.reserve_seconds, advice.inhibit_delay_max_seconds) == (5, 14)


DEAF = shutdown_record.AutopsyRecord(
    container="main",
    at_ns=0,
    processes=(ProcessReport(pid=1, parent_pid=0, command="x", state="S", signals_ignored=("SIGTERM",)),),
)


@pytest.mark.parametrize(
    "pods, verdict, says",
    [
        ((killed("a-0", 20, autopsies=(DEAF,)),), "deaf", "ignored its stop signal until SIGKILL every time"),
        ((killed("a-0", 5, wanted=5),), "own-grace", "raise its terminationGracePeriodSeconds above 5"),
        ((killed("a-0", 20),), "too-short", "give its wave more and see"),
        ((ended("a-0", 3), killed("a-1", 20)), "too-short", "was killed 1 of 2 times"),
        (
            (ended("a-0", 3), killed("a-1", 9, wanted=9)),
            "unsteady",
            "was over, and else ended within 3 s: find",
        ),
        (
            (ended("a-0", 12), killed("a-1", 5, wanted=5)),
            "mostly",
            "raise its terminationGracePeriodSeconds to 13",
        ),
    ],
)
def test_whom_no_period_saves(
    pods: tuple[shutdown_record.PodRecord, ...], verdict: WorkloadVerdict, says: str
) -> None:
    """Each reason has its text with the fix."""
    found = named(advise([account(*pods)]), "shop/a")
    assert found.verdict == verdict
    assert says in found.problem


def test_a_pod_that_was_cut_short_may_be_saved() -> None:
    """Killed after 5 s while replicas took up to 12 s: 13 s suffice if it behaves alike."""
    advice = advise([account(ended("web-0", 12), killed("web-1", 5))])
    assert (named(advice, "shop/web").verdict, named(advice, "shop/web").problem) == ("mostly", "")
    assert advice.waves[0].seconds == 13


def test_what_is_no_observation() -> None:
    """Spared, rejected, unstarted or refused by the runtime: no stop reached these pods."""
    refused = shutdown_record.ContainerRecord(name="main", signalled_ns=SECOND, stop_refused=True)
    found = observed_stops(
        account(
            told("a", 5, 0, outcome="spared"),
            told("b", 5, 0, outcome="rejected"),
            told("c", 5, 0, outcome="unknown", began_ns=None),
            killed("d", 5, containers=(refused,)),
        )
    )
    assert list(found) == []


def test_a_pod_that_outlived_sigkill_was_not_killed() -> None:
    """It needs more, and its workload's text says that its end was not seen."""
    (stop,) = observed_stops(account(replace(killed("a-0", 20), outcome="failed", ended_ns=None)))
    assert (stop.kind.ended, stop.kind.killed, stop.ns) == (False, False, 20 * SECOND)


def test_a_cut_stop_needs_more_than_its_time() -> None:
    """A hook of 40 s in a wave of 15 s: more than 15 s. So where the daemon or the runtime was away."""
    hook = shutdown_record.HookRecord(
        container="main", kind="exec", began_ns=SECOND, until_ns=0, ended_ns=16 * SECOND, result="timed-out"
    )
    process = shutdown_record.ProcessRecord(
        seq=9, at_ns=9 * SECOND, version="", pid=2, mode="", boot_id="b", quiet_since_ns=4 * SECOND
    )
    lost = shutdown_record.Notice(seq=9, at_ns=4 * SECOND, code="runtime-lost", text="")
    pod = ended("a-0", 16.002, hooks=(hook,))
    for night, more_than in (
        (account(pod), 15),
        (account(ended("a-0", 9), processes=(process,)), 3),
        (account(ended("a-0", 9), notices=(lost,)), 3),
    ):
        (stop,) = observed_stops(night)
        assert (stop.kind.ended, stop.kind.killed, stop.ns) == (False, False, more_than * SECOND)
    found = named(advise([account(pod)]), "shop/a")
    assert (found.verdict, found.times.killed) == ("too-short", 0)
    assert "was not seen to its end every time" in found.problem
    assert "asks for 60 s" in found.problem


SEEDS, ONE_OF = range(1, 401), 27


def true_need_ns(plan: PodPlan) -> int:
    """Of its main containers, hooks included."""
    needs = []
    for each in plan.pod.containers:
        behaves = plan.containers[each.name]
        needs.append(NEVER_NS if behaves.stop_ns is None else behaves.stop_ns)
        if each.hook is not None:
            hook_ns = behaves.hook.takes_ns if each.hook.kind != "sleep" else each.hook.sleep_seconds * SECOND
            needs[-1] += NEVER_NS if hook_ns is None else hook_ns
        if each.sidecar:
            needs.pop()
    return max(needs)


NEVER_NS = 10**15


def test_evidence_is_true(sample: Sample) -> None:
    """Simulated nodes in all modes: no pod needs more than its evidence says, and no cut one less.

    An observing daemon does not see when the kubelet begins to end a pod. Some pods end by themselves before.
    """
    for seed in sample(SEEDS, ONE_OF):
        mode = (*MODES, "")[seed % (len(MODES) + 1)]
        run = simulate(SimulationRequest(synthetic=8, mode=mode), seed)
        plans = {plan.pod.uid: plan for plan in run.machine.plan.pods}
        for shutdown in run.shutdown_records():
            for pod, kind, ns in observed_stops(shutdown):
                plan = plans[pod.uid]
                early = any(each.lives_ns is not None for each in plan.containers.values())
                sidecars = any(each.sidecar for each in plan.pod.containers)
                if kind.ended and not early:
                    assert ns >= true_need_ns(plan) - SECOND // 100, (seed, mode, pod.label)
                elif not kind.ended and not sidecars and pod.means != "observe":
                    assert ns <= true_need_ns(plan) + SECOND // 100, (seed, mode, pod.label)


@pytest.mark.parametrize(
    "refused, seconds, buys",
    [
        (0, [4, 13], "with this advice 2 to 3 would, for 13 s less"),
        (1, [20, 13], "with this advice 2 to 3 would, for 3 s more"),
        (2, [20, 10], "nothing changes"),
    ],
)
def test_advice_that_loses_pods_is_not_given(refused: int, seconds: list[int], buys: str) -> None:
    """First no wave is shortened, then none is changed."""
    tried: list[list[int]] = []

    def try_out(periods: tuple[Period, ...]) -> Trial:
        tried.append([each.seconds for each in periods])
        return Trial(lost=1) if len(tried) <= refused else Trial(perhaps_saved=1)

    night = account(
        ended("web-0", 3.2), ended("db-0", 12, priority=1000), killed("db-1", 5, wanted=5, priority=1000)
    )
    advice = advise_with([night], BARE, try_out)
    assert [wave.seconds for wave in advice.waves] == seconds
    assert tried == [[4, 13], [20, 13], [20, 10]][: min(refused + 1, 2)]
    assert buys_text(advice).startswith("today 2 of 3 pods end by themselves; " + buys)


def test_no_advice_loses_a_pod_of_its_evidence(
    sample: Sample, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As ``what-if`` on the same shutdowns decides, with evidence that is trusted without caution."""
    for seed in sample(range(1, 101), 19):
        mode = (*MODES, "")[seed % (len(MODES) + 1)]
        files = simulate(SimulationRequest(synthetic=8, mode=mode), seed).files()
        shutdowns = list(replay.open(write_files(tmp_path_factory.mktemp("tried"), files)).shutdowns())
        try:
            advice = replay.advise(shutdowns, BARE)
        except replay.NoEvidence:
            continue
        for each in shutdowns if advice.trial is not None else ():
            settings = Settings(by_pod_priority=advice.periods)
            with suppress(WrongChange):
                assert not replay.what_if(each, settings=settings).changed("lost"), seed


def test_a_curve_counts_pods_for_each_second() -> None:
    """A pod needs more than its whole seconds; of the cut ones the estimate's part is counted."""
    seen = [ended("a-0", 1.2), ended("b-0", 3), ended("c-0", 7.5), killed("d-0", 5)]
    wave = advise([account(*seen)]).waves[0]
    assert wave.times.curve == ((2, 1), (4, 2), (8, 4))
    assert curve_text(wave.times) == "2 s 1, 4 s 2, 8 s 4 of 4"


@pytest.mark.parametrize("last, verdict", [(5, "too-short"), (6, "own-grace")])
def test_a_record_that_ends_first_is_no_fault_of_a_pods_own_grace(last: int, verdict: str) -> None:
    """It asks for 5 s: only a pod seen for so long has used them up."""
    open_pod = told("a-0", 5, 0, outcome="unknown", grace_ns=5 * SECOND)
    assert named(advise([account(open_pod, last_ns=last * SECOND)]), "shop/a").verdict == verdict


def test_what_is_pasted_is_a_configuration(tmp_path: Path) -> None:
    """The pasted configuration loads, fits the drop-in's limit, and matches the advice for any name."""
    evil = replace(ended("web", 7), name="x\nbudget: elastic")
    advice = advise([account(evil, ended("db-0", 1))])
    file = tmp_path / "advice.yaml"
    file.write_text(advice.configuration)
    loaded = load([file])
    assert loaded.settings.by_pod_priority == advice.periods
    assert loaded.settings.budget == "strict"
    assert check_configuration(loaded, advice.inhibit_delay_max_seconds * SECOND)["honoured"]
    assert f"InhibitDelayMaxSec={advice.inhibit_delay_max_seconds}" in file.read_text()


# --- evidence that adds up


def test_evidence_adds_up_in_any_order() -> None:
    """The parts' order does not change the advice, not even in ties."""
    shutdowns = [
        account(
            ended("web-0", 3 + at % 4),
            killed(f"db-{at}", 4, wanted=4 + at % 3, priority=1000 if at % 2 else 0),
            killed("deaf-0", 20, autopsies=(DEAF,)),
            replace(ended("late-0", 1), began_ns=None, outcome="killed", reason=f"reason {at}"),
            number=1 + at // 2,
            node=f"node-{at % 5}",
        )
        for at in range(12)
    ]
    shutdowns = [
        replace(each, journal_id=f"{at:032x}", machine_id=each.node) for at, each in enumerate(shutdowns)
    ]
    whole = advise(shutdowns)
    assert any(wave.left_out for wave in whole.waves)
    for parts in (shutdowns[::-1], shutdowns[6:] + shutdowns[:6]):
        evidence = Evidence()
        for at in range(0, len(parts), 5):
            part = Evidence()
            for each in parts[at : at + 5]:
                part.add(each)
            evidence.merge(pickle.loads(pickle.dumps(part)))
        assert conclude(evidence, BARE) == whole


# --- Kaplan-Meier in integers: equal to fractions, in linear time

#: Weeks in remission under 6-mercaptopurine (Freireich and others, 1963); True: relapsed, False: censored.
FREIREICH = (
    *((6, True), (6, True), (6, True), (6, False), (7, True), (9, False), (10, True), (10, False)),
    *((11, False), (13, True), (16, True), (17, False), (19, False), (20, False), (22, True), (23, True)),
    *((25, False), (32, False), (32, False), (34, False), (35, False)),
)


class Observation(NamedTuple):
    """``ended`` False: it was killed after that time."""

    ns: int
    ended: bool


def survival_of(seen: Sequence[Observation]) -> Survival:
    return survival((each.ended, Counter([each.ns])) for each in seen)


seen_stops = st.lists(st.builds(Observation, st.integers(0, 9), st.booleans()), max_size=12)
many_stops = st.lists(st.builds(Observation, st.integers(0, 40), st.booleans()), max_size=80)


def curve(seen: Sequence[Observation]) -> list[tuple[int, Fraction]]:
    """The definition in fractions: the surviving share from each time on."""
    share, found = Fraction(1), []
    for ns in sorted({each.ns for each in seen}):
        there = sum(each.ns >= ns for each in seen)
        ended = sum(each.ns == ns and each.ended for each in seen)
        if ended:
            share *= Fraction(there - ended, there)
            found.append((ns, share))
    return found


def by_fractions(seen: Sequence[Observation], of: Fraction) -> int | None:
    return next((ns for ns, share in curve(seen) if share <= 1 - of), None)


def test_the_textbook() -> None:
    seen = [Observation(*each) for each in FREIREICH]
    assert curve(seen) == [
        (6, Fraction(6, 7)),
        (7, Fraction(96, 119)),
        (10, Fraction(64, 85)),
        (13, Fraction(176, 255)),
        (16, Fraction(32, 51)),
        (22, Fraction(64, 119)),
        (23, Fraction(160, 357)),
    ]
    assert astuple(survival_of(seen))[:-1] == (21, 12, 0, 23, None, None, 23)
    assert survival_of(seen).curve == ((1, 11),)


@given(seen_stops | many_stops)
def test_it_is_the_estimate_in_fractions(seen: list[Observation]) -> None:
    """Median, 95 % and maximum, with ties; it reaches 0 only if the longest ended by itself."""
    found = survival_of(seen)
    expected = [by_fractions(seen, of) for of in (MEDIAN, P95, Fraction(1))]
    assert [found.p50_ns, found.p95_ns, found.max_ns] == expected
    longest = max((each.ns for each in seen), default=None)
    ended_last = bool(seen) and all(each.ended for each in seen if each.ns == longest)
    assert found.is_complete == ended_last
