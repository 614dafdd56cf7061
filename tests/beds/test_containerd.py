"""The containerd bed leaves nothing behind, also when its owner is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.beds.containerd import POLL_SECONDS, WAIT_SECONDS_MAX, missing
from tests.beds.inside import PROJECT
from tests.proc import each_process

pytestmark = [pytest.mark.node, pytest.mark.root]

KILLED = """
import os, signal
from tests.beds.containerd import containerd
from tests.actors.edges.cri.pods import Kubelet, Spec
with containerd() as bed:
    Kubelet(bed).pod("a", Spec("while :; do sleep 0.05; done"))
    print(bed.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_owner_leaves_nothing() -> None:
    """Shims, containers, control groups and the folder go with it."""
    if why := missing():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=PROJECT, capture_output=True, text=True, timeout=60
    )
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("ebc-"), done.stderr
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while folder.exists():
        assert time.monotonic() < deadline, f"{folder} stays"
        time.sleep(POLL_SECONDS)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{folder.name}"))
    assert not [line for line in each_process("cmdline").values() if folder.name.encode() in line]
