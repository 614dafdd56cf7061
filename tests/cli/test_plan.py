"""``ebbtide plan`` and ``ebbtide config``: promised shapes, plain tables, and sources of values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


ETCD = """\
kind: Pod
metadata: {name: etcd}
spec: {priorityClassName: system-node-critical, terminationGracePeriodSeconds: 9,
  containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 9}}}}]}
---
{kind: Pod, metadata: {name: over}, spec: {containers: [{name: c, image: i}]}, status: {phase: Succeeded}}
"""


@pytest.mark.parametrize(("gate", "codes"), [("true", ["sleep-fills-grace"]), ("false", [])])
def test_what_only_manifests_or_only_the_configuration_say(
    run: Run, plain: Path, tmp_path: Path, gate: str, codes: list[str]
) -> None:
    """The number of a class that every cluster has, and the sleep gate; ended pods stay out."""
    plain.write_text(
        f"{plain.read_text()}shutdownGracePeriodCriticalPods: 10s\n"
        f"featureGates: {{PodLifecycleSleepAction: {gate}}}\n"
    )
    (tmp_path / "etcd.yaml").write_text(ETCD)
    words = ("--pods", tmp_path / "etcd.yaml", "--grant", "40s", "-o", "json")
    document = json.loads(run("plan", "--config", plain, *words).out)
    assert [each["code"] for each in document["warnings"]] == codes
    assert [[each["name"] for each in wave["pods"]] for wave in document["waves"]] == [[], ["etcd"]]


def test_the_table_of_no_plan_and_of_no_grant(run: Run, config: Path, pods: Path, tmp_path: Path) -> None:
    (tmp_path / "off.yaml").write_text(CONFIG.partition("shutdownGrace")[0])
    off = run("plan", "--config", tmp_path / "off.yaml", "--pods", pods)
    assert off.out.startswith("graceful shutdown is off\ndisabled: ")
    assert "granted not known" in run("plan", "--config", config, "--pods", pods).out


def test_warnings_of_one_code_stand_together_and_are_counted(run: Run, config: Path, tmp_path: Path) -> None:
    """A hundred pods of one template are three lines and a number."""
    spec = "{priority: 0, terminationGracePeriodSeconds: 120, containers: [{name: c, image: i}]}"
    pods = [f"{{kind: Pod, metadata: {{name: web-{each}}}, spec: {spec}}}\n" for each in range(100)]
    (tmp_path / "pods.yaml").write_text("---\n".join(pods))
    plan = ("plan", "--config", config, "--pods", tmp_path / "pods.yaml", "--grant", "40s")
    assert [line for line in run(*plan).out.splitlines() if line.startswith("grace-cut")] == [
        *(f"grace-cut: web-{each} asks for 120 s and gets 20 s: wave 0 has 20 s" for each in range(3)),
        "grace-cut: and 97 more like these: see them all with -o json",
    ]
    assert len(json.loads(run(*plan, "-o", "json").out)["warnings"]) == 100
