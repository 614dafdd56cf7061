"""A process with both edges of a node, which says what it weighs: nothing of a test is in it.

``python -m benchmarks.weighing KUBECONFIG NODE FOLDER PODS`` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.cri.cri_edge import CriEdge
from ebbtide.actors.edges.kubernetes.api_edge import KubernetesEdge

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
#: For what an edge does after it is awake: the first look, the first write of the cache.
SETTLE_SECONDS = 2.0


class Nobody:
    async def put(self, *facts: Any) -> None:
        """Nothing is done with it."""
        await trio.lowlevel.checkpoint()


def resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def main(kubeconfig: Path, node: str, folder: Path, pods: int) -> None:
    """Light; with the runtime's edge awake; with both awake and all pods known."""
    cluster = KubernetesEdge(kubeconfig, node, folder)
    runtime = CriEdge(f"unix://{folder}/no.sock", folder / "cri")
    seen = {"light": resident_mib()}
    async with trio.open_nursery() as nursery:
        for edge in (runtime, cluster):
            nursery.start_soon(partial(edge.run, Nobody()))
        runtime.prewarm()
        await trio.sleep(SETTLE_SECONDS)
        seen["runtime"] = resident_mib()
        cluster.prewarm()
        with trio.fail_after(PATIENCE_SECONDS):
            while len(cluster.pods.pods()) < pods:
                await trio.sleep(POLL_SECONDS)
        await trio.sleep(SETTLE_SECONDS)
        seen["both"] = resident_mib()
        print(json.dumps(seen), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
