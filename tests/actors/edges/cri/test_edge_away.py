"""The edge on a real containerd that is not there yet, is killed, or hangs (SIGSTOP): every container gets
one stop signal, and the record of it is true.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ebbtide.actors.edges.cri.orders import NOWHERE
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.interfaces import Ending
from ebbtide.events import decisions as d
from ebbtide.events.facts import ContainerExited, InventoryTaken, RuntimeRead
from tests.actors.edges.cri.conftest import Told, kill, known, rig_on, stop, take
from tests.actors.edges.cri.pods import CODE_3, NOTES, POLITE, Kubelet, Spec, Witness
from tests.beds.containerd import Containerd
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Writes a line for every SIGTERM and goes on.
COUNTS = "trap 'echo told >> /tmp/told' TERM; touch /tmp/up; while :; do sleep 0.05; done"


async def test_a_runtime_that_is_not_there_yet(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """An inventory without a runtime is not an empty one: it fails, and by call it waits for it."""
    kubelet.pod("early", Spec(POLITE))
    bed.stop()
    try:
        async with rig_on(bed, tmp_path) as rig:
            failed = await rig.do(d.TakeInventory(key="warm"))
            assert failed.result == "failed"
            (read,) = rig.outbox.facts
            assert read == RuntimeRead(reachable=False, error="the runtime is away for 1 s")
            taken: list[str] = []

            async def take() -> None:
                taken.extend(pod.uid for pod in await rig.inventory("by call"))

            rig.nursery.start_soon(take)
            bed.start()
            await until(lambda: taken == ["uid-early"], "no inventory")
            away, back, *_ = rig.said
            assert away.startswith("container runtime: ")
            assert back == "container runtime: it answers again"
    finally:
        if bed.process is None:
            bed.start()


@pytest.mark.parametrize("noticed", [True, False], ids=["before", "just now"])
async def test_a_containerd_that_was_killed(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, noticed: bool
) -> None:
    """Its containers are told to stop all the same, each exactly once, also when it comes back."""
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


async def test_without_the_runtime(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The pods are those that the API server knows, and it tells of their ends, until the runtime answers."""
    kubelet.pod("stays", Spec(CODE_3))
    kubelet.pod("ours", Spec(POLITE))
    lookup = Told(known("stays", priority=1), known("ends"), known("goes"), known("lost", "main", "other"))
    bed.stop()
    try:
        async with rig_on(bed, tmp_path, lookup) as rig:
            await rig.outbox.wait_for(RuntimeRead, reachable=False)

            def exits() -> list[tuple[str, str, int | None]]:
                found = rig.outbox.of(ContainerExited)
                return [(fact.uid, fact.container, fact.exit_code) for fact in found]

            assert await rig.do(take("signal")) == Ending()
            (taken,) = rig.outbox.of(InventoryTaken)
            assert taken.source == "cache"
            assert [pod.name for pod in taken.pods] == ["stays", "ends", "goes", "lost"]
            lookup.known[1:3] = [known("ends", ended={"main": 7})]
            await rig.outbox.wait_for(ContainerExited, 2)
            assert exits() == [("uid-ends", "main", 7), ("uid-goes", "main", None)]
            bed.start()
            await rig.outbox.wait_for(ContainerExited, 4)
            assert exits()[2:] == [("uid-lost", "main", None), ("uid-lost", "other", None)]
            assert await rig.do(stop("uid-stays")) == Ending()
            await rig.outbox.wait_for(ContainerExited, uid="uid-stays")
    finally:
        if bed.process is None:
            bed.start()


async def test_a_container_that_nobody_has_seen(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """What the API server alone tells of is found by its control group, stopped, and seen to end."""
    made = kubelet.pod("told", Spec(NOTES), Spec(NOTES, "other"))
    told = known("told", "main", "other", running=made.containers)
    witness = Witness(kubelet)
    witness.add("told", made)
    with bed.hung():
        async with rig_on(bed, tmp_path, Told(told)) as rig:
            taken = d.TakeInventory(key="first")
            assert await rig.do(taken) == Ending()
            (inventory,) = rig.outbox.of(InventoryTaken)
            assert (inventory.source, len(inventory.pods)) == ("cache", 1)
            for name in made.containers:
                reason = "SIGTERM was sent to the first process: the runtime is on record as away"
                assert await rig.do(stop(made.uid, name)) == Ending(reason=reason)
            await rig.outbox.wait_for(ContainerExited, uid=made.uid, container="main", exit_code=5)
            await rig.outbox.wait_for(ContainerExited, uid=made.uid, container="other", exit_code=5)
            nobody = await rig.do(stop("uid-nobody"))
            assert (nobody.result, nobody.reason) == ("failed", NOWHERE)
    assert witness.told() == {"told/main": 1, "told/other": 1}
    witness.close()


async def test_a_shim_that_hangs(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Lists come, but whoever stops the container through the runtime waits for ever."""
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
