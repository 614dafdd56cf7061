"""Sandboxes and containers whose state the runtime cannot tell: they hold no other up."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from google.protobuf.message import Message

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.annotations import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID
from actors.edges.cri.errors import Lost, RuntimeRefused
from actors.edges.cri.listing import BROKEN_SECONDS, Listing
from actors.edges.cri.table import Table

DEAD = RuntimeRefused("PodSandboxStatus: UNKNOWN: ttrpc: closed")
HANGS = Lost("ContainerStatus: no answer in 5.0 s")
NUMBERS = ("1", "2", "3")


class Shims:
    """A runtime with three pods; ``broken`` is what it says instead of an object's state."""

    def __init__(self) -> None:
        self.broken: dict[str, Exception] = {}
        self.away = False
        self.asked: list[str] = []

    async def ready(self, seconds: float) -> None:
        if self.away:
            raise Lost("the runtime is away")

    async def call(self, name: str, request: Message, answer: type[Any], seconds: float, **more: Any) -> Any:
        if name == "ListPodSandbox":
            return api.ListPodSandboxResponse(items=[_sandbox(each) for each in NUMBERS])
        if name == "ListContainers":
            return api.ListContainersResponse(containers=[_container(each) for each in NUMBERS])
        sandbox = isinstance(request, api.PodSandboxStatusRequest)
        key = getattr(request, "pod_sandbox_id" if sandbox else "container_id")
        self.asked.append(key)
        if key in self.broken:
            raise self.broken[key]
        if sandbox:
            network = api.PodSandboxNetworkStatus(ip="10.0.0.1")
            return api.PodSandboxStatusResponse(status=api.PodSandboxStatus(network=network))
        return api.ContainerStatusResponse(status=api.ContainerStatus(state=api.CONTAINER_RUNNING))

    repeat = call


def _sandbox(number: str) -> api.PodSandbox:
    labels = {POD_UID: f"u{number}", POD_NAME: f"p{number}", POD_NAMESPACE: "ns"}
    return api.PodSandbox(id=f"s{number}", created_at=int(number), labels=labels)


def _container(number: str) -> api.Container:
    sandbox, labels = f"s{number}", {CONTAINER_NAME: "main"}
    return api.Container(id=f"c{number}", pod_sandbox_id=sandbox, created_at=int(number), labels=labels)


class Rig:
    """A listing of these, and what it told an operator."""

    def __init__(self) -> None:
        self.shims, self.table, self.said = Shims(), Table(), list[str]()
        nothing = lambda entry: None  # noqa: E731 - one line of a test
        tell = lambda level, line: self.said.append(line)  # noqa: E731 - the same
        self.listing = Listing(self.shims, self.table, nothing, nothing, tell)

    def known(self) -> list[str]:
        return [pod.uid for pod in self.table.active()]


async def test_a_sandbox_with_a_dead_shim(autojump_clock: trio.abc.Clock) -> None:
    """Its pod has no address until the runtime tells it, which is asked seldom; said once."""
    rig = Rig()
    rig.shims.broken["s1"] = DEAD
    for _ in range(3):
        await rig.listing.refresh()
    assert rig.known() == ["u1", "u2", "u3"]
    assert [rig.table.pods[f"s{number}"].pod_ip for number in NUMBERS] == ["", "10.0.0.1", "10.0.0.1"]
    assert rig.said == [f"container runtime: no address is known of the pod ns/p1: {DEAD}"]
    assert rig.shims.asked.count("s1") == 1
    assert rig.listing.as_of == trio.current_time()
    rig.shims.broken.clear()
    await trio.sleep(BROKEN_SECONDS)
    await rig.listing.refresh()
    assert rig.table.pods["s1"].pod_ip == "10.0.0.1"


@pytest.mark.parametrize("error", [DEAD, HANGS], ids=["refused", "hangs"])
async def test_a_container_that_is_broken(error: Exception, autojump_clock: trio.abc.Clock) -> None:
    """It is left out and said, once; the rest is there; when it can be told of again it is taken."""
    rig = Rig()
    rig.shims.broken["c2"] = error
    for _ in range(3):
        await rig.listing.refresh()
    assert rig.known() == ["u1", "u3"]
    assert rig.said == [f"container runtime: the container main of ns/p2 is left out: {error}"]
    assert rig.shims.asked.count("c2") == 1
    rig.shims.broken.clear()
    await trio.sleep(BROKEN_SECONDS)
    await rig.listing.refresh()
    assert rig.known() == ["u1", "u2", "u3"]


async def test_a_runtime_that_goes_in_the_middle() -> None:
    """Then no object is to blame: the look fails, and the next one asks for it at once."""
    rig = Rig()
    rig.shims.broken["c2"] = HANGS
    rig.shims.away = True
    with pytest.raises(Lost):
        await rig.listing.refresh()
    assert rig.said == []
    rig.shims.broken.clear()
    rig.shims.away = False
    await rig.listing.refresh()
    assert rig.known() == ["u1", "u2", "u3"]
