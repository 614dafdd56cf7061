"""``ebbtide simulate`` from the outside: its result, its journal, and what it refuses."""

from __future__ import annotations

import gc
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.config.loading import DEFAULT_PATH
from ebbtide.replay.sim import simulate as simulating
from ebbtide.replay.sim.invariants import Breach

Run = Callable[..., tuple[int, str, str]]


GOLDEN = Path(__file__).parents[2] / "golden" / "simulated-v1" / "seed-20.txt"

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec:
  terminationGracePeriodSeconds: 8
  containers: [{name: app, image: app}]
"""

CONFIG = """
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriod: 12s
"""

BEHAVIOUR = """
pods:
- match: {name: web-*}
  ignoresSigterm: true
node: {kind: reboot, crashAfter: 1s}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process: exit code, output, remarks."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = guarded(["simulate", *map(str, arguments)])
        gc.enable()  # the command is done with its process
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_json(run: Run, tmp_path: Path) -> None:
    """One document with the run's figures, and the command that makes it again."""
    code, out, err = run("--synthetic", "12", "--seed", "3", "-o", "json", "--calm")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["kind"], told["version"], told["seed"], told["breaches"]) == ("Simulation", 1, 3, [])
    assert told["command"] == "ebbtide simulate --synthetic 12 --calm --seed 3"
    (shutdown,) = told["shutdowns"]
    assert shutdown["outcome"] == "complete"
    assert sum(shutdown["pods"].values()) == 12
    again = json.loads(run("--synthetic", "12", "--seed", "3", "-o", "json", "--calm")[1])
    assert again == told


@pytest.mark.parametrize(
    "node, told",
    [
        (
            "runtimeHangsAfter: 1s, runtimeWakesAfter: 3s",
            ["the runtime hung at +1.000 s", "the runtime woke up at +3.000 s"],
        ),
        (
            "kubeletHangsAfter: 1s, kubeletWakesAfter: 3s",
            ["the kubelet hung at +1.000 s", "the kubelet woke up at +3.000 s"],
        ),
        ("kubelet: away", ["the kubelet is away"]),
        ("kubelet: stays", ["the kubelet stays, whatever it is told"]),
        ("kubelet: runs", []),
    ],
)
def test_what_hangs_is_told_too(run: Run, tmp_path: Path, node: str, told: list[str]) -> None:
    """Of a Kubernetes node: who reads a verdict about a silent runtime finds beside it that it hung."""
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "behaviour.yaml").write_text(f"{BEHAVIOUR.partition('node:')[0]}node: {{{node}}}\n")
    given = ("--pods", tmp_path / "pod.yaml", "--behaviour", tmp_path / "behaviour.yaml", "--mode", "api")
    assert json.loads(run(*given, "-o", "json")[1])["misfortunes"] == told


def test_given(run: Run, tmp_path: Path) -> None:
    """Configuration, pods and behaviour from files are what is simulated."""
    for name, text in (("config.yaml", CONFIG), ("pod.yaml", POD), ("behaviour.yaml", BEHAVIOUR)):
        (tmp_path / name).write_text(text)
    code, out, _ = run(
        "--config",
        tmp_path / "config.yaml",
        "--pods",
        tmp_path / "pod.yaml",
        "--behaviour",
        tmp_path / "behaviour.yaml",
        "-o",
        "json",
    )
    told = json.loads(out)
    assert code == 0
    assert told["misfortunes"] == ["the daemon died at +1.000 s"]
    (shutdown,) = told["shutdowns"]
    assert (shutdown["kind"], shutdown["budgetSeconds"], shutdown["pods"]) == ("reboot", 12.0, {"killed": 1})


def test_many(run: Run, tmp_path: Path) -> None:
    """Many seeds: counts over all of them, each journal in a folder of its own."""
    code, out, err = run("--seeds", "4..6", "--synthetic", "5", "--journal", tmp_path / "fleet", "-o", "json")
    told = json.loads(out)
    assert (code, err, told["runs"], told["broken"]) == (0, "", 3, [])
    assert 10 < sum(told["pods"].values()) <= 15  # one may have ended before the signal
    folders = sorted(path.name for path in (tmp_path / "fleet").iterdir())
    assert folders == ["node-4", "node-5", "node-6"]
    code, out, _ = run("--runs", "3", "--seed", "4", "--synthetic", "5")
    assert code == 0
    assert "invariants hold in every run" in out


