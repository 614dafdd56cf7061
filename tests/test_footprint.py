"""A resident daemon's limits: memory, and imports while idle (issue 3, "measured").

The real command in mode ``process`` without a bus: it runs unarmed and idles.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.waiting import until_sync

RESIDENT_MIB_MAX = 40

#: Runs the command and finally lists its imports.
PROGRAM = """
import atexit, pathlib, sys
place = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: place.write_text("\\n".join(sorted(sys.modules))))
from ebbtide.cli import main
main()
"""

CONFIG = """
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriod: 4s
journalFallbacks: []
"""

#: Our packages, our dependencies and theirs; others must justify their cost.
PACKAGES = {
    "ebbtide",
    *("click", "jeepney", "msgspec", "trio", "yaml"),
    *("attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers", "typing_extensions"),
    #: From extension modules and site-packages' start-up, not from our imports.
    *("_cython_3_1_4", "_distutils_hack", "cython_runtime", "coverage", "__main__", "a1_coverage"),
    "sitecustomize",
}

#: Modules of the standard library and of ours that an idle daemon does not need.
UNWANTED = re.compile(
    r"asyncio|concurrent|curses|email|html|http|logging\.(config|handlers)|multiprocessing|pydoc|sqlite3"
    r"|tkinter|unittest|urllib\.(request|error)|xml|click\.testing|click\.shell_completion"
    r"|ebbtide\.demo|ebbtide\.cli\.(?!app|common|run)\w+|ebbtide\.cli\.common\.(?!guard|shared_options)\w+|ebbtide\.replay\.(?!replayer)\w+"
    r"|ebbtide\.otel\.(?!cursor|destination|metric_table|span)\w+"
)


class Idle(NamedTuple):
    resident_mib: float
    modules: frozenset[str]


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Idle:
    folder = tmp_path_factory.mktemp("idle")
    (folder / "pods").mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    modules = folder / "modules"
    places = ("--pods", "pods", "--config", "config.yaml", "--journal", "journal", "--runtime", "run")
    argv = [sys.executable, "-c", PROGRAM, str(modules), "run", "--mode", "process", *places]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={folder / 'no-bus'}"}
    with subprocess.Popen(argv, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        try:
            # On a busy machine a late disk is reported first.
            assert any(line.startswith("not armed: ") for line in daemon.stderr)
            until_sync((folder / "run" / "ebbtide.sock").exists, "the control socket")
            resident_mib = _resident_mib(daemon.pid)
        finally:
            daemon.terminate()
            daemon.wait()
    return Idle(resident_mib, frozenset(modules.read_text().split()))


def _resident_mib(pid: int) -> float:
    found = re.search(r"^VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def test_an_idle_daemon_fits_in_40_mib(idle: Idle) -> None:
    assert idle.resident_mib <= RESIDENT_MIB_MAX


def test_an_idle_daemon_imports_only_what_it_needs(idle: Idle) -> None:
    """Only the five base packages and theirs: no tables, asyncio or cluster client."""
    packages = {name.partition(".")[0] for name in idle.modules}
    assert packages - PACKAGES - sys.stdlib_module_names == set()


def test_an_idle_daemon_imports_nothing_for_other_commands(idle: Idle) -> None:
    """Code for other commands, or only for httpGet hooks, is not loaded."""
    assert sorted(name for name in idle.modules if UNWANTED.fullmatch(name)) == []


# --- on a Kubernetes node none of the clients before the lock is taken

#: Imported once armed, in a thread.
LATE = ("grpc", "google", "kubernetes", "aiohttp", "asyncio", "trio_asyncio", "h11", "http")
#: Their importers, and another mode's edge.
OURS = {
    "ebbtide.actors.edges.cri.cri_runtime",
    "ebbtide.actors.edges.kubernetes.api_writes",
    "ebbtide.actors.edges.process.process_edge",
}
EDGES = ("cri.cri_edge", "kubernetes.api_edge", "kubelet_unit")


@pytest.mark.parametrize("mode", ["auto", "observe"])
def test_no_client_is_loaded_before_arming(tmp_path: Path, mode: str) -> None:
    """Before the lock only its own imports load."""
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
                daemon.wait()
    loaded = set(modules.read_text().split())
    assert {f"ebbtide.actors.edges.{name}" for name in EDGES} < loaded
    assert not loaded & OURS
    assert [name for name in loaded if name.partition(".")[0] in LATE] == []
