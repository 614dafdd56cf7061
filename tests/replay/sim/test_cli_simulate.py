"""``ebbtide simulate`` as a command: result, journal, refusals."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Run

GOLDEN = Path(__file__).parents[2] / "golden" / "simulated-v1" / "seed-20.txt"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """The command is done with its process, and leaves garbage."""
    yield
    gc.enable()


def test_json(run: Run) -> None:
    """One document with the figures and the command to repeat the run."""
    code, out, err = run("simulate", "--synthetic", "12", "--seed", "3", "-o", "json", "--calm")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["kind"], told["version"], told["seed"], told["breaches"]) == ("Simulation", 1, 3, [])
    assert told["command"] == "ebbtide simulate --synthetic 12 --calm --seed 3"
    (shutdown,) = told["shutdowns"]
    assert shutdown["outcome"] == "complete"
    assert sum(shutdown["pods"].values()) == 12
    again = json.loads(run("simulate", "--synthetic", "12", "--seed", "3", "-o", "json", "--calm").out)
    assert again == told


def test_one_seed_in_two_modes_is_two_journals(run: Run) -> None:
    """Readers of several journals take one id for copies of one."""
    asked = [("--mode", mode) for mode in ("api", "cri")]
    told = [run("simulate", "--seed", "3", "--calm", "-o", "json", *each).out for each in ((), *asked)]
    assert len({each["id"] for text in told for each in json.loads(text)["shutdowns"]}) == 3


def test_a_kubernetes_node(run: Run, tmp_path: Path) -> None:
    """The output names means and hand-over; the journal verifies."""
    journal = tmp_path / "journal"
    arguments = ("--mode", "api", "--calm", "--seed", "7", "-o", "json")
    code, out, _ = run("simulate", *arguments, "--journal", journal)
    assert code == 0
    (shutdown, *_) = json.loads(out)["shutdowns"]
    assert (shutdown["means"], shutdown["handedOver"]) == ("api", True)
    assert json.loads(out)["command"] == "ebbtide simulate --mode api --calm --seed 7"
    assert run("replay", "verify", "--journal", journal).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "9..3"), "write it like 1..200"),
        (("--seeds", "x"), "'x' is no range of seeds"),
        (("--seeds", "1..2", "--seed", "3"), "leave one of them out"),
        (("--pods", "x", "--synthetic", "3"), "leave --synthetic out"),
        (("--behaviour", "/nonexistent/b.yaml"), "cannot read /nonexistent/b.yaml: No such file"),
        (("--behaviour", "b", "--calm"), "leave --calm out"),
        (("--pods", "/nonexistent"), "/nonexistent"),
        (("--synthetic", "-1"), "--synthetic"),
        (("--config", "/nonexistent/c.yaml"), "cannot read /nonexistent/c.yaml"),
    ],
)
def test_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """A wrong request exits with 2 and one line with the fix."""
    code, out, err = run("simulate", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_deleted_pod_gives_the_same_journal_at_any_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of day does not decide what is left of its grace, and a remark names it."""
    metadata = {"name": "a", "deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    (tmp_path / "a.json").write_text(json.dumps(pod))
    told = []
    for seconds in (0, 12, 3600):
        monkeypatch.setattr("time.time_ns", lambda now=seconds: (1_767_225_600 + now) * 10**9)
        told.append(run("simulate", "--pods", tmp_path / "a.json", "--mode", "cri", "-o", "json"))
    assert told[0] == told[1] == told[2]
    assert "deletion-time: being deleted, with all of their grace left: a" in told[0].err


def test_a_journal_is_never_mixed(run: Run, tmp_path: Path) -> None:
    """A non-empty directory is refused and left unchanged."""
    (tmp_path / "here").write_text("mine")
    code, _, err = run("simulate", "--journal", tmp_path)
    assert code == 2
    assert "exists already: name a new directory with --journal" in err
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_golden(run: Run) -> None:
    """The output of a run with a cancel and a second shutdown, without IDs and sizes."""
    code, out, _ = run("simulate", "--synthetic", "12", "--seed", "20")
    shown = [line for line in out.splitlines() if not line.startswith(("journal ", "head ", "checked "))]
    assert code == 0
    assert shown == GOLDEN.read_text().splitlines()


# --- outages


def test_outages_are_told_beside_what_was_true(run: Run, tmp_path: Path) -> None:
    """Every reading verb works on the journal."""
    code, out, err = run("simulate", "--outage", "--seed", "5", "--journal", tmp_path / "outage")
    assert (code, err) == (0, "")
    assert "it verifies identical" in out
    assert "+17.068 s  the machine lost its power" in out
    assert "node-1 was out of service for 200.571 s, and is back. declared ann" in " ".join(out.split())
    for verb in (
        ["verify"],
        ["timeline"],
        ["critical-chain"],
        ["report", "--output", str(tmp_path / "page.html")],
    ):
        assert run("replay", *verb, "--journal", tmp_path / "outage").code == 0
