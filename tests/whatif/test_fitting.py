"""A rollout held against a fleet's waves: what is needed, what there is, and which of them is the limit."""

from __future__ import annotations

import pytest

from actors.policy.periods import effective_periods
from actors.policy.plan import Plan, make_plan
from events.model import Container, Hook, Pod, Settings
from replay.advise.fitting import Code, fit
from replay.advise.stops import Stop, stops
from tests.whatif.bed import HIGH, SECOND, pod, settings
from tests.whatif.test_advise import account, ended, killed


def plan(*pods: Pod, given: Settings | None = None, grant_ns: int | None = None) -> Plan:
    chosen = given or settings()
    return make_plan(effective_periods(chosen), grant_ns, 5 * SECOND, pods, chosen.budget)


def past(*told: object) -> list[Stop]:
    return list(stops([account(*told)]))  # type: ignore[arg-type]


def sleeper(name: str, seconds: int, *, priority: int = 0, grace: int = 60) -> Pod:
    return pod(name, priority, grace, Hook(kind="sleep", sleep_seconds=seconds))


@pytest.mark.parametrize(
    "planned, history, code, needs",
    [
        (pod("web"), (ended("web-1", 25),), "wave-too-short", "needs 25s and has 20s in wave 0"),
        (
            pod("web", grace=15),
            (ended("web-1", 16),),
            "grace-too-short",
            "its own grace of 15 s is the limit",
        ),
        (sleeper("web", 30), (), "hook-too-long", "its preStop sleep alone takes 30s"),
        (sleeper("web", 12), (ended("web-1", 9),), "wave-too-short", "needs 21s"),
        (pod("db", HIGH), (killed("db-1", 20),), "never-enough", "needs more than 20s and has 10s in wave 1"),
    ],
)
def test_what_does_not_fit(planned: Pod, history: tuple[object, ...], code: Code, needs: str) -> None:
    """Named with its wave, what it needs, and what there is."""
    found = fit(plan(planned), [planned], past(*history))
    assert not found.fits
    ((misfit),) = found.misfits
    assert (misfit.code, misfit.pod) == (code, planned)
    assert needs in misfit.message


@pytest.mark.parametrize(
    "planned, history",
    [
        (pod("web"), (ended("web-1", 19),)),
        (sleeper("web", 10), (ended("web-1", 9),)),
        (pod("db", HIGH, grace=60), (killed("db-1", 5),)),
    ],
)
def test_what_fits(planned: Pod, history: tuple[object, ...]) -> None:
    """Less than there is; also what was killed sooner than it would be now, because nobody knows."""
    assert fit(plan(planned), [planned], past(*history)).fits


def test_a_grant_that_is_too_small_is_the_waves() -> None:
    """Under a grant of 15 s the first wave has 5 s."""
    planned = pod("web")
    found = fit(plan(planned, grant_ns=15 * SECOND), [planned], past(ended("web-1", 9)))
    assert [(each.code, each.has_ns) for each in found.misfits] == [("wave-too-short", 5 * SECOND)]


def test_a_recorded_sleep_is_taken_for_the_new_one() -> None:
    """It slept 8 s and stopped in 1 s; with a sleep of 12 s it needs 13 s, and not 12 s more than 9 s."""
    from replay.account.model import HookTold

    hook = HookTold(container="main", kind="sleep", began_ns=SECOND, until_ns=9 * SECOND, ended_ns=9 * SECOND)
    history = past(ended("web-1", 9, hooks=(hook,)))
    fits, breaks = sleeper("web", 18), sleeper("web", 19)
    assert fit(plan(fits), [fits], history).fits
    (misfit,) = fit(plan(breaks), [breaks], history).misfits
    assert misfit.needed_ns == 20 * SECOND


def test_a_hook_of_its_own_time_is_taken_as_it_was() -> None:
    """An exec hook beside a sleep: whichever is longer."""
    both = Pod(
        uid="u",
        namespace="shop",
        name="web",
        priority=0,
        grace_seconds=60,
        containers=(
            Container(name="main", hook=Hook(kind="exec")),
            Container(name="side", hook=Hook(kind="sleep", sleep_seconds=2)),
        ),
    )
    (misfit,) = fit(plan(both), [both], past(ended("web-1", 30))).misfits
    assert misfit.needed_ns == 32 * SECOND


def test_the_sleep_gate_makes_a_sleep_nothing() -> None:
    """With the gate off a sleep hook succeeds at once."""
    planned = sleeper("web", 30)
    found = fit(plan(planned), [planned], [], sleep_action=False)
    assert found.fits
    assert found.unknown == (planned,)


def test_what_is_not_on_record_is_said() -> None:
    """No finding, and no silence."""
    planned = pod("new")
    assert fit(plan(planned), [planned], past(ended("web-1", 3))).unknown == (planned,)
