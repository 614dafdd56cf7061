"""FallbackActor: its lead, signals and kills. `tests/scripts` has whole shutdowns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.fallback import FALLBACK, LEADS_FOR, SECURES_FOR, FallbackPod, FallbackState
from ebbtide.actors.policy.grace_periods import FLOOR_NS, REAP_MARGIN_NS
from ebbtide.actors.system import SHUTDOWN
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.facts import ContainerExited, Tick
from ebbtide.events.values import Container, Pod
from tests.scripts.verbs import benches

POD = Pod(
    uid="u",
    namespace="n",
    name="web",
    containers=(Container(name="a"), Container(name="b"), Container(name="done", running=False)),
)
RELEASE_BY_NS = 100 * NS_PER_SECOND

times_ns = st.integers(1, 60).map(lambda seconds: seconds * NS_PER_SECOND)


def handle(state: FallbackState, event: Event, now: int) -> tuple[FallbackState, list[Event]]:
    after, decisions = FALLBACK.transitions.handlers[state.phase][type(event)](state, event, now)
    FALLBACK.transitions.check(type(event), state, after, decisions)
    return after, list(decisions)


def failure(actor: str) -> d.ActorFailed:
    return d.ActorFailed(actor=actor, subject="", error="KeyError")


def planned(*, grace_seconds: int = 2, begun_ns: int = 0) -> FallbackState:
    """A shutdown with one pod of the failed actors."""
    grace_ns = grace_seconds * NS_PER_SECOND
    pod = FallbackPod(pod=POD, wave=0, grace_ns=grace_ns, left=("a", "b"), begun_ns=begun_ns)
    times = {"deadline_ns": RELEASE_BY_NS, "release_by_ns": RELEASE_BY_NS}
    return FallbackState(phase="watching", planned=True, pods={"u": pod}, **times)


@pytest.mark.parametrize("actor", [kind.name for kind in SHUTDOWN.types if kind != FALLBACK])
def test_a_failure_of_each_actor_has_its_effect(actor: str) -> None:
    """The fallback names actors by text: each must exist."""
    state, decisions = handle(planned(), failure(actor), 1)
    leads, secures = actor in LEADS_FOR, actor in SECURES_FOR
    assert any(isinstance(each, d.FallbackEngaged) for each in decisions) == leads
    assert (state.leading, state.secured) == (leads, secures)
    assert leads or secures or actor == "ConfigReconciler"


@given(times_ns, times_ns, st.integers(0, 60), st.booleans())
def test_signalled_once_and_killed_once_when_its_time_is_over(
    begun_ns: int, waited_ns: int, grace_seconds: int, has_begun: bool
) -> None:
    """After grace and floor, before the release; ended containers are skipped."""
    now = begun_ns + waited_ns
    state = planned(grace_seconds=grace_seconds, begun_ns=begun_ns if has_begun else 0)
    state, decisions = handle(state, failure("HookActor"), now)
    assert [each.container for each in decisions if isinstance(each, d.SendSignal)] == ["a", "b"]
    if now >= RELEASE_BY_NS:
        assert state.phase == "ended"
        return
    since_ns = begun_ns if has_begun else now
    end_ns = since_ns + grace_seconds * NS_PER_SECOND
    kill_at_ns = min(max(now + FLOOR_NS, end_ns), RELEASE_BY_NS - REAP_MARGIN_NS)
    assert max(now, FALLBACK.deadline(state)) == max(now, kill_at_ns)
    state, decisions = handle(state, Tick(), max(now, kill_at_ns - 1))
    assert decisions == [] or kill_at_ns <= now
    state, more = handle(state, Tick(), max(now, kill_at_ns))
    kills = [each.container for each in (*decisions, *more) if isinstance(each, d.KillContainer)]
    assert kills == ["a", "b"]
    assert FALLBACK.deadline(state) == RELEASE_BY_NS
    state, decisions = handle(state, Tick(), RELEASE_BY_NS)
    assert [type(each) for each in decisions] == [d.PodsEnded, d.PodEnded, d.ReleaseLock]
    assert FALLBACK.deadline(state) == NEVER_NS


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize(
    ("first", "last", "outcome"),
    [
        ({"exit_code": 0}, {"exit_code": 1}, "graceful"),
        ({"signal": "SIGKILL"}, {"exit_code": 0}, "killed"),
        ({"gone": True}, {"exit_code": 137}, "killed"),
        ({"exit_code": 0}, {"gone": True}, "unknown"),
    ],
)
def test_a_pod_has_ended_when_its_last_container_has(
    order: tuple[str, str], first: dict[str, object], last: dict[str, object], outcome: str
) -> None:
    """A repeated exit or an unexpected container ends no pod. The exits determine its outcome."""
    state, _ = handle(planned(begun_ns=5), failure("HookActor"), 5)
    for container in ("done", order[0], order[0]):
        exited = ContainerExited(uid="u", container=container, **first)  # type: ignore[arg-type]
        state, decisions = handle(state, exited, 6)
        assert decisions == []
    exited = ContainerExited(uid="u", container=order[1], **last)  # type: ignore[arg-type]
    state, (ended, over) = handle(state, exited, 7)
    assert isinstance(ended, d.PodEnded)
    assert (ended.outcome, ended.elapsed_ns, ended.gone) == (outcome, 2, outcome == "unknown")
    assert over == d.PodsEnded()


@pytest.mark.parametrize("fails_first", [False, True])
def test_the_release_is_secured_after_another_failure(fails_first: bool) -> None:
    """Two seconds after the last pod's end."""
    ended, failed = d.PodsEnded(), failure("LogindActor")
    state = planned()
    for event in (failed, ended) if fails_first else (ended, failed):
        state, _ = handle(state, event, 5)
    assert FALLBACK.deadline(state) == 5 + 2 * NS_PER_SECOND
    _, decisions = handle(state, Tick(), 5 + 2 * NS_PER_SECOND)
    assert [type(each) for each in decisions] == [d.ReleaseLock]


SCRIPT = """
shutdown poweroff total=30s critical=10s
  web p=0 grace=5
fail HookActor:web ContainerExited
exit web
"""


def test_without_the_last_states_it_lists_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in the hand-over costs the plan, not the daemon."""

    def broken(*states: object) -> FallbackState:
        raise KeyError

    assert SHUTDOWN.rescue is not None
    monkeypatch.setattr(SHUTDOWN, "rescue", SHUTDOWN.rescue._replace(inherit=broken))
    (bench,) = benches(SCRIPT)
    assert isinstance(bench.records[-1].event, d.TakeInventory)
