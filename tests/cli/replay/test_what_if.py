"""``replay what-if`` and ``replay advise`` as a shell runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide import replay
from ebbtide.config.loading import DEFAULT_PATH
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import SHUTDOWN, write_files

CONFIG = """\
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
  - {priority: 0, shutdownGracePeriodSeconds: 25}
  - {priority: 1000, shutdownGracePeriodSeconds: 5}
  - {priority: 2000, shutdownGracePeriodSeconds: 5}
"""

PODS = """\
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop},
     spec: {terminationGracePeriodSeconds: 30, priority: 0, containers: [{name: main, image: x,
            lifecycle: {preStop: {sleep: {seconds: 12}}}}]}}
  - {apiVersion: v1, kind: Pod, metadata: {name: new-0, namespace: shop},
     spec: {terminationGracePeriodSeconds: 30, priority: 0, containers: [{name: main, image: x}]}}
"""


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal for each node, by its special event."""
    folder = tmp_path_factory.mktemp("fleet")
    for name, seed in {"calm": 3, "restarted": 12, "withdrawn": 18, "cut-short": 9}.items():
        write_files(folder / name, replay.simulate(seed, synthetic=9, calm=name == "calm").files())
    return folder


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Golden files then have no path of this machine, and no configuration exists."""
    assert not DEFAULT_PATH.exists(), "these tests are about a machine that is not configured"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.yaml").write_text(CONFIG)
    (tmp_path / "pods.yaml").write_text(PODS)


WHAT_IFS: dict[str, tuple[str, ...]] = {
    "more-time.txt": ("--config", "new.yaml"),
    "other-pods.txt": ("--pods", "pods.yaml"),
}


@pytest.mark.parametrize("name", WHAT_IFS)
def test_what_if_tables(run: Run, name: str) -> None:
    ran = run("replay", "what-if", "--journal", SHUTDOWN, *WHAT_IFS[name])
    assert (ran.code, ran.err) == (0, "")
    golden(f"what-if-{name}", ran.out)


@pytest.mark.parametrize("name", ["fleet", "refused"])
def test_advice_tables(run: Run, fleet: Path, refused: Path, name: str) -> None:
    """For a folder of nodes, and for one night with little evidence."""
    ran = run("replay", "advise", "--journal", refused if name == "refused" else fleet)
    assert (ran.code, ran.err) == (0, "")
    golden(f"advise-{name}.txt", ran.out)


def test_what_if_as_json(run: Run) -> None:
    """Both runs, an interval, and each pod's evidence."""
    ran = run("replay", "what-if", "--journal", SHUTDOWN, "--config", "new.yaml", "-o", "json")
    document = json.loads(ran.out)
    assert (document["kind"], document["version"], document["same"]) == ("WhatIf", 2, False)
    assert document["changed"] == ["the configuration new.yaml"]
    assert document["perhapsSaved"] == ["uid-stuck-0"]
    total = document["total"]
    assert total["then"] == 11.611
    assert total["low"] < total["high"] == 26.61
    stuck = next(pod for pod in document["pods"] if pod["name"] == "stuck-0")
    assert (stuck["evidence"], stuck["change"]) == ("bound", "perhaps-saved")
    assert stuck["needed"] == {"seconds": 10.001, "atLeast": True}
    assert (stuck["best"]["outcome"], stuck["worst"]["outcome"]) == ("graceful", "killed")
    assert [wave["then"]["periodSeconds"] for wave in document["waves"]] == [10, 5, 5]
    assert {each["code"] for each in document["assumptions"]} == {"grant", "restart"}


def test_advice_is_a_configuration(run: Run) -> None:
    """``config check`` and what-if accept the output of ``-o yaml``."""
    Path("advice.yaml").write_text(run("replay", "advise", "--journal", SHUTDOWN, "-o", "yaml").out)
    assert run("config", "check", "--config", "advice.yaml").code == 0
    found = run("replay", "what-if", "--journal", SHUTDOWN, "--config", "advice.yaml", "-o", "json")
    assert json.loads(found.out)["lost"] == []
