"""``ebbtide plan`` and ``ebbtide config``: promised shapes, plain tables, and sources of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.actors.policy.planning import Plan
from ebbtide.cli.plan import plan_document, show_plan
from ebbtide.config import parse as parse_config
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Settings
from ebbtide.manifests import Manifest, parse_manifests, plan_of
from ebbtide.node import ShutdownNow
from tests.commands import Run

GOLDEN = Path(__file__).parent / "golden"

CONFIG = """\
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
  - {priority: 0, shutdownGracePeriodSeconds: 20}
  - {priority: 1000, shutdownGracePeriodSeconds: 5}
  - {priority: 100000, shutdownGracePeriodSeconds: 10}
"""

PODS = """\
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: web-0, uid: u-1},
     spec: {terminationGracePeriodSeconds: 120, priority: 0, containers: [{name: web, image: i}]}}
  - {apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, uid: u-2},
     spec: {terminationGracePeriodSeconds: 5, priority: 200000, containers: [{name: db, image: i,
            lifecycle: {preStop: {sleep: {seconds: 5}}}}]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.yaml"
    path.write_text(PODS)
    return path


def test_plan_json_is_the_promised_shape(run: Run, config: Path, pods: Path) -> None:
    """Every promised field; waves in order, empty ones included."""
    ran = run("plan", "--config", config, "--pods", pods, "--grant", "40s", "-o", "json")
    document = json.loads(ran.out)
    warnings = document.pop("warnings")
    assert (ran.code, ran.err) == (0, "")
    assert document == {
        "kind": "Plan",
        "version": 1,
        "enabled": True,
        "requestedSeconds": 35,
        "grantSeconds": 40,
        "budgetSeconds": 35,
        "reserveSeconds": 5,
        "overrideNeeded": False,
        "waves": [
            {
                "priority": 0,
                "periodSeconds": 20,
                "pods": [
                    {"namespace": "default", "name": "web-0", "uid": "u-1", "priority": 0, "graceSeconds": 20}
                ],
            },
            {"priority": 1000, "periodSeconds": 5, "pods": []},
            {
                "priority": 100000,
                "periodSeconds": 10,
                "pods": [
                    {"namespace": "shop", "name": "db-0", "uid": "u-2", "priority": 200000, "graceSeconds": 5}
                ],
            },
        ],
    }
    assert {"code": "grace-cut", "message": "web-0 asks for 120 s and gets 20 s: wave 0 has 20 s"} in warnings
    assert all(set(warning) == {"code", "message"} for warning in warnings)


def test_plan_table_golden(run: Run, config: Path, pods: Path) -> None:
    """Plain, without wrapping and trailing blanks."""
    out = run("plan", "--config", config, "--pods", pods, "--grant", "40s").out
    assert out == (GOLDEN / "plan.txt").read_text()


@pytest.mark.parametrize("words", [
    ("plan", "--pods", "x.yaml", "--mode", "cri"),
    ("plan", "--mode", "process", "--node-name", "n"),
    ("doctor", "--mode", "process", "--cri", "/run/x.sock"),
    ("doctor", "--measure", "--mode", "process", "--kubeconfig", "k"),
], ids=" ".join)  # fmt: skip
def test_options_that_would_do_nothing_are_refused(run: Run, config: Path, words: tuple[str, ...]) -> None:
    """One line with the useless option."""
    ran = run(*words, "--config", config)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "leave" in ran.err


def test_config_check(run: Run, config: Path, tmp_path: Path) -> None:
    """0 if it can be honoured; 1 if valid, but logind grants less and may not be raised."""
    meek = tmp_path / "meek.yaml"
    meek.write_text(f"{CONFIG}raiseGrant: false\n")
    assert run("config", "check", "--config", config, "--grant", "5s").code == 0
    ran = run("config", "check", "--config", meek, "--grant", "5s", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["valid"], document["honoured"]) == (1, True, False)


def test_plan_says_what_it_could_not_know(run: Run, plain: Path, tmp_path: Path) -> None:
    """An empty plan gets a remark; named pods with a grant get none."""
    (tmp_path / "pods").mkdir()
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"priority": 0, "containers": [{"name": "c", "image": "i"}]},
    }
    plan = ("plan", "--config", plain, "--runtime", tmp_path, "-o", "json")

    def codes(*more: str | Path) -> list[str]:
        return [warning["code"] for warning in json.loads(run(*plan, *more).out)["warnings"]]

    assert codes() == ["no-pods", "grant-unknown"]
    assert codes("--pods", tmp_path / "pods", "--grant", "40s") == ["no-pods"]
    (tmp_path / "pods" / "a.json").write_text(json.dumps(pod))
    assert codes("--pods", tmp_path / "pods", "--grant", "40s") == []


