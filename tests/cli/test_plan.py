"""``ebbtide plan`` and ``ebbtide config``: promised shapes, plain tables, and what comes from where."""

from __future__ import annotations

import json
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
