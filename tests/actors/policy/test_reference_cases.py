"""The reference's tables against our rules, and both table copies against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.actors.policy import grace_periods
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.values import Period, Pod, Settings
from ebbtide.manifests import sleep_mistake

OURS = Path(__file__).parents[2] / "cases"
SHARED = Path(__file__).parents[4] / "shared" / "cases"

#: Human texts; each copy has its own. ("not nil" comes from an unquoted note with a comma.)
WORDS = ("name", "note", "not nil", "not_ours", "want_message", "error")


def tables(name: str, folder: Path = OURS) -> list[list[dict[str, Any]]]:
    """The cases of each document of one file."""
    documents = yaml.safe_load_all((folder / name).read_text())
    return [document["cases"] for document in documents]


def params(name: str, document: int = 0) -> list[Any]:
    """A document's cases as test parameters, without those for other components."""
    cases = [case for case in tables(name)[document] if "not_ours" not in case]
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def numbers(case: dict[str, Any]) -> dict[str, Any]:
    """A case without its texts: both copies must agree on it."""
    kept = {key: value for key, value in case.items() if key not in WORDS}
    if isinstance(kept.get("want"), str):
        kept["want"] = "error" if kept["want"] == "error" else "words"
    return kept | {"fails": case.get("error") is not None}


FILES = (
    "grants.yaml",
    "kubelet-grouping.yaml",
    "kubelet-migrate.yaml",
    "kubelet-sleep.yaml",
    "kubelet-hooks.yaml",
)


def from_seconds(by_priority: dict[int, int]) -> tuple[Period, ...]:
    listed = tuple(Period(priority=priority, seconds=seconds) for priority, seconds in by_priority.items())
    return grace_periods.effective_periods(Settings(by_pod_priority=listed))


def pair(total_seconds: int, critical_seconds: int) -> tuple[Period, ...]:
    return grace_periods.migrate_two_values(total_seconds * NS_PER_SECOND, critical_seconds * NS_PER_SECOND)


@pytest.mark.parametrize("case", params("kubelet-migrate.yaml"))
def test_two_values_become_the_reference_periods(case: dict[str, Any]) -> None:
    """The two-value form gives the periods of the table, or none."""
    expected = tuple(Period(**each) for each in case["want"] or ())
    assert pair(case["total_s"], case["critical_s"]) == expected


@pytest.mark.parametrize("case", params("kubelet-grouping.yaml"))
def test_pods_go_to_the_reference_waves(case: dict[str, Any]) -> None:
    """Each pod is in the wave of the table, in the order given."""
    if "config" in case:
        periods = from_seconds({each["priority"]: each["seconds"] for each in case["config"]})
    else:
        periods = pair(case["config_from"]["total_s"], case["config_from"]["critical_s"])
    pods = [Pod(uid=each["name"], namespace="default", **each) for each in case["pods"]]
    found = [
        {"priority": period.priority, "seconds": period.seconds, "pods": [pod.name for pod in members]}
        for period, members in zip(periods, grace_periods.group_pods(periods, pods), strict=True)
    ]
    assert found == case["want"]


@pytest.mark.parametrize("case", params("grants.yaml"))
def test_a_small_grant_is_shared_from_the_highest_priority_down(case: dict[str, Any]) -> None:
    """KEP-2000: the regular share shrinks first."""
    by_priority = case.get("by_priority_s")
    periods = from_seconds(by_priority) if by_priority else pair(case["total_s"], case["critical_s"])
    shared = grace_periods.share_grant(periods, case["grant_s"])
    assert {period.priority: period.seconds for period in shared} == case["periods_s"]
    assert grace_periods.requested_seconds(shared) == min(
        case["grant_s"], grace_periods.requested_seconds(periods)
    )


@pytest.mark.parametrize("case", params("kubelet-sleep.yaml", document=1))
def test_a_sleep_in_a_manifest_is_checked_as_by_the_api_server(case: dict[str, Any]) -> None:
    """The bounds depend on the gate for zero; the message names the grace, and the gate where it helps."""
    found = sleep_mistake(case["sleep_s"], case["grace_s"], case["allow_zero"])
    if case["error"] is None:
        assert found == ""
        return
    rule = {"msg_off": "must be greater than 0", "msg_on": "must be non-negative"}[case["error"]]
    assert f"{rule} and less than terminationGracePeriodSeconds ({case['grace_s']})" in found
    assert ("PodLifecycleSleepActionAllowZero" in found) is (case["error"] == "msg_off")


@pytest.mark.parametrize("case", params("kubelet-hooks.yaml", document=1))
def test_the_grace_of_a_kill_is_the_pods_and_the_floor_without_one(case: dict[str, Any]) -> None:
    """A long wave keeps a pod's own grace; no grace is below the 2 s floor."""
    pod = Pod(uid="u", namespace="default", name="p", grace_seconds=case["pod"])
    period_seconds = 3600 if case["pod"] is not None else 0
    assert max(FLOOR_SECONDS, grace_periods.pod_grace_seconds(period_seconds, pod, 0)) == case["want"]


@pytest.mark.parametrize("name", FILES)
def test_our_copy_agrees_with_the_shared_one(name: str) -> None:
    """If the shared tables exist beside the repository, the numbers are equal."""
    if not SHARED.is_dir():
        pytest.skip("the shared tables do not lie beside this clone")
    ours, shared = (tables(name, folder) for folder in (OURS, SHARED))
    assert [list(map(numbers, cases)) for cases in ours] == [list(map(numbers, cases)) for cases in shared]


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_ours_says_why(name: str) -> None:
    """A skipped row has a reason, and no file is skipped whole."""
    cases = [case for document in tables(name) for case in document]
    reasons = [case["not_ours"] for case in cases if "not_ours" in case]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) < len(cases)
