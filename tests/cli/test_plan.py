"""``ebbtide plan`` and ``ebbtide config``: promised shapes, plain tables, and what comes from where."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_status import daemon
from tests.commands import Run

__all__ = ["daemon"]

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
     spec: {terminationGracePeriodSeconds: 120, priority: 0, containers: [{name: web}]}}
  - {apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, uid: u-2},
     spec: {terminationGracePeriodSeconds: 5, priority: 200000, containers: [{name: db,
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
    """Every promised field; waves in their order, empty ones with empty pods."""
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
    """The table in a pipe, as it stands in the golden file: plain, no wrapping, no trailing blanks."""
    out = run("plan", "--config", config, "--pods", pods, "--grant", "40s").out
    assert out == (GOLDEN / "plan.txt").read_text()


def test_plan_reads_pods_from_standard_input(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kubectl get pods -o yaml | ebbtide plan --pods -``."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PODS.encode())))
    document = json.loads(run("plan", "--config", config, "--pods", "-", "-o", "json").out)
    assert sum(len(wave["pods"]) for wave in document["waves"]) == 2


@pytest.mark.parametrize("words", [
    ("plan", "--pods", "x.yaml", "--mode", "cri"),
    ("plan", "--mode", "process", "--node-name", "n"),
    ("doctor", "--mode", "process", "--cri", "/run/x.sock"),
    ("doctor", "--measure", "--mode", "process", "--kubeconfig", "k"),
], ids=" ".join)  # fmt: skip
def test_options_that_would_do_nothing_are_refused(run: Run, config: Path, words: tuple[str, ...]) -> None:
    """One line that says which to leave out."""
    ran = run(*words, "--config", config)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "leave" in ran.err


def test_config_check(run: Run, config: Path, tmp_path: Path) -> None:
    """0 when it can be honoured; 1 when it is valid but logind grants less and may not be asked for more."""
    meek = tmp_path / "meek.yaml"
    meek.write_text(f"{CONFIG}raiseGrant: false\n")
    assert run("config", "check", "--config", config, "--grant", "5s").code == 0
    ran = run("config", "check", "--config", meek, "--grant", "5s", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["valid"], document["honoured"]) == (1, True, False)


def test_plan_says_what_it_could_not_know(run: Run, tmp_path: Path) -> None:
    """An empty plan is no good news where nobody was found to ask; named pods and a grant need no remark."""
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n")
    (tmp_path / "pods").mkdir()
    plan = ("plan", "--config", config, "--runtime", tmp_path, "-o", "json")

    def codes(*more: str | Path) -> list[str]:
        return [warning["code"] for warning in json.loads(run(*plan, *more).out)["warnings"]]

    assert codes() == ["no-pods", "grant-unknown"]
    assert codes("--pods", tmp_path / "pods", "--grant", "40s") == []
