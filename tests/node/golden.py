"""Journals of whole shutdowns of a real node in ``tests/golden/node-v1``: recorded once, replayed ever since.

One power-off in mode api and one reboot in mode cri, with pods of all kinds. Chosen names and paths keep the
machine's own out.

python -m tests.node.golden        # makes them anew: when the logic changed, and no release has the old ones
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import trio

from ebbtide.events.facts import Heartbeat
from tests.node.bed import Bed
from tests.node.bringing_up import node_bed
from tests.node.client import Object
from tests.node.contenders import OFF
from tests.node.going import Going, going, make_classes
from tests.node.pods import static

FOLDER = Path(__file__).parents[1] / "golden" / "node-v1"
NODE = "worker-1"
#: Mode to shutdown kind.
KINDS = {"api": "poweroff", "cri": "reboot"}
#: Each pod's outcome.
FATES = {"web": "graceful", "mesh": "graceful", "deaf": "killed", f"agent-{NODE}": "graceful"}
#: The daemon's default path, so that the journal names it.
CONFIG = Path("/etc/ebbtide/config.yaml")
MACHINE_ID = Path("/etc/machine-id")
A_MACHINE = "0123456789abcdef0123456789abcdef\n"


def pods(node: Going) -> list[Object]:
    witness = node.witness
    proxy = witness.container("proxy", ends_after=0.1) | {"name": "proxy", "restartPolicy": "Always"}
    main = witness.container("mesh", ends_after=0.2)
    return [
        witness.pod("web", node=NODE, ends_after=0.3, hook=True, priorityClassName="low"),
        witness.holding("mesh", [main], NODE, initContainers=[proxy], priorityClassName="low"),
        witness.pod(
            "deaf", node=NODE, slow=True, terminationGracePeriodSeconds=2, priorityClassName="middle"
        ),
    ]


async def shut_down(bed: Bed, mode: str, folder: Path) -> Path:
    async with going(bed, mode, folder) as node:
        node.daemon.config = CONFIG
        await node.run(*pods(node))
        agent = node.witness.pod("agent", ends_after=0.1, priorityClassName="system-node-critical")
        del agent["spec"]["nodeName"]
        async with static(bed, node.member, agent):
            await node.arm((1000, 8), (2000, 8), (2_000_000_000, 8))
            await node.down(KINDS[mode])
            # Without a later record no reader knows that the release's outcome is durable.
            await node.daemon.until(
                lambda: isinstance(node.daemon.records()[-1].event, Heartbeat),
                "no heartbeat after the release",
            )
            fates = node.outcomes()
        assert fates == FATES, fates
    return node.daemon.journal


async def make(bed: Bed) -> None:
    bed.place(MACHINE_ID).write_text(A_MACHINE)
    await make_classes(bed)
    for mode in KINDS:
        with tempfile.TemporaryDirectory(prefix="ebbtide-run.") as folder:
            made = await shut_down(bed, mode, Path(folder))
            shutil.rmtree(FOLDER / mode, ignore_errors=True)
            (FOLDER / mode).mkdir(parents=True)
            for segment in made.glob("*.ebj"):
                shutil.copyfile(segment, FOLDER / mode / segment.name)


async def main() -> None:
    async with node_bed((NODE,), **OFF) as bed:
        await make(bed)


if __name__ == "__main__":
    trio.run(main)
