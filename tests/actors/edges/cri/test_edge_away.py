"""A real containerd that is absent, killed or stopped (SIGSTOP): each container gets one stop signal, and the
record is true.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.interfaces import Ending
from ebbtide.events.facts import ContainerExited
from tests.actors.edges.cri.conftest import kill, rig_on, stop
from tests.actors.edges.cri.pods import NOTES, Kubelet, Spec, Witness
from tests.beds.containerd import Containerd
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Writes a line for each SIGTERM and continues.
COUNTS = "trap 'echo told >> /tmp/told' TERM; touch /tmp/up; while :; do sleep 0.05; done"


@pytest.mark.parametrize("noticed", [True, False], ids=["before", "just now"])
async def test_a_containerd_that_was_killed(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, noticed: bool
) -> None:
    """Containers get exactly one stop signal, also if containerd returns."""
    made = kubelet.pod("counts", Spec(COUNTS))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        told = Path(f"/proc/{kubelet.first_process(made.containers['main'])}/root/tmp/told")
        bed.stop()
        try:
            if noticed:
                await until(lambda: "pods that appear are not seen" in "".join(rig.said), "not noticed")
            assert await rig.do(stop("uid-counts")) == Ending()
            await until(told.exists, "no signal")
        finally:
            bed.start()
        assert len(await rig.inventory("again")) == 1
        assert told.read_text() == "told\n"
        await rig.do(kill("uid-counts"))
        await rig.outbox.wait_for(ContainerExited)


async def test_a_shim_that_hangs(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Lists work, but a stop through the runtime hangs."""
    made = kubelet.pod("wedged", Spec(NOTES))
    witness = Witness(kubelet)
    witness.add("wedged", made)
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        stat = proc.read_stat(kubelet.first_process(made.containers["main"]))
        assert stat is not None
        os.kill(stat.parent_pid, signal.SIGSTOP)
        try:
            assert await rig.do(stop(made.uid)) == Ending()
            await until(lambda: witness.told() == {"wedged/main": 1}, "no signal")
        finally:
            os.kill(stat.parent_pid, signal.SIGCONT)
        await rig.outbox.wait_for(ContainerExited, uid=made.uid, exit_code=5)
    witness.close()
