"""What a node's modes load before the lock is taken: none of the clients, whatever the mode."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_footprint import CONFIG, PROGRAM, WAIT_SECONDS_MAX

#: Imported once armed, in a thread.
LATE = ("grpc", "google", "kubernetes", "aiohttp", "asyncio", "trio_asyncio", "h11", "http")
#: What imports them, and the edge of another mode.
OURS = {
    "ebbtide.actors.edges.cri.runtime",
    "ebbtide.actors.edges.kubernetes.runtime",
    "ebbtide.actors.edges.process.edge",
}
EDGES = ("cri.edge", "kubernetes.edge", "kubelet")


@pytest.mark.parametrize("mode", ["auto", "api", "cri", "observe"])
def test_no_client_is_loaded_before_arming(tmp_path: Path, mode: str) -> None:
    """Between the start and the lock stands no import that is not needed for the lock."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    modules = tmp_path / "modules"
    places = ("--config", "config.yaml", "--journal", "state/journal", "--runtime", "run")
    parts = ("--cri", "cri.sock", "--kubeconfig", "kubeconfig", "--node-name", "node-1")
    argv = [sys.executable, "-c", PROGRAM, str(modules), "run", "--mode", mode, *places, *parts]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path / 'no-bus'}"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "cri.sock"))
        with subprocess.Popen(argv, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as daemon:
            assert daemon.stderr is not None
            try:
                assert any(line.startswith("not armed: ") for line in daemon.stderr)
            finally:
                daemon.terminate()
                daemon.wait(WAIT_SECONDS_MAX)
    loaded = set(modules.read_text().split())
    assert {f"ebbtide.actors.edges.{name}" for name in EDGES} < loaded
    assert not loaded & OURS
    assert [name for name in loaded if name.partition(".")[0] in LATE] == []
