"""The plan and its explanations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide.actors.policy.grace_periods import (
    CRITICAL_PRIORITY,
    as_counted,
    effective_periods,
    migrate_two_values,
    planned_waves,
)
from ebbtide.actors.policy.planning import Plan, make_plan
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import (
    Budget,
    Container,
    Deletion,
    Hook,
    HookKind,
    Period,
    Pod,
    Settings,
    TerminationMode,
)
from tests import journals

PAIR = migrate_two_values(30 * NS_PER_SECOND, 10 * NS_PER_SECOND)
RESERVE_NS = 5 * NS_PER_SECOND


def pod(
    name: str,
    grace: int | None = 10,
    priority: int | None = 0,
    hook: Hook | None = None,
    namespace: str = "default",
) -> Pod:
    return journals.pod(name, priority, grace=grace, hook=hook, uid=name, namespace=namespace)


def plan(
    *pods: Pod, grant: int | None = 40, budget: Budget = "strict", periods: tuple[Period, ...] = PAIR
) -> Plan:
    grant_ns = None if grant is None else grant * NS_PER_SECOND
    return make_plan(periods, grant_ns, RESERVE_NS, pods, budget)


def messages(found: Plan, code: str) -> list[str]:
    return [message for each, message in found.warnings if each == code]


def test_a_plan_without_cuts_has_numbers_and_no_warnings() -> None:
    """Waves in ascending priority, empty ones included, graces in seconds."""
    found = plan(pod("a"), pod("b", grace=30))
    assert (found.enabled, found.requested_seconds, found.grant_seconds) == (True, 30, 40)
    assert (found.budget_seconds, found.reserve_seconds, found.override_needed) == (30, 5, False)
    first, last = found.waves
    assert [each.grace_seconds for each in first.pods] == [10, 20]
    assert (last.priority, last.period_seconds, last.pods) == (2_000_000_000, 10, ())
    assert plan(pod("a")).warnings == ()


@pytest.mark.parametrize(
    "grant, budget_seconds, override, periods",
    [
        (35, 30, False, [20, 10]),
        (34, 30, True, [20, 10]),
        (15, 15, True, [5, 10]),
        (0, 0, True, [0, 0]),
        (None, 30, False, [20, 10]),
    ],
)
def test_the_grant_bounds_the_budget_and_the_reserve_cuts_nothing(
    grant: int | None, budget_seconds: int, override: bool, periods: list[int]
) -> None:
    """Asked for in all are the periods and the reserve; only the periods are ever cut."""
    found = plan(pod("a"), grant=grant)
    assert (found.budget_seconds, found.override_needed) == (budget_seconds, override)
    assert [wave.period_seconds for wave in found.waves] == periods


def test_a_broken_second_of_grant_goes_to_no_pod() -> None:
    """The budget keeps it exactly, graces are whole seconds."""
    found = make_plan(PAIR, 15_500_000_000, RESERVE_NS, [pod("a", grace=30)], "strict")
    assert (found.grant_seconds, found.budget_seconds, found.budget_ns) == (15, 15, 15_500_000_000)
    assert [wave.period_seconds for wave in found.waves] == [5, 10]
    assert "logind grants 15.500 s of the 30 s" in messages(found, "grant-too-small")[0]


HOOKED = Hook(kind="exec")


@pytest.mark.parametrize(
    "reserve, grant, means, plain, hooked, warned",
    [
        (5, 35, "", 10, 10, ""),
        (3, 33, "api", 10, 10, ""),
        (2, 32, "", 10, 9, "the reserve is 2 s, so the last pods lose up to 1 s: set reserve to 3 s"),
        (0, 30, "cri", 9, 7, "the reserve is 0 s, so the last pods lose up to 3 s: set reserve to 3 s"),
        (0, 30, "api", 7, 7, "the reserve is 0 s, so"),
        (0, 30, "observe", 10, 10, ""),
        (0, None, "", 9, 7, "the reserve is 0 s, so"),
        (5, 32, "", 10, 9, "not for the whole reserve of 5 s, so the last pods lose up to 1 s: raise"),
        (5, 34, "", 10, 10, "not for the whole reserve of 5 s: raise"),
        (5, 5, "", 4, 2, "logind grants 5 s of the 30 s"),
        (5, 1, "", 1, 1, "logind grants 1 s of the 30 s"),
    ],
)
def test_without_its_reserve_the_end_comes_out_of_the_last_pods_time(
    reserve: int, grant: int | None, means: TerminationMode, plain: int, hooked: int, warned: str
) -> None:
    """A pod whose stop signal may come last, after a hook or from the kubelet, keeps the floor too."""
    pods = [pod("first", grace=30), pod("a", 30, CRITICAL_PRIORITY), pod("b", 30, CRITICAL_PRIORITY, HOOKED)]
    grant_ns = None if grant is None else grant * NS_PER_SECOND
    found = make_plan(PAIR, grant_ns, reserve * NS_PER_SECOND, pods, "strict", means=means)
    assert [each.grace_seconds for each in found.waves[1].pods] == [plain, hooked]
    assert any(warned in message for _, message in found.warnings)
    assert bool(warned) == any(code.startswith(("reserve", "grant-too")) for code, _ in found.warnings)
    shown = [f"wave 1 has 10 s, {10 - each} s of them for the end" for each in (plain, hooked) if each < 10]
    cuts = [each for each in messages(found, "grace-cut") if "wave 1 has 10 s" in each]
    assert all(any(each in cut for cut in cuts) for each in (shown if (grant or 30) >= 10 else ()))


def test_no_pod_gets_more_than_the_last_sigkill_leaves() -> None:
    """The record has the same limit: below a second the margins at the end shrink with the grant."""
    assert messages(plan(pod("a"), grant=1), "grace-below-floor") == [
        "a gets 250 ms, and SIGKILL comes 250 ms after the stop signal at the latest"
    ]


def test_switched_off_there_are_no_waves() -> None:
    """One line tells how to enable it."""
    found = plan(pod("a"), periods=())
    assert (found.enabled, found.waves, found.override_needed) == (False, (), False)
    assert [code for code, _ in found.warnings] == ["disabled"]


@pytest.mark.parametrize(
    "grant, budget, priority, expected",
    [
        (40, "strict", 0, "web-0 asks for 120 s and gets 20 s: wave 0 has 20 s"),
        (15, "strict", 0, "web-0 asks for 120 s and gets 5 s: wave 0 has 5 s under the grant"),
        (40, "elastic", 0, "web-0 asks for 120 s and gets 20 s: wave 0 has 20 s"),
        (
            40,
            "elastic",
            2_000_000_000,
            "web-0 asks for 120 s and gets 10 s: wave 1 has 10 s, and what earlier waves leave",
        ),
    ],
)
def test_every_cut_of_a_pods_grace_is_explained(
    grant: int, budget: Budget, priority: int, expected: str
) -> None:
    """By the wave's period, by the grant, and with what an elastic budget may give back."""
    found = plan(pod("web-0", grace=120, priority=priority), grant=grant, budget=budget)
    assert messages(found, "grace-cut") == [expected]