def test_a_breach(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that breaks an invariant exits 1 and prints the command that shows it again."""
    broken = lambda machine: [Breach("an_invariant", "it did not hold")]  # noqa: E731
    monkeypatch.setattr(simulating, "check_run", broken)
    code, out, err = run("--synthetic", "3", "--seed", "9", "--calm")
    assert code == 1
    assert "1 breaches of 1 invariants" in out
    assert "seed 9: an_invariant: it did not hold" in err
    assert "ebbtide simulate --synthetic 3 --calm --seed 9 --journal simulated-9" in err
    code, out, err = run("--synthetic", "3", "--runs", "2", "-o", "json")
    assert code == 1
    assert [each["command"] for each in json.loads(out)["broken"]] == [
        "ebbtide simulate --synthetic 3 --seed 0",
        "ebbtide simulate --synthetic 3 --seed 1",
    ]


def test_nothing_is_read_unasked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is what its options say: the machine's own configuration is not even looked for."""
    looked_at: list[object] = []
    stat_of, open_of = os.stat, io.open

    def see(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, *rest, **named: (looked_at.append(path), real(path, *rest, **named))[1]

    monkeypatch.setattr(os, "stat", see(stat_of))
    monkeypatch.setattr(io, "open", see(open_of))
    assert Path("/etc/hostname").exists() in (True, False)
    assert run("--synthetic", "3")[0] == 0
    names = [str(path) for path in looked_at if isinstance(path, str | os.PathLike)]
    assert "/etc/hostname" in names  # who looks is seen
    assert [name for name in names if name.startswith(str(DEFAULT_PATH.parent))] == []


def test_a_kubernetes_node(run: Run, tmp_path: Path) -> None:
    """Its means and its hand-over are said, and its journal is one that verifies as any."""
    journal = tmp_path / "journal"
    arguments = ("--mode", "api", "--calm", "--api-lost-after", "3s", "--seed", "7", "-o", "json")
    code, out, _ = run(*arguments, "--journal", journal)
    assert code == 0
    (shutdown, *_) = json.loads(out)["shutdowns"]
    assert (shutdown["means"], shutdown["handedOver"]) == ("api", True)
    assert json.loads(out)["command"] == (
        "ebbtide simulate --mode api --api-lost-after 3000000000ns --calm --seed 7"
    )
    assert guarded(["replay", "verify", "--journal", str(journal)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "9..3"), "write it like 1..200"),
        (("--seeds", "x"), "'x' is no range of seeds"),
        (("--seeds", "1..2", "--seed", "3"), "leave --seed and --runs out"),
        (("--pods", "x", "--synthetic", "3"), "leave --synthetic out"),
        (("--behaviour", "/nonexistent/b.yaml"), "cannot read /nonexistent/b.yaml: No such file"),
        (("--behaviour", "b", "--calm"), "leave --calm out"),
        (("--pods", "/nonexistent"), "/nonexistent"),
        (("--synthetic", "-1"), "--synthetic"),
        (("--api-lost-after", "5s"), "name its --mode auto, api, cri or observe"),
        (("--config", "/nonexistent/c.yaml"), "cannot read /nonexistent/c.yaml"),
    ],
)
def test_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """A request that is wrong ends with 2 and one line that names the cure."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_journal_is_never_mixed(run: Run, tmp_path: Path) -> None:
    """A directory in which something lies is refused, and nothing in it is touched."""
    (tmp_path / "here").write_text("mine")
    code, _, err = run("--journal", tmp_path)
    assert code == 2
    assert "is there already: name a new directory with --journal" in err
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_golden(run: Run) -> None:
    """What a person sees of a run with a cancel and a second shutdown, but for ids and sizes."""
    code, out, _ = run("--synthetic", "12", "--seed", "20")
    shown = [line for line in out.splitlines() if not line.startswith(("journal ", "head ", "checked "))]
    assert code == 0
    assert shown == GOLDEN.read_text().splitlines()


# --- outages --------------------------------------------------------------------------------------


def test_outages_are_told_beside_what_was_true(run: Run, tmp_path: Path) -> None:
    """And every verb that reads works on the journal."""
    code, out, err = run("--outage", "--seed", "5", "--journal", tmp_path / "outage")
    assert (code, err) == (0, "")
    assert "it verifies identical" in out
    assert "+17.068 s  the machine lost its power" in out
    assert "node-1 was out of service for 199.854 s, and is back.  declared ann" in out
    for verb in (
        ["verify"],
        ["timeline"],
        ["critical-chain"],
        ["report", "--output", str(tmp_path / "page.html")],
    ):
        assert guarded(["replay", *verb, "--journal", str(tmp_path / "outage")]) == 0


@pytest.mark.parametrize(
    ("option", "name"), [(("--runs", "3"), "--runs"), (("--calm",), "--calm"), (("--mode", "cri"), "--mode")]
)
def test_what_outages_do_not_take(run: Run, option: tuple[str, ...], name: str) -> None:
    """All is drawn from the seed."""
    code, out, err = run("--outage", *option)
    assert (code, out) == (2, "")
    assert f"--outage draws all of one run from --seed: leave {name} out" in err
