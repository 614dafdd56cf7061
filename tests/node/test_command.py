"""The node for a person, where that person is wrong or impatient: one line, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.beds.inside import PROJECT
from tests.beds.skipping import or_skip
from tests.node import remains
from tests.node.__main__ import INTERRUPTED, WRONG, holder
from tests.node.bringing_up import need

pytestmark = pytest.mark.proof
SECONDS_MAX = 60
POLL_SECONDS = 0.02


#: As a shell starts it in the foreground: in the background SIGINT would be ignored, and so by its children.
FOREGROUND = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
RUN = "runpy.run_module('tests.node', run_name='__main__')"


def command(*words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", FOREGROUND + RUN, *words]
    return subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("nodes", ["0", "-3"])
@pytest.mark.parametrize("verb", ["up", "hold"])
def test_a_bed_without_a_node(verb: str, nodes: str) -> None:
    """It is a wrong request: one line, and 2."""
    with command(verb, "--nodes", nodes) as process:
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out, err.count("\n")) == (WRONG, "", 1), err


@pytest.mark.node
def test_interrupted_on_the_way_up() -> None:
    """Ctrl-C ends what came up, and says one line without a traceback."""
    with or_skip():
        need()
    if holder():
        pytest.skip("a node is up")
    with command("up") as process:
        began = time.monotonic()
        while not (held := children(process.pid)) or not trees(held):
            assert time.monotonic() - began < SECONDS_MAX
            time.sleep(POLL_SECONDS)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (INTERRUPTED, "")
    assert err.strip() == "interrupted: nothing of the node is left"
    assert not trees(held)
    assert not any(Path(f"/proc/{pid}").exists() for pid in held)


def children(pid: int) -> list[int]:
    """The holder, in a session of its own, is one."""
    said = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in said.split() if os.getpgid(int(each)) == int(each)]


def trees(pids: list[int]) -> list[Path]:
    """The control groups of the nodes that they hold."""
    return [path for pid in pids for path in remains.trees()[0].glob(f"{remains.PREFIX}-{pid}-*")]