@pytest.mark.parametrize(
    "seconds, kind, code",
    [
        (19, "sleep", None),
        (20, "sleep", "sleep-fills-grace"),
        (25, "sleep", "sleep-cut"),
        (0, "tcpSocket", "hook-invalid"),
        (0, "exec", None),
    ],
)
def test_hooks_that_cannot_do_their_work_are_named(seconds: int, kind: HookKind, code: str | None) -> None:
    """A sleep against the pod's grace, and the handler that fails when it runs."""
    found = plan(pod("a", grace=20, hook=Hook(kind=kind, sleep_seconds=seconds)))
    assert [each for each, _ in found.warnings] == ([code] if code else [])


def test_with_its_gate_off_a_sleep_is_not_warned_of() -> None:
    """It succeeds at once then."""
    sleeper = pod("a", grace=20, hook=Hook(kind="sleep", sleep_seconds=25))
    assert make_plan(PAIR, None, RESERVE_NS, [sleeper], "strict", sleep_action=False).warnings == ()


def test_a_container_that_has_exited_has_no_hook_to_warn_of() -> None:
    """Only running containers get one."""
    done = Container(name="main", hook=Hook(kind="tcpSocket"), running=False)
    gone = Pod(uid="a", namespace="default", name="a", priority=0, grace_seconds=5, containers=(done,))
    assert plan(gone).warnings == ()


