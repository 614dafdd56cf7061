"""Every verb of ``replay`` as a shell runs it: golden output, JSON, and wrong requests."""

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


#: Golden file to command. The journal is the golden shutdown, or the fixture that the file's name names.
GOLDENS = {
    "timeline-shutdown-v1.txt": "timeline",
    "timeline-pod.json": "timeline --pod stuck-0 -o json",
    "state-58.txt": "state --at 58",
    "state-pod.json": "state --at 58 --pod stuck-0 -o json",
    "blame.txt": "blame",
    "critical-chain.txt": "critical-chain",
    "refused-blame.txt": "blame -n 4",
    "two-diff.txt": "diff -2 last",
    "what-if-more-time.txt": "what-if --config new.yaml",
    "what-if-other-pods.txt": "what-if --pods pods.yaml",
    "advise-fleet.txt": "advise",
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(run: Run, two: Path, refused: Path, fleet: Path, name: str) -> None:
    """As it was read before it was committed; the end of ``diff`` goes to standard error."""
    places = {"two": two, "refused": refused, "fleet": fleet}
    journal = next((places[word] for word in name.split(".")[0].split("-") if word in places), SHUTDOWN)
    ran = run("replay", *GOLDENS[name].split(), "--journal", journal)
    assert ran.code == 0
    golden(name, ran.out + ran.err)


# --- documents


def test_diff_as_json(run: Run, two: Path) -> None:
    """Durations have units; values of one side only are left out."""
    ran = run("replay", "diff", "-2", "-1", "--journal", two, "-o", "json")
    document = json.loads(ran.out)
    changes = {(change.get("subject", ""), change["what"]): change for change in document["changes"]}
    grant = {"section": "shutdown", "what": "grant", "aSeconds": 18.0, "bSeconds": 12.0}
    assert changes["", "grant"] == grant
    assert "b" not in changes["shop/old-0", "outcome"]
    assert [document[side]["id"] for side in "ab"] == ["00010203-12", "00010203-81"]
    assert (document["podsAlike"], ran.code, ran.err) == (0, 0, "")


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


# --- wrong requests


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("blame", "-7"), "no shutdown '-7' in this journal: it has 1, the last is 00010203-12"),
        (("critical-chain", "nonsense"), "no shutdown 'nonsense' in this journal"),
        (("blame", "--wave", "3"), "no wave 3 in 00010203-12: it had 0 to 2"),
        (("diff", "last", "-x"), "no such option: -x"),
        (("blame", "--jurnal", "x"), "no such option '--jurnal' (did you mean '--journal'?)"),
        (("diff", "last", "last", "--othr=x"), "no such option '--othr' (did you mean '--other'?)"),
        (("critical-chain", "last", "--wave", "0"), "no such option '--wave'"),
        (("diff", "last"), "missing argument 'B'"),
        (("verify", "-9"), "no shutdown '-9' in this journal"),
        (("verify", "--last"), "no such option"),
        (("state", "--at", "100"), "the last one is 99"),
        (("state", "--at", "0"), "there is no record 0"),
        (("state", "--at", "20", "--pod", "nobody"), "no such actor at record 20"),
        (
            ("state", "--at", "5", "--actor", "wave"),
            "there are config, logind, kubelet, node, episode, fallback",
        ),
        (("state", "--at", "sometime"), "--at 'sometime' is neither"),
        (("state", "--at", "-1s"), "before the signal"),
        (("state", "--at", "1999-01-01T00:00:00Z"), "the journal begins after that time"),
        (("what-if",), "name a change"),
        (("what-if", "-9", "--grant", "3s"), "it has 1"),
        (("what-if", "--config", "missing.yaml"), "cannot read missing.yaml"),
        (
            ("diff", "last", "last", "--other", "/nonexistent"),
            "packed journal: name the journal's directory\n",
        ),
        (
            ("blame", "--journal", "s3://x/y"),
            "s3://x/y is a URL: only 'ebbtide fleet' reads those, by --journals",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(run: Run, arguments: tuple[str, ...], line: str) -> None:
    """Exit code 2, and no standard output."""
    ran = run("replay", *arguments, "--journal", SHUTDOWN)
    assert (ran.code, ran.out) == (2, "")
    assert line in ran.err
    assert ran.err.count("\n") == 1
