"""A real containerd and a pod lookup: late pods, restarted pods, pods that only the API server knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.cri import cri_runtime as runtime_module
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.interfaces import Ending
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodJoined
from tests.actors.edges.cri.conftest import kill, rig_on, stop, take
from tests.actors.edges.cri.pods import (
    CODE_3,
    EXITED,
    POLITE,
    RUNNING,
    Kubelet,
    Spec,
)
from tests.beds.containerd import Containerd
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]


async def test_an_order_means_the_container_that_was_given(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """A stop of the old container does not hit its restart of the same name."""
    made = kubelet.pod("web", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-web"))
        (ended,) = await rig.outbox.wait_for(ContainerExited)
        new = kubelet.again("web", made, Spec(CODE_3))
        await until(lambda: len(rig.edge.active()) == 1, "the new one is not found")
        assert await rig.do(kill("uid-web")) == Ending()
        assert await rig.do(stop("uid-web")) == Ending()
        assert rig.outbox.of(ContainerExited) == [ended] * 3
        assert kubelet.state(new) == RUNNING
        await rig.do(take("another shutdown"))
        await rig.do(stop("uid-web"))
        await rig.outbox.wait_for(ContainerExited, 4)
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_what_its_kubelet_has_started_again_joins_once_more(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The restart joins after the old container's end; later orders address the restart."""
    made = kubelet.pod("web", Spec(CODE_3), Spec(POLITE, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(take("closer", refresh=True, late=True))
        spec = Spec(CODE_3)
        for times in (1, 2):
            await rig.do(stop("uid-web"))
            await rig.outbox.wait_for(ContainerExited, times)
            spec = spec._replace(attempt=times)
            new = kubelet.again("web", made, spec)
            joined = (await rig.outbox.wait_for(PodJoined, times))[-1].pod
            assert [(each.name, each.running) for each in joined.containers] == [
                ("main", True),
                ("other", True),
            ]
            assert kubelet.state(new) == RUNNING
        assert len(rig.outbox.of(PodJoined)) == 2
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_what_was_started_again_while_no_daemon_ran(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Reported in the first listing, after the old container's end and before the listing's end."""
    made = kubelet.pod("web", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(made.containers["main"])
    new = kubelet.again("web", made, Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.do(take("closer", refresh=True, late=True))
        said = [type(fact) for fact in rig.outbox.facts]
        assert [each for each in said if each in (ContainerExited, PodJoined, InventoryTaken)] == [
            ContainerExited,
            PodJoined,
            InventoryTaken,
        ]
        assert rig.outbox.of(ContainerExited)[0].exit_code == 3
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_a_signal_soon_after_the_start(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end from before the daemon's start delays no inventory. If the container runs again, its old end is
    irrelevant.
    """
    old = kubelet.pod("old", Spec(CODE_3), Spec(CODE_3, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(old.containers["main"])
    again = kubelet.again("old", old, Spec(CODE_3))
    real, asked = runtime_module.exit_of_container, trio.Event()

    async def slow(caller: Any, container_id: str) -> ExitStatus | None:
        if container_id == old.containers["main"]:
            asked.set()
            await go_on.wait()
        return await real(caller, container_id)

    monkeypatch.setattr(runtime_module, "exit_of_container", slow)
    go_on = trio.Event()
    async with rig_on(bed, tmp_path) as rig:
        await asked.wait()
        (pod,) = await rig.inventory(refresh=False)
        assert [(each.name, each.running) for each in pod.containers] == [("other", True), ("main", True)]
        go_on.set()
        await rig.do(stop("uid-old"))
        (ended,) = await rig.outbox.wait_for(ContainerExited)
        assert ended.container == "main"
        await until(lambda: kubelet.state(again) == EXITED, "it was not stopped")
