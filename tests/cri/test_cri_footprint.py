"""What mode cri may load before the node is armed: nothing of gRPC; and what it refuses at the start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide.config import load
from ebbtide.options import RunOptions
from ebbtide.runtimes import SOCKETS, runtime_of
from tests.test_footprint import CONFIG, PROGRAM, WAIT_SECONDS_MAX

#: Imported once armed, in a thread.
LATE = ("grpc", "google", "asyncio", "trio_asyncio", "h11", "actors.edges.cri.runtime")
EBBTIDE = (sys.executable, "-c", "import sys, ebbtide.cli as cli; sys.exit(cli.main())")


def test_nothing_of_grpc_is_loaded_before_arming(tmp_path: Path) -> None:
    """Between the start and the lock stands no import that is not needed for the lock."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    modules = tmp_path / "modules"
    places = ("--cri", "c.sock", "--config", "config.yaml", "--journal", "journal", "--runtime", "run")
    argv = [sys.executable, "-c", PROGRAM, str(modules), "run", "--mode", "cri", *places]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path / 'no-bus'}"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "c.sock"))
        with subprocess.Popen(argv, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as daemon:
            assert daemon.stderr is not None
            try:
                assert any(line.startswith("not armed: ") for line in daemon.stderr)
            finally:
                daemon.terminate()
                daemon.wait(WAIT_SECONDS_MAX)
    loaded = modules.read_text().split()
    assert "actors.edges.cri.edge" in loaded
    assert "actors.edges.process.edge" not in loaded
    assert [name for name in loaded if name.startswith(LATE)] == []


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
    made = runtime_of(options, load(()), lambda level, line: said.append(line))
    assert made.active() == []
    assert [line.partition(" yet")[0] for line in said] == [f"nothing listens at {tmp_path / 'later.sock'}"]
