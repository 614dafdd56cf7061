"""What mode cri refuses at its start, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide.config import load
from ebbtide.modes import SOCKETS, edges_of_mode, find_node_parts
from ebbtide.options import RunOptions
from tests.test_footprint import WAIT_SECONDS_MAX

EBBTIDE = (sys.executable, "-c", "import sys, ebbtide.cli as cli; sys.exit(cli.main())")


def test_what_is_no_socket_is_refused(tmp_path: Path) -> None:
    """One line that names it, and what to do."""
    (tmp_path / "file").touch()
    said = refused(tmp_path, "--cri", "file")
    assert "file is not a socket" in said
    assert "--cri PATH" in said


def test_a_runtime_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    """Without a name the usual places are looked at, and named."""
    if any(path.is_socket() for path in SOCKETS):
        pytest.skip("a container runtime listens here")
    said = refused(tmp_path)
    assert "no container runtime listens at /run/containerd/containerd.sock" in said
    assert "--cri PATH" in said


def refused(folder: Path, *words: str) -> str:
    argv = [*EBBTIDE, "run", "--mode", "cri", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_runtime_that_is_named_may_come_later(tmp_path: Path) -> None:
    """A node whose runtime is slow to start is not left unprotected; that nothing listens yet is said."""
    said: list[str] = []
    options = RunOptions(runtime=tmp_path, mode="cri", cri=tmp_path / "later.sock")
    loaded = load(())
    made = edges_of_mode(
        options, loaded, find_node_parts(options, loaded.options.node), lambda level, line: said.append(line)
    )
    assert made.runtime.active() == []
    assert said[0].partition(" yet")[0] == f"nothing listens at {tmp_path / 'later.sock'}"
