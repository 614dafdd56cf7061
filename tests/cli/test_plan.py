"""``ebbtide plan`` and ``ebbtide config``: promised shapes, plain tables, and what comes from where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_status import STATUS, Daemon, daemon
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


def test_a_plan_says_what_is_kept_free_at_the_end_and_whence(
    run: Run, config: Path, pods: Path, daemon: Daemon, tmp_path: Path
) -> None:
    """Beside a daemon that says it; where more was measured than the reserve has room for, with the cure."""
    kept = {"lastEndsSeconds": 0.25, "lastStatusesSeconds": 0.25, "releaseSeconds": 0.25, "measured": None}
    words = ("plan", "--config", config, "--pods", pods, "--grant", "40s", "--runtime", tmp_path)

    def planned() -> str:
        daemon.answer["data"] = {**STATUS, "margins": kept}
        return run(*words).out

    assert "kept free at its end: 750 ms: 250 ms for the last pods to go" in planned()
    assert "(nobody has measured this node: see 'ebbtide drill')" in planned()
    kept |= {"releaseSeconds": 1.0, "lastEndsSeconds": 1.0, "measured": 1_700_000_000.0}
    assert "(by the drill of 2023-11-14 22:13:20.000 UTC)" in planned()
    assert "reserve-too-small" not in planned()
    config.write_text(CONFIG + "reserve: 2s\n")
    assert "reserve-too-small: 2.250 s are kept free at the end as a drill measured" in planned()
    assert "raise reserve to 5 s" in planned()


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
