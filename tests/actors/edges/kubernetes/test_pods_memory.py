"""What the client and the pods of a full node weigh, beside the runtime's edge (issue 4, "measured")."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.actors.edges.kubernetes.rig import linked
from tests.node.bed import Bed
from tests.node.pods import PODS, pod

pytestmark = [pytest.mark.node]

#: No kubelet starts its pods: what counts is their objects.
ELSEWHERE = "node-of-paper"
#: As controllers, injectors and package managers leave it behind on every pod.
ANNOTATION = "x" * 4096
#: The largest that an object's annotations may be, together.
LARGE = "x" * 250 * 1024
LARGE_PODS = 5
#: gRPC, its loop and our own code are the rest of the daemon's 80.
CLIENT_MIB_MAX = 16.0
SECONDS = 30.0


async def fill(bed: Bed, count: int) -> None:
    """So many pods of that node, some of them large."""
    turns = trio.CapacityLimiter(16)
    async with linked(bed.kubeconfig) as link, trio.open_nursery() as nursery:

        async def make(number: int) -> None:
            made = pod(f"pod-{number}", ELSEWHERE)
            made["metadata"]["annotations"] = {"note": LARGE if number < LARGE_PODS else ANNOTATION}
            async with turns:
                assert (await link.call("POST", PODS, body=made, seconds_max=SECONDS)).ok

        for number in range(count):
            nursery.start_soon(make, number)


@pytest.fixture(params=[105, 250], ids=lambda count: f"{count} pods")
async def filled(bed: Bed, request: pytest.FixtureRequest) -> int:
    await fill(bed, request.param)
    return int(request.param)


async def test_memory(bed: Bed, filled: int, tmp_path: Path) -> None:
    """The client and what is known of a full node's pods add little to gRPC, large objects or not."""
    words = [str(bed.kubeconfig), ELSEWHERE, str(tmp_path), str(filled)]
    argv = [sys.executable, "-m", "tests.actors.edges.kubernetes.weighing", *words]
    done = await trio.to_thread.run_sync(
        partial(subprocess.run, argv, capture_output=True, text=True, timeout=120)
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    print(f"{filled} pods: {seen}")
    assert seen["both"] - seen["runtime"] <= CLIENT_MIB_MAX
    kept = (tmp_path / "pods.json").stat().st_size
    print(f"pods.json {kept} bytes")
    assert kept <= filled * 1024