# --- by the functions behind the verb --------------------------------------------------------------

PAIR = (
    b"apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
    b"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n"
)
SETTINGS = parse_config([("c", PAIR)]).settings


def parsed(*pods: str) -> list[Manifest]:
    text = "---\n".join(f"kind: Pod\n{pod}\n" for pod in pods)
    return parse_manifests("p.yaml", text.encode())


def web(grace: int = 20, extra: str = "", name: str = "web-0") -> str:
    return (
        f"metadata: {{name: {name}}}\n"
        f"spec: {{priority: 0, terminationGracePeriodSeconds: {grace}, "
        f"containers: [{{name: c, image: i}}]}}\n{extra}"
    )


def made(pods: list[Manifest], grant: int | None = 40, settings: Settings = SETTINGS) -> Plan:
    return plan_of(settings, pods, None if grant is None else grant * NS_PER_SECOND)


def printed(capsys: pytest.CaptureFixture[str], found: Plan, pods: list[Manifest]) -> str:
    show_plan(ShutdownNow(found, [each.pod for each in pods]))
    return capsys.readouterr().out


def as_json(found: Plan, pods: list[Manifest]) -> Any:
    return plan_document(ShutdownNow(found, [each.pod for each in pods]))


def test_under_a_small_grant_the_numbers_are_what_pods_would_really_get() -> None:
    """And every cut has its warning."""
    pods = parsed(web(grace=120))
    found = as_json(made(pods, grant=15), pods)
    assert (found["overrideNeeded"], found["budgetSeconds"]) == (True, 15)
    assert found["waves"][0]["periodSeconds"] == found["waves"][0]["pods"][0]["graceSeconds"] == 5
    off = as_json(made(pods, settings=Settings()), pods)
    assert (off["enabled"], off["waves"]) == (False, [])
    unknown = as_json(made(pods, grant=None), pods)
    assert (unknown["grantSeconds"], unknown["overrideNeeded"]) == (None, False)
    codes = [each["code"] for each in found["warnings"]]
    assert codes == ["grant-too-small", "wave-cut", "grace-cut"]


def test_a_class_that_every_cluster_has_and_the_sleep_gate_reach_the_plan() -> None:
    """Values that only a manifest, or only the configuration, has; ended pods stay out."""
    pods = parsed(
        "metadata: {name: etcd}\nspec: {priorityClassName: system-node-critical, "
        "terminationGracePeriodSeconds: 9, "
        "containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 9}}}}]}"
    )
    codes = [code for code, _ in made(pods).warnings]
    assert codes == ["sleep-fills-grace"]
    assert [len(wave.pods) for wave in made(pods).waves] == [0, 1]
    gated = parse_config([("c", PAIR + b"featureGates: {PodLifecycleSleepAction: false}")]).settings
    assert made(pods, settings=gated).warnings == ()
    ended = parsed(web(extra="status: {phase: Succeeded}"))
    assert [wave.pods for wave in made(ended).waves] == [(), ()]


def test_the_table_of_no_plan_and_of_no_grant(capsys: pytest.CaptureFixture[str]) -> None:
    pods = parsed(web())
    off = printed(capsys, made(pods, settings=Settings()), pods)
    assert off.startswith("graceful shutdown is off\ndisabled: ")
    assert "granted not known" in printed(capsys, made(pods, grant=None), pods)


def test_warnings_of_one_code_stand_together_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred pods of one template are three lines and a number."""
    pods = parsed(*(web(grace=120, name=f"web-{each}") for each in range(100)))
    lines = printed(capsys, made(pods), pods).splitlines()
    assert [line for line in lines if line.startswith("grace-cut")] == [
        *(f"grace-cut: web-{each} asks for 120 s and gets 20 s: wave 0 has 20 s" for each in range(3)),
        "grace-cut: and 97 more like these: see them all with -o json",
    ]
    assert len(as_json(made(pods), pods)["warnings"]) == 100
