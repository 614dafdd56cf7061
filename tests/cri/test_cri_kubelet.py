"""Mode cri on a real node: pods that a real kubelet made, with labels and annotations of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from events.base import Event
from events.decisions import GrantAssessed, HookEnded, PodEnded, WaveEnded
from events.facts import ContainerExited, InventoryTaken
from events.history import History
from events.model import Hook
from events.storage import DirectorySource
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.ebbtide import Daemon
from tests.node.parts import Member, Part
from tests.node.pods import OBEDIENT, container, pod, running, static
from tests.node.serving import served
from tests.node.shutdowns import power_off

pytestmark = [pytest.mark.node, pytest.mark.root, pytest.mark.slow]

E = TypeVar("E", bound=Event)
ARMED_SECONDS_MAX = 20
POLL_SECONDS = 0.02

OFF = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
WAVES = [
    {"priority": 0, "shutdownGracePeriodSeconds": 6},
    {"priority": 1000, "shutdownGracePeriodSeconds": 6},
]
SERVER = f"mkdir -p /tmp/www; echo bye > /tmp/www/bye; httpd -p 8080 -h /tmp/www; {OBEDIENT}"


@pytest.fixture(scope="module")
def opened() -> Iterator[Bed]:
    with served() as made:
        yield made


@pytest.fixture
async def node(opened: Bed) -> tuple[Bed, Member]:
    """A node whose kubelet has no graceful shutdown of its own."""
    await bring_up(opened, **OFF)
    return opened, opened.members["node-1"]


class CriDaemon(Daemon):
    """In the node's own namespaces, on its containerd."""

    async def start_on(self, member: Member) -> None:
        paths = {
            "cri": member.socket,
            "config": self.folder / "config.yaml",
            "journal": self.journal,
            "runtime": self.folder / "run",
        }
        words = [f"--{name}={path}" for name, path in paths.items()]
        argv = [sys.executable, "-c", "import sys, ebbtide.cli as c; sys.exit(c.main())", "run", "--mode=cri"]
        bus = {"DBUS_SYSTEM_BUS_ADDRESS": self.bed.logind.address}
        await self.bed.start(Part("ebbtide", [*argv, *words], bus))
        with trio.fail_after(ARMED_SECONDS_MAX):
            while not any(event.sufficient for event in self.events(GrantAssessed)):
                await trio.sleep(POLL_SECONDS)

    def events(self, kind: type[E]) -> list[E]:
        """What the journal has of a kind, also while it is written."""
        records = History([DirectorySource(self.journal)]).records() if self.journal.is_dir() else ()
        return [record.event for record in records if isinstance(record.event, kind)]


def annotated(made: dict[str, Any], **annotations: str) -> dict[str, Any]:
    made["metadata"]["annotations"] = {f"ebbtide/{name}": text for name, text in annotations.items()}
    return made


def pre_stop(**handler: Any) -> dict[str, Any]:
    return {"lifecycle": {"preStop": handler}}


async def test_a_node_goes_down(node: tuple[Bed, Member], tmp_path: Path) -> None:
    """What a kubelet wrote is read as it was meant: names, graces, hooks, ports; its pods end in waves."""
    bed, member = node
    daemon = CriDaemon(bed, tmp_path / "journal", "cri")
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    touch = pre_stop(exec={"command": ["/bin/touch", "/tmp/hooked"]})
    get = pre_stop(httpGet={"port": "web", "path": "/bye"})
    ports = [{"name": "web", "containerPort": 8080}]
    proxy = container(name="proxy", restartPolicy="Always")
    await running(
        bed,
        pod("exec", "node-1", containers=[container(**touch)], terminationGracePeriodSeconds=7),
        pod("get", "node-1", containers=[container(SERVER, ports=ports, **get)]),
        pod("nap", "node-1", containers=[container(**pre_stop(sleep={"seconds": 1}))]),
        annotated(pod("mesh", "node-1", initContainers=[proxy]), priority="1000", sidecars="proxy"),
        annotated(pod("host", "node-1", hostNetwork=True), priority="1000"),
    )
    async with static(bed, member, annotated(pod("static"), priority="1000")):
        await daemon.start_on(member)
        await bed.stop("kubelet-node-1")
        await power_off(bed, seconds=25)
        await daemon.stop()
    first = daemon.events(InventoryTaken)[0]
    pods = {each.name: each for each in first.pods}
    assert sorted(pods) == ["exec", "get", "host", "mesh", "nap", "static-node-1"]
    assert (pods["exec"].grace_seconds, pods["get"].grace_seconds) == (7, 30)
    hooks = {name: each.containers[0].hook for name, each in pods.items()}
    assert hooks["exec"] == Hook(kind="exec", detail="touch")
    assert hooks["get"] == Hook(kind="httpGet", detail=":web/bye")
    assert hooks["nap"] == Hook(kind="sleep", sleep_seconds=1)
    labels = {each.uid: name for name, each in pods.items()}
    ended = {labels[event.uid]: event.outcome for event in daemon.events(PodEnded)}
    assert ended == dict.fromkeys(pods, "graceful")
    results = {labels[event.uid]: event.result for event in daemon.events(HookEnded)}
    assert results == {"exec": "done", "get": "done", "nap": "done"}
    assert [event.outcome for event in daemon.events(WaveEnded)] == ["complete", "complete"]
    exits = daemon.events(ContainerExited)
    assert [event.container for event in exits if labels[event.uid] == "mesh"] == ["main", "proxy"]
