"""What `ebbtide plan` makes of pods and settings. Its promised JSON: `tests/cli/test_plan.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide.actors.policy.planning import Plan
from ebbtide.cli.plan import plan_document, show_plan
from ebbtide.config import parse as parse_config
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Settings
from ebbtide.manifests import Manifest, parse_manifests, plan_of

CONFIG = (
    b"apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
    b"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n"
)
SETTINGS = parse_config([("c", CONFIG)]).settings


def manifests(*pods: str) -> list[Manifest]:
    text = "---\n".join(f"kind: Pod\n{pod}\n" for pod in pods)
    return parse_manifests("p.yaml", text.encode())


def web(grace: int = 20, extra: str = "", name: str = "web-0") -> str:
    return (
        f"metadata: {{name: {name}}}\n"
        f"spec: {{priority: 0, terminationGracePeriodSeconds: {grace}, containers: [{{name: c}}]}}\n{extra}"
    )


def plan(pods: list[Manifest], grant: int | None = 40, settings: Settings = SETTINGS) -> Plan:
    return plan_of(settings, pods, None if grant is None else grant * NS_PER_SECOND)


def printed(capsys: pytest.CaptureFixture[str], found: Plan, pods: list[Manifest]) -> str:
    show_plan(found, [each.pod for each in pods])
    return capsys.readouterr().out


def as_json(found: Plan, pods: list[Manifest]) -> Any:
    return msgspec.to_builtins(plan_document(found, [each.pod for each in pods]))


def test_under_a_small_grant_the_numbers_are_what_pods_would_really_get() -> None:
    """And every cut has its warning."""
    pods = manifests(web(grace=120))
    found = as_json(plan(pods, grant=15), pods)
    assert (found["overrideNeeded"], found["budgetSeconds"]) == (True, 15)
    assert found["waves"][0]["periodSeconds"] == found["waves"][0]["pods"][0]["graceSeconds"] == 5
    off = as_json(plan(pods, settings=Settings()), pods)
    assert (off["enabled"], off["waves"]) == (False, [])
    unknown = as_json(plan(pods, grant=None), pods)
    assert (unknown["grantSeconds"], unknown["overrideNeeded"]) == (None, False)
    codes = [each["code"] for each in found["warnings"]]
    assert codes == ["grant-too-small", "wave-cut", "grace-cut"]


def test_pods_that_have_ended_are_left_out() -> None:
    """A list from a cluster holds finished jobs too."""
    pods = manifests(web(extra="status: {phase: Succeeded}"))
    assert [wave.pods for wave in plan(pods).waves] == [(), ()]


def test_a_class_that_every_cluster_has_and_the_sleep_gate_reach_the_plan() -> None:
    """What only a manifest knows, and what only the configuration knows."""
    pods = manifests(
        "metadata: {name: etcd}\nspec: {priorityClassName: system-node-critical, "
        "terminationGracePeriodSeconds: 9, "
        "containers: [{name: c, lifecycle: {preStop: {sleep: {seconds: 9}}}}]}"
    )
    codes = [code for code, _ in plan(pods).warnings]
    assert codes == ["sleep-fills-grace"]
    assert [len(wave.pods) for wave in plan(pods).waves] == [0, 1]
    gated = parse_config([("c", CONFIG + b"featureGates: {PodLifecycleSleepAction: false}")]).settings
    assert plan(pods, settings=gated).warnings == ()


def test_the_table_has_a_row_a_pod_and_a_line_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain in a pipe; empty waves are shown as such."""
    pods = manifests(web(grace=120))
    lines = printed(capsys, plan(pods), pods).splitlines()
    assert lines[0] == "requested 30 s, granted 40 s, budget 30 s, reserve 5 s"
    assert lines[2].split() == ["0", "0", "20", "s", "web-0", "120", "s", "20", "s"]
    assert lines[3].split() == ["1", "2000000000", "10", "s", "no", "pods"]
    assert lines[4] == "grace-cut: web-0 asks for 120 s and gets 20 s: wave 0 has 20 s"
    assert printed(capsys, plan(pods, settings=Settings()), pods).startswith(
        "graceful shutdown is off\ndisabled: "
    )
    assert "granted not known" in printed(capsys, plan(pods, grant=None), pods)


def test_warnings_of_one_code_stand_together_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred pods of one template are three lines and a number."""
    pods = manifests(*(web(grace=120, name=f"web-{each}") for each in range(100)))
    lines = printed(capsys, plan(pods), pods).splitlines()
    assert [line for line in lines if line.startswith("grace-cut")] == [
        *(f"grace-cut: web-{each} asks for 120 s and gets 20 s: wave 0 has 20 s" for each in range(3)),
        "grace-cut: and 97 more like these: see them all with -o json",
    ]
    assert len(as_json(plan(pods), pods)["warnings"]) == 100
