"""``ebbtide uninstall``: the node as it was before, and nothing of anybody else's gone with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ebbtide.cli import uninstall as files
from ebbtide.cli.uninstall import stopped_by_us
from ebbtide.events.decisions import StartKubelet, StopKubelet
from ebbtide.events.facts import DaemonStarted
from ebbtide.host import lock_runtime, runtime_lock_owner


def test_a_kubelet_that_somebody_else_stopped_is_left_alone() -> None:
    """The journal says who it was, and in which boot."""
    ours = [started("now"), StopKubelet(key="a")]
    assert stopped_by_us(ours, "now")
    assert not stopped_by_us([*ours, StartKubelet(key="b")], "now")
    assert not stopped_by_us([*ours, started("next")], "next")
    assert stopped_by_us([*ours, started("now")], "now")
    assert not stopped_by_us([started("now")], "now")
    assert not stopped_by_us([], "now")


def started(boot: str) -> DaemonStarted:
    return DaemonStarted(version="", pid=1, mode="auto", node="", boot_id=boot, userspace_id="")


def test_only_names_of_ours_are_removed(tmp_path: Path) -> None:
    """Whatever folder is named: a home is not a journal."""
    for name in ("0000000001-0a0b0c0d.ebj", "metrics", "letters.txt"):
        (tmp_path / name).touch()
    steps = files.remove_journals([tmp_path], tmp_path / "node", dry_run=True)
    assert [step.result for step in steps] == ["would", "nothing"]
    assert len(list(tmp_path.iterdir())) == 3
    assert [step.result for step in files.remove_journals([tmp_path], tmp_path / "node", dry_run=False)] == [
        "done",
        "nothing",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_claim_is_seen_without_being_taken(tmp_path: Path) -> None:
    """By its process id, and nothing is made where there is none."""
    assert runtime_lock_owner(tmp_path / "run") == ""
    descriptor = lock_runtime(tmp_path / "run")
    program = "import sys, pathlib, ebbtide.host as c; print(c.runtime_lock_owner(pathlib.Path(sys.argv[1])))"
    argv = [sys.executable, "-c", program, str(tmp_path / "run")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{os.getpid()}\n"
    os.close(descriptor)
    assert runtime_lock_owner(tmp_path / "run") == ""
    assert not (tmp_path / "none").exists()
