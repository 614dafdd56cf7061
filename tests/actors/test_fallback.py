"""FallbackActor: whose duty it does, and when it signals and kills. Whole shutdowns: `tests/scripts`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.fallback import FALLBACK, POD_ENDS, FallbackState
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.actors.sets import SHUTDOWN
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.facts import ContainerExited, HurryRequested, LogindRead, Tick
from ebbtide.events.values import Container, Handover, Pod

POD = Pod(
    uid="u",
    namespace="n",
    name="web",
    containers=(Container(name="a"), Container(name="b"), Container(name="done")),
)

#: A configuration that is not reconciled holds nobody, and nobody replaces the fallback itself.
NOT_REPLACED = ("ConfigReconciler", "FallbackActor")

times_ns = st.integers(1, 60).map(lambda seconds: seconds * NS_PER_SECOND)


def handle(state: FallbackState, event: Event, now: int) -> tuple[FallbackState, list[Event]]:
    after, decisions = FALLBACK.transitions.handlers[state.phase][type(event)](state, event, now)
    FALLBACK.transitions.check(type(event), state, after, decisions)
    return after, list(decisions)


def taken_over(now: int, **more: Any) -> tuple[FallbackState, list[Event]]:
    """In a shutdown whose first wave has begun; the budget is over after 100 s."""
    handed = Handover(**{"pod": POD, "wave": 0, "grace_ns": FLOOR_NS, "exited": ("done",)} | more)
    failed = d.ActorFailed(actor="HookActor", subject="u", error="KeyError", handover=(handed,))
    state = FallbackState(in_episode=True, deadline_ns=100 * NS_PER_SECOND, wave=0)
    return handle(state, failed, now)


@pytest.mark.parametrize("actor", [kind.name for kind in SHUTDOWN.types])
def test_the_duty_of_every_other_actor_is_done(actor: str) -> None:
    """Their names are written out in the fallback: each is the name of an actor that there is."""
    handed = (Handover(pod=POD, wave=0, grace_ns=FLOOR_NS),) if actor == "HookActor" else ()
    failed = d.ActorFailed(actor=actor, subject="", error="KeyError", handover=handed)
    _, decisions = handle(FallbackState(in_episode=True, node=True), failed, 1)
    engaged = [each for each in decisions if isinstance(each, d.FallbackEngaged)]
    assert bool(engaged) == (actor not in NOT_REPLACED)


@given(times_ns, times_ns, times_ns, st.booleans(), st.booleans())
def test_signalled_once_and_killed_once_when_grace_or_budget_is_over(
    begun_ns: int, waited_ns: int, grace_ns: int, has_begun: bool, hurried: bool
) -> None:
    """Never before, and each container that still runs once; what has ended is left alone."""
    now = begun_ns + waited_ns
    state, decisions = taken_over(now, grace_ns=grace_ns, begun_ns=begun_ns if has_begun else 0)
    assert [each.container for each in decisions if isinstance(each, d.SendSignal)] == ["a", "b"]
    if hurried:
        grace_ns = min(grace_ns, FLOOR_NS)
        state, _ = handle(state, HurryRequested(pod="web", asked_by=0), now)
    since_ns = begun_ns if has_begun else now
    kill_at_ns = max(now, min(since_ns + grace_ns, 100 * NS_PER_SECOND))
    assert FALLBACK.deadline(state) == kill_at_ns
    if kill_at_ns > now:
        state, decisions = handle(state, Tick(), kill_at_ns - 1)
        assert decisions == []
    state, decisions = handle(state, Tick(), kill_at_ns)
    assert [each.container for each in decisions if isinstance(each, d.KillContainer)] == ["a", "b"]
    assert FALLBACK.deadline(state) == NEVER_NS
    _, decisions = handle(state, Tick(), kill_at_ns + grace_ns)
    assert decisions == []


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_pod_has_ended_when_its_last_container_has_exited(order: tuple[str, str]) -> None:
    """One that exits again, or that nobody waits for, ends nothing."""
    state, _ = taken_over(5)
    for container in ("done", order[0], order[0]):
        state, decisions = handle(state, ContainerExited(uid="u", container=container, exit_code=0), 6)
        assert decisions == []
    state, decisions = handle(state, ContainerExited(uid="u", container=order[1], exit_code=0), 7)
    (ended,) = decisions
    assert isinstance(ended, d.PodEnded)
    assert (ended.outcome, ended.reason) == POD_ENDS["exited", "stopping"]
    assert ended.elapsed_ns == 2


def test_a_pod_waits_for_the_wave_that_a_new_plan_gives_it() -> None:
    """It stays with the fallback in this shutdown, and has an actor of its own again in the next."""
    waiting, decisions = taken_over(5, wave=1)
    assert [type(each) for each in decisions] == [d.FallbackEngaged]
    planned = d.PodPlanned(wave=2, grace_seconds=2, pod=POD)
    state, _ = handle(waiting, planned, 6)
    assert state.cares["u"].wave == 2
    state, _ = handle(state, d.EpisodeClosed(outcome="complete"), 7)
    state, _ = handle(state, planned, 8)
    assert state.cares == {}


@pytest.mark.parametrize(("wave", "signalled"), [(0, False), (1, True)])
def test_a_pod_is_stopped_at_once_if_its_wave_has_begun(wave: int, signalled: bool) -> None:
    """Which wave that is, the waves say themselves."""
    begun = d.WaveStarted(wave=wave, priority=0, period_ns=1, deadline_ns=2, kill_by_ns=3)
    state, _ = handle(FallbackState(in_episode=True), begun, 1)
    handed = Handover(pod=POD, wave=1, grace_ns=FLOOR_NS)
    failed = d.ActorFailed(actor="HookActor", subject="u", error="KeyError", handover=(handed,))
    _, decisions = handle(state, failed, 2)
    assert any(isinstance(each, d.SendSignal) for each in decisions) == signalled


def test_a_budget_that_has_moved_is_the_one_that_counts() -> None:
    """For the SIGKILL of a pod taken over afterwards, and for the release."""
    moved = d.DeadlineMoved(deadline_ns=7, release_by_ns=9, kill_by_ns=8)
    state, _ = handle(FallbackState(in_episode=True, deadline_ns=50, release_by_ns=60, wave=0), moved, 1)
    assert FALLBACK.deadline(state) == 9
    handed = Handover(pod=POD, wave=0, grace_ns=FLOOR_NS)
    failed = d.ActorFailed(actor="HookActor", subject="u", error="KeyError", handover=(handed,))
    state, _ = handle(state, failed, 2)
    assert FALLBACK.deadline(state) == 7


@pytest.mark.parametrize(
    ("event", "decided"),
    [
        (d.MeansChosen(means="cri", reason=""), [d.FallbackEngaged, d.HandedOver, d.StopKubelet]),
        (d.MeansChosen(means="observe", reason=""), []),
        (
            LogindRead(owner=":1.1", grant_ns=1, preparing=False),
            [d.FallbackEngaged, d.HandedOver, d.StopKubelet],
        ),
        (
            LogindRead(owner=":1.1", grant_ns=1, preparing=False, kubelet_lock=True),
            [d.FallbackEngaged, d.MeansChosen],
        ),
    ],
    ids=["cri", "observe", "no lock", "lock"],
)
def test_a_kubelet_that_ends_the_pods_itself_is_not_stopped(event: Event, decided: list[type[Event]]) -> None:
    """It does so in mode observe, and where it has a lock of its own."""
    state, _ = handle(FallbackState(in_episode=True, node=True), event, 1)
    _, decisions = handle(state, d.ActorFailed(actor="KubeletActor", subject="", error="KeyError"), 2)
    assert [type(each) for each in decisions] == decided


def test_a_shutdown_that_it_opens_has_its_trace_as_any_other() -> None:
    """Names and resource as the configuration has them, also after the shutdown before it."""
    blue = {"k8s.cluster.name": "blue"}
    state, _ = handle(FallbackState(), d.ConfigAdopted(enabled=True, projection_version=2, resource=blue), 1)
    state, _ = handle(state, d.EpisodeClosed(outcome="cancelled"), 2)
    detected = d.ShutdownDetected(kind="reboot", grant_ns=30 * NS_PER_SECOND, lock_held=True)
    state, _ = handle(state, detected, 3)
    _, decisions = handle(state, d.ActorFailed(actor="EpisodeActor", subject="", error="KeyError"), 4)
    (began,) = (each for each in decisions if isinstance(each, d.ShutdownBegan))
    assert (began.projection_version, began.resource) == (2, blue)
