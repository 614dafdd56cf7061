"""A node whose kubelet lives and whose API server answers: who a pod is, and what is taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import ContainerExited, InventoryTaken, KubeletRead, PodJoined
from ebbtide.events.model import Hook
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.client import Object
from tests.node.contenders import OFF
from tests.node.ebbtide import Daemon
from tests.node.pods import PODS, container, pod, remove_all, running, static
from tests.node.serving import served
from tests.node.shutdowns import CLASSES
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]

KUBELET = "kubelet-node-1"
WAVES = [{"priority": each, "shutdownGracePeriodSeconds": 8} for each in (0, 1000, 2_000_000_000)]
SLOW = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"
SERVER = f"mkdir -p /tmp/www; echo bye > /tmp/www/bye; httpd -p 8080 -h /tmp/www; {SLOW}"


@pytest.fixture(scope="module")
def opened() -> Iterator[Bed]:
    with served(_up) as made:
        yield made


async def _up(bed: Bed) -> None:
    await bring_up(bed, **OFF)
    await bed.api.post(CLASSES, {"metadata": {"name": "high"}, "value": 1000})


@pytest.fixture
async def daemon(opened: Bed, tmp_path: Path) -> AsyncIterator[Daemon]:
    """In mode cri, not started; afterwards the node is as it was before."""
    made = Daemon(opened, tmp_path / "journal", "cri")
    made.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    yield made
    await made.stop()
    await opened.start_over(**OFF)
    await remove_all(opened)


async def go_down(bed: Bed, kind: str) -> None:
    """Returns when logind goes on."""
    before = len(await bed.logind.starts())
    await bed.logind.power_off(kind)

    async def goes_on() -> bool:
        return len(await bed.logind.starts()) > before

    await until(goes_on, "logind waits")


def pre_stop(**handler: Any) -> dict[str, Any]:
    return {"lifecycle": {"preStop": handler}}


async def alive(bed: Bed) -> bool:
    return KUBELET in await bed.inside.do("alive")


async def test_a_node_goes_down(opened: Bed, daemon: Daemon) -> None:
    """Priorities come from the API, hooks and graces from what a kubelet wrote; the kubelet is stopped beside
    the first wave, nothing comes back.
    """
    touch = pre_stop(exec={"command": ["/bin/touch", "/tmp/hooked"]})
    get = pre_stop(httpGet={"port": "web", "path": "/bye"})
    ports = [{"name": "web", "containerPort": 8080}]
    mesh = [container(SLOW, name="proxy", restartPolicy="Always")]
    await running(
        opened,
        pod("plain", "node-1", containers=[container(SLOW, **touch)], terminationGracePeriodSeconds=70),
        pod("high", "node-1", containers=[container(SERVER, ports=ports, **get)], priorityClassName="high"),
        pod("mesh", "node-1", initContainers=mesh, priorityClassName="high"),
    )
    made = pod("agent", priorityClassName="system-node-critical", priority=2_000_001_000)
    async with static(opened, daemon.member, made):
        await daemon.start_ready()
        await go_down(opened, "reboot")
        assert not await alive(opened)
    first = daemon.events(InventoryTaken)[0]
    found = {each.name: each for each in first.pods}
    assert {name: each.priority for name, each in found.items()} == {
        "plain": 0,
        "high": 1000,
        "mesh": 1000,
        "agent-node-1": 2_000_001_000,
    }
    assert found["agent-node-1"].static
    assert found["plain"].grace_seconds == 70
    assert found["plain"].containers[0].hook == Hook(kind="exec", detail="touch")
    assert found["high"].containers[0].hook == Hook(kind="httpGet", detail=":web/bye")
    assert [event.result for event in daemon.events(d.HookEnded)] == ["done", "done"]
    assert [(each.name, each.sidecar) for each in found["mesh"].containers] == [
        ("proxy", True),
        ("main", False),
    ]
    assert [event.means for event in daemon.events(d.MeansChosen)] == ["cri"]
    assert [event.result for event in daemon.events(d.KubeletStopped)] == ["done"]
    # Read once more where its health endpoint was late.
    assert [active for active, _ in groupby(fact.active for fact in daemon.events(KubeletRead))] == [
        True,
        False,
    ]
    assert {event.outcome for event in daemon.events(d.PodEnded)} == {"graceful"}
    assert len(daemon.events(d.PodEnded)) == len(daemon.events(ContainerExited)) - 1 == 4
    assert daemon.events(PodJoined) == []
    await daemon.verify()


async def test_a_cancel(opened: Bed, daemon: Daemon) -> None:
    """What had begun is finished, then the kubelet is started; what it starts again is left alone."""
    await running(opened, pod("begun", "node-1", SLOW), pod("spared", "node-1", priorityClassName="high"))
    await daemon.start_ready()
    await opened.logind.power_off("reboot")
    await daemon.until(lambda: daemon.events(d.SendSignal), "no stop")
    await opened.logind.restart_logind(clean=True)
    await daemon.until(lambda: daemon.events(d.EpisodeClosed), "it does not end")
    labels = {each.uid: each.name for each in daemon.events(InventoryTaken)[0].pods}
    outcomes = {labels[event.uid]: event.outcome for event in daemon.events(d.PodEnded)}
    assert outcomes == {"begun": "graceful", "spared": "spared"}
    begun = await opened.api.until(f"{PODS}/begun", lambda made: restarts(made) == 1)
    # Also once more when its health endpoint answers.
    told = [active for active, _ in groupby(event.active for event in daemon.events(KubeletRead))]
    assert told == [True, False, True]
    await trio.sleep(3)
    for name, count in (("begun", 1), ("spared", 0)):
        made = await opened.api.get(f"{PODS}/{name}")
        assert (made["status"]["phase"], restarts(made)) == ("Running", count)
    assert (await opened.api.get(f"{PODS}/begun"))["metadata"]["uid"] == begun["metadata"]["uid"]
    assert len(daemon.events(d.StopKubelet)) == 1
    await daemon.verify()


def restarts(made: Object) -> int:
    """Of a container that runs; -1 for one that does not."""
    (status,) = made["status"].get("containerStatuses") or [{}]
    return int(status["restartCount"]) if "running" in status.get("state", {}) else -1
