"""A rollout held against a fleet's waves: what is needed, what there is, and which of them is the limit."""

from __future__ import annotations

import pytest

from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.actors.policy.planning import Plan, make_plan
from ebbtide.events.values import Hook, Pod, Settings
from ebbtide.replay.advise import Stop, observed_stops
from ebbtide.replay.fit import MisfitCode, fit
from tests.replay.test_advise import account, ended, killed
from tests.replay.whatif.bed import HIGH, SECOND, pod, settings


def plan(*pods: Pod, given: Settings | None = None, grant_ns: int | None = None) -> Plan:
    chosen = given or settings()
    return make_plan(effective_periods(chosen), grant_ns, 5 * SECOND, pods, chosen.budget)


def past(*told: object) -> list[Stop]:
    return list(observed_stops([account(*told)]))  # type: ignore[arg-type]


def sleeper(name: str, seconds: int, *, priority: int = 0, grace: int = 60) -> Pod:
    return pod(name, priority, grace, Hook(kind="sleep", sleep_seconds=seconds))


@pytest.mark.parametrize(
    "planned, history, code, needs",
    [
        (pod("web"), (ended("web-1", 25),), "wave-too-short", "needs 25 s and has 20 s in wave 0"),
        (
            pod("web", grace=15),
            (ended("web-1", 16),),
            "grace-too-short",
            "its own grace of 15 s is the limit",
        ),
        (sleeper("web", 30), (), "hook-too-long", "its preStop sleep alone takes 30 s"),
        (sleeper("web", 12), (ended("web-1", 9),), "wave-too-short", "needs 21 s"),
        (
            pod("db", HIGH),
            (killed("db-1", 20),),
            "never-enough",
            "needs more than 20 s and has 10 s in wave 1",
        ),
    ],
)
def test_what_does_not_fit(planned: Pod, history: tuple[object, ...], code: MisfitCode, needs: str) -> None:
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


def test_what_was_killed_after_as_much_time_is_a_finding_though_another_ended() -> None:
    """One ended at 2 s, and nine were killed at 30 s: 20 s are not known to be enough."""
    planned = pod("web")
    history = past(ended("web-1", 2), killed("web-2", 15), *(killed(f"web-{at}", 30) for at in range(3, 12)))
    (misfit,) = fit(plan(planned), [planned], history).misfits
    assert (misfit.code, misfit.needed_ns, misfit.at_least) == ("sometimes-killed", 30 * SECOND, True)
    assert "needs more than 30 s and has 20 s in wave 0" in misfit.message
    assert misfit.message.endswith("it was killed 9 of 11 times after as much time or more")