DELETED = Deletion(since_ns=-2 * NS_PER_SECOND, grace_seconds=8)

#: As planned for the kubelet.
ASSIGNED = as_counted(
    replace(pod("a", priority=2_000_001_000), static=True, priority_assigned=True), "observe"
)


@pytest.mark.parametrize(
    "asked, code, part",
    [
        (pod("a", grace=None), "grace-unset", "a sets no terminationGracePeriodSeconds"),
        (pod("a", grace=1), "grace-below-floor", "a gets 1 s"),
        (pod("a", priority=-5), "priority-below", "a has priority -5, below every configured one"),
        (pod("a", priority=None), "priority-unset", "a: no numeric spec.priority"),
        (ASSIGNED, "priority-class-only", "a: a static pod with a priorityClassName alone"),
        (pod("a", grace=0, hook=Hook(kind="exec")), "grace-below-floor", "a gets 1 s"),
        (replace(pod("a", grace=30), deletion=DELETED), "grace-left", "deleted already: 6 s of its grace"),
        (pod("a", grace=99, namespace="shop"), "grace-cut", "shop/a asks for 99 s"),
    ],
)
def test_what_is_odd_about_a_pod_is_said(asked: Pod, code: str, part: str) -> None:
    """Each rule once, with the pod's name, and its namespace unless that is default."""
    assert any(part in message for message in messages(plan(asked), code))


def test_what_is_odd_about_the_waves_is_said() -> None:
    """Cuts, waves of 0 s with pods in them, and duplicates."""
    cut = plan(pod("a"), grant=8)
    assert messages(cut, "wave-cut")[0].startswith("wave 0 asks for 20 s and gets 0 s: logind grants 8 s")
    assert messages(cut, "wave-zero") == ["wave 0 has 0 s: its pod is signalled and not waited for"]
    assert messages(plan(pod("a"), grant=33), "reserve-not-granted")
    twice = effective_periods(Settings(by_pod_priority=(Period(priority=1, seconds=2),) * 2))
    assert (
        "priority 1 is configured 2 times" in messages(plan(pod("a"), periods=twice), "priority-duplicate")[0]
    )


def test_a_long_list_of_names_is_cut() -> None:
    found = plan(*(pod(f"p{number}", priority=None) for number in range(8)))
    assert messages(found, "priority-unset")[0].startswith("p0, p1, p2, p3, p4 and 3 more:")


@settings(deadline=None)
@given(
    periods=st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 50)), min_size=1, max_size=5),
    grant_ns=st.none() | st.integers(0, 200 * NS_PER_SECOND),
    pods=st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.integers(0, 99)), max_size=20),
)
def test_no_plan_promises_more_than_the_grant(
    periods: list[tuple[int, int]], grant_ns: int | None, pods: list[tuple[int | None, int | None]]
) -> None:
    """Every pod is planned once, within its wave; the waves fill the budget; every cut is explained."""
    effective = effective_periods(
        Settings(by_pod_priority=tuple(Period(priority=p, seconds=s) for p, s in periods))
    )
    inventory = [pod(f"p{n}", grace=g, priority=p) for n, (p, g) in enumerate(pods)]
    found = make_plan(effective, grant_ns, RESERVE_NS, inventory, "strict")
    assert found.waves == planned_waves(effective, grant_ns, inventory, 0)
    assert sum(wave.period_seconds for wave in found.waves) == found.budget_seconds
    graces = {each.uid: each.grace_seconds for wave in found.waves for each in wave.pods}
    assert len(graces) == len(inventory)
    assert all(
        each.grace_seconds <= max(1, wave.period_seconds) for wave in found.waves for each in wave.pods
    )
    cut = [
        each for each in inventory if each.grace_seconds is not None and graces[each.uid] < each.grace_seconds
    ]
    assert len(messages(found, "grace-cut")) == len(cut)
