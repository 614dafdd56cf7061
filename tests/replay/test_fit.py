"""A rollout held against a fleet's waves: what is needed, what there is, and which of them is the limit."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.actors.policy.plan import Plan, make_plan
from ebbtide.events.model import Container, Hook, Pod, Settings
from ebbtide.events.record.model import ContainerRecord, HookRecord, PodRecord
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


def test_a_pod_without_grace_is_judged_by_what_is_on_record() -> None:
    """To need 0 and to have 0 is no finding; to have been killed after 5 s is one."""
    planned = pod("web", grace=0)
    found = fit(plan(planned), [planned], [])
    assert (found.misfits, found.unknown) == ((), (planned,))
    (misfit,) = fit(plan(planned), [planned], past(killed("web-1", 5))).misfits
    assert (misfit.code, misfit.needed_ns) == ("never-enough", 5 * SECOND)


def test_what_was_killed_after_as_much_time_is_a_finding_though_another_ended() -> None:
    """One ended at 2 s, and nine were killed at 30 s: 20 s are not known to be enough."""
    planned = pod("web")
    history = past(ended("web-1", 2), killed("web-2", 15), *(killed(f"web-{at}", 30) for at in range(3, 12)))
    (misfit,) = fit(plan(planned), [planned], history).misfits
    assert (misfit.code, misfit.needed_ns, misfit.at_least) == ("sometimes-killed", 30 * SECOND, True)
    assert "needs more than 30 s and has 20 s in wave 0" in misfit.message
    assert misfit.message.endswith("it was killed 9 of 11 times after as much time or more")


def test_a_hook_is_no_other_containers() -> None:
    """One slept 18 s, the other stopped in 19 s: with a sleep of 1 s the pod needs 19 s, and not 2 s."""
    history = past(slept("web-1", 18))
    planned = two(sleep_seconds=1, grace=10)
    (misfit,) = fit(plan(planned), [planned], history).misfits
    assert (misfit.code, misfit.needed_ns) == ("grace-too-short", 19 * SECOND)
    longer = two(sleep_seconds=30, grace=60)
    (misfit,) = fit(plan(longer, given=settings(low=31)), [longer], history).misfits
    assert misfit.needed_ns == 31 * SECOND


def test_a_sidecar_stops_after_the_others() -> None:
    """It took 2 s after them; with a longer sleep before, it still does."""
    mesh = ContainerRecord(name="mesh", sidecar=True, signalled_ns=SECOND * 10, exited_ns=SECOND * 12)
    main = ContainerRecord(name="main", signalled_ns=9 * SECOND, exited_ns=10 * SECOND)
    history = past(ended("web-1", 11, hooks=(sleeping(8),), containers=(mesh, main)))
    planned = msgspec.structs.replace(
        sleeper("web", 17),
        containers=(Container(name="mesh", sidecar=True), sleeper("web", 17).containers[0]),
    )
    (misfit,) = fit(plan(planned), [planned], history).misfits
    assert misfit.needed_ns == 20 * SECOND


def sleeping(seconds: int) -> HookRecord:
    until_ns = SECOND + seconds * SECOND
    return HookRecord(
        container="main", kind="sleep", began_ns=SECOND, until_ns=until_ns, ended_ns=until_ns, result="done"
    )


def slept(name: str, seconds: int) -> PodRecord:
    """``main`` slept so long and stopped in 1 s, ``side`` had no hook and stopped in 19 s."""
    until_ns = SECOND + seconds * SECOND
    main = ContainerRecord(name="main", signalled_ns=until_ns, exited_ns=until_ns + SECOND)
    side = ContainerRecord(name="side", signalled_ns=SECOND, exited_ns=20 * SECOND)
    return ended(name, max(seconds + 1, 19), hooks=(sleeping(seconds),), containers=(main, side))


def two(sleep_seconds: int | None, grace: int) -> Pod:
    hook = None if sleep_seconds is None else Hook(kind="sleep", sleep_seconds=sleep_seconds)
    containers = (Container(name="main", hook=hook), Container(name="side"))
    return msgspec.structs.replace(pod("web", grace=grace), containers=containers)


def test_a_grant_that_is_too_small_is_the_waves() -> None:
    """Under a grant of 15 s the first wave has 5 s."""
    planned = pod("web")
    found = fit(plan(planned, grant_ns=15 * SECOND), [planned], past(ended("web-1", 9)))
    assert [(each.code, each.has_ns) for each in found.misfits] == [("wave-too-short", 5 * SECOND)]


def test_the_sleep_gate_makes_a_sleep_nothing() -> None:
    """With the gate off a sleep hook succeeds at once."""
    planned = sleeper("web", 30)
    found = fit(plan(planned), [planned], [], sleep_action=False)
    assert found.fits
    assert found.unknown == (planned,)
