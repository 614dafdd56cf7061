"""The bed cleans up after itself, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.beds.inside import PROJECT
from tests.beds.logind import missing

pytestmark = pytest.mark.root

PROGRAM = """
import json, sys, trio
sys.path.insert(0, {root!r})
from tests.beds.logind import logind_bed
async def main():
    async with logind_bed() as bed:
        pids = [bed.inside.pid, *(await bed.do("pids")).values()]
        print(json.dumps([str(bed.folder), pids]), flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGINT"])
async def test_an_interrupted_test_leaves_nothing(signal_name: str) -> None:
    """The test's process is killed: the bed's processes end, its folder goes, and no mount was ever ours."""
    if reason := missing():
        pytest.skip(reason)
    root = str(PROJECT)
    argv = [sys.executable, "-c", PROGRAM.format(root=root)]
    mounts = Path("/proc/self/mountinfo").read_text()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        folder, pids = json.loads(process.stdout.readline())
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        process.send_signal(getattr(signal, signal_name))
    with trio.fail_after(10):
        while any(Path(f"/proc/{pid}").exists() for pid in pids) or os.path.exists(folder):
            await trio.sleep(0.01)
    assert Path("/proc/self/mountinfo").read_text() == mounts
