"""Which sandboxes are stopped, and when: by a runtime of which only that is asked."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri.cri_client import RuntimeRefused, method_of
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, PodEntry, PodTable
from ebbtide.actors.edges.cri.orders import LULL_SECONDS, SandboxCleanup
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec


class Runtime:
    """`cri_client.CriClient`. ``again``: sandboxes in which something was made anew, in which
    state. ``takes_seconds``: to stop a sandbox.
    """

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.again: dict[str, int] = {}
        self.refuses = False
        self.takes_seconds = 0.0

    async def ready(self, seconds: float) -> None:
        """It always is."""

    async def call(self, request: Any, seconds: float, **more: Any) -> Message:
        name = method_of(request)
        if name == "ListContainers":
            place = request.filter.pod_sandbox_id
            states = [api.CONTAINER_EXITED, *([self.again[place]] if place in self.again else [])]
            found = [api.Container(pod_sandbox_id=place, state=state) for state in states]
            return api.ListContainersResponse(containers=found)
        if self.refuses:
            raise RuntimeRefused("no")
        await trio.sleep(self.takes_seconds)
        self.stopped.append(request.pod_sandbox_id)
        return api.StopPodSandboxResponse()

    repeat = call


class Rig:
    def __init__(self) -> None:
        self.runtime, self.table = Runtime(), PodTable()
        self.starts = False
        self.sandboxes = SandboxCleanup(self.runtime, self.table, lambda: self.starts)

    def pod(self, uid: str, *, host_network: bool = False, stopping: bool = True) -> PodEntry:
        made = PodEntry(uid, "ns", uid, f"s-{uid}")
        made.host_network = host_network
        self.table.pods[made.sandbox] = made
        entry = ContainerEntry(made, f"id-{uid}", ContainerSpec(name="main", argv=()))
        self.table.put(entry)
        entry.stopping = stopping
        return made

    def again(self, pod: PodEntry) -> PodEntry:
        """Its kubelet has started its container again, and another shutdown tells it to stop."""
        entry = ContainerEntry(pod, f"again-{pod.uid}", ContainerSpec(name="main", argv=()))
        self.table.put(entry)
        self.table.stop(entry)
        self.sandboxes.stir(pod)
        return pod

    def end(self, pod: PodEntry) -> None:
        for entry in pod.containers.values():
            entry.finish(ExitStatus(exit_code=0))
        self.sandboxes.stir()
        self.sandboxes.look(pod)


@pytest.fixture
async def rig(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> Rig:
    made = Rig()
    nursery.start_soon(made.sandboxes.run)
    return made


@pytest.mark.parametrize("state", [api.CONTAINER_CREATED, api.CONTAINER_RUNNING])
async def test_what_was_made_again_is_left_alone(
    rig: Rig, state: int, autojump_clock: trio.abc.Clock
) -> None:
    """After a cancel its kubelet may have made a container anew, and the table does not know it yet."""
    rig.runtime.again = {"s-web": state}
    rig.end(rig.pod("web"))
    await trio.sleep(3 * LULL_SECONDS)
    assert (rig.runtime.stopped, rig.sandboxes.failed) == ([], 0)


async def test_the_nodes_network_comes_last(rig: Rig, autojump_clock: trio.abc.Clock) -> None:
    """While a pod with a network of its own runs, whoever provides it stays."""
    web = rig.pod("web")
    rig.end(rig.pod("cni", host_network=True))
    await trio.sleep(3 * LULL_SECONDS)
    assert rig.runtime.stopped == []
    rig.end(web)
    await trio.sleep(3 * LULL_SECONDS)
    assert rig.runtime.stopped == ["s-web", "s-cni"]


async def test_none_once_a_kubelet_is_about_to_start(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    """What is under way is waited for, and nothing begins any more: from then on the sandboxes are the
    kubelet's. In another shutdown they are ours again.
    """
    rig.runtime.takes_seconds = 2.0
    pods = [rig.pod(str(number)) for number in range(4)]
    for pod in pods:
        rig.end(pod)
    await trio.sleep(LULL_SECONDS + 1)
    rig.starts = True
    began = trio.current_time()
    await rig.sandboxes.rest()
    assert trio.current_time() - began == pytest.approx(1, abs=0.1)
    assert sorted(rig.runtime.stopped) == ["s-0", "s-1"]
    await trio.sleep(60)
    assert sorted(rig.runtime.stopped) == ["s-0", "s-1"]
    await rig.sandboxes.rest()
    rig.starts = False
    for pod in pods:
        rig.sandboxes.look(pod)
    await trio.sleep(60)
    assert sorted(rig.runtime.stopped) == ["s-0", "s-1", "s-2", "s-3"]


@pytest.mark.parametrize("refused", [True, False])
async def test_a_sandbox_that_is_used_again(rig: Rig, refused: bool, autojump_clock: trio.abc.Clock) -> None:
    """Its pod was not cleaned up, and runs on after a cancel: the next shutdown cleans it up, once."""
    web = rig.pod("web")
    rig.runtime.refuses = refused
    rig.runtime.again = {} if refused else {"s-web": api.CONTAINER_RUNNING}
    rig.end(web)
    await trio.sleep(3 * LULL_SECONDS)
    rig.runtime.refuses, rig.runtime.again = False, {}
    rig.sandboxes.look(web)
    await trio.sleep(3 * LULL_SECONDS)
    assert rig.runtime.stopped == []
    rig.end(rig.again(web))
    rig.sandboxes.look(web)
    await trio.sleep(3 * LULL_SECONDS)
    assert rig.runtime.stopped == ["s-web"]
