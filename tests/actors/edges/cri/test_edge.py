"""The CRI edge on a real containerd: inventory, stop, SIGKILL, exits, autopsy, sandboxes, restarts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from ebbtide.actors.interfaces import Ending
from ebbtide.events import decisions as d
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.facts import AutopsyTaken, ContainerExited, InventoryTaken, RuntimeRead
from ebbtide.events.model import Container, Hook
from ebbtide.events.reader import History
from tests.actors.edges.cri.conftest import PATIENCE_SECONDS, rig_on
from tests.actors.edges.cri.pods import Kubelet, Spec
from tests.beds.containerd import Containerd
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.contenders import OFF
from tests.node.ebbtide import Daemon
from tests.node.going import make_classes
from tests.node.parts import Member, Part
from tests.node.pods import OBEDIENT, container, pod, running, static
from tests.node.serving import served
from tests.node.shutdowns import power_off

pytestmark = [pytest.mark.node, pytest.mark.root]

POLITE = "trap 'exit 0' TERM; touch /tmp/up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; touch /tmp/up; while :; do sleep 0.05; done"
CODE_3 = "trap 'exit 3' TERM; touch /tmp/up; while :; do sleep 0.05; done"
RUNNING, EXITED, NOT_READY = 1, 2, 1


async def until(condition: object, why: str) -> None:
    assert callable(condition)
    with trio.move_on_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.01)
        return
    raise AssertionError(why)


def stop(uid: str, container: str = "main") -> d.SendSignal:
    return d.SendSignal(key=f"stop/{uid}/{container}", uid=uid, container=container, signal="SIGTERM")


def kill(uid: str, container: str = "main") -> d.KillContainer:
    return d.KillContainer(key=f"kill/{uid}/{container}", uid=uid, container=container)


async def test_inventory_from_labels_and_annotations(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """A pod is what a kubelet wrote about it: names, grace, hooks; priority and sidecars where annotated."""
    kubelet.pod(
        "full",
        Spec(POLITE, "proxy"),
        Spec(POLITE, "main", {"exec": {"command": ["/bin/touch", "secret"]}}),
        Spec(POLITE, "naps", {"sleep": {"seconds": 7}}),
        Spec(POLITE, "asks", {"httpGet": {"port": "web", "path": "/bye?token=1", "scheme": "HTTP"}}),
        grace=17,
        annotations=(("ebbtide/priority", "2000001000"), ("ebbtide/sidecars", "proxy")),
    )
    kubelet.pod("bare", Spec(POLITE), grace=None)
    async with rig_on(bed, tmp_path) as rig:
        full, bare = await rig.inventory()
    assert (full.uid, full.namespace, full.name) == ("uid-full", "test", "full")
    assert (full.priority, full.grace_seconds) == (2000001000, 17)
    assert full.containers == (
        Container(name="proxy", sidecar=True),
        Container(name="main", hook=Hook(kind="exec", detail="touch")),
        Container(name="naps", hook=Hook(kind="sleep", sleep_seconds=7)),
        Container(name="asks", hook=Hook(kind="httpGet", detail=":web/bye")),
    )
    assert (bare.priority, bare.grace_seconds) == (None, None)
    assert rig.said == ["1 of 2 pods have no annotation ebbtide/priority and count as priority 0: test/bare"]


async def test_stop_signal_and_exit(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A stop ends its container by its signal; the end is reported once, with its exit code."""
    kubelet.pod("three", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(stop("uid-three")) == Ending()
        (exited,) = await rig.outbox.wait_for(ContainerExited)
    assert exited == ContainerExited(uid="uid-three", container="main", exit_code=3)


async def test_a_stop_does_not_wait_for_the_end(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The order has ended when the signal was sent; SIGKILL overtakes the runtime's own wait."""
    kubelet.pod("deaf", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        began = time.monotonic()
        assert await rig.do(stop("uid-deaf")) == Ending()
        assert time.monotonic() - began < 1
        assert not rig.outbox.of(ContainerExited)
        assert await rig.do(kill("uid-deaf")) == Ending()
        (exited,) = await rig.outbox.wait_for(ContainerExited)
    assert exited.signal == "SIGKILL" or exited.exit_code == 137


async def test_the_end_of_what_has_ended_is_told_again(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Who stops a container that has ended hears of its end, and so does who stops one that is unknown."""
    kubelet.pod("brief", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-brief"))
        await rig.outbox.wait_for(ContainerExited)
        assert await rig.do(kill("uid-brief")) == Ending()
        assert await rig.do(stop("uid-nobody")) == Ending()
    ends = [(fact.uid, fact.exit_code) for fact in rig.outbox.of(ContainerExited)]
    assert ends == [("uid-brief", 3), ("uid-brief", 3), ("uid-nobody", None)]


async def test_exits_are_told_only_of_a_shutdown(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Outside a shutdown containers come and go without a fact."""
    made = kubelet.pod("quiet", Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await until(lambda: len(rig.edge.active()) == 1, "the table does not fill")
        kubelet.stop_container(made.containers["main"])
        await until(lambda: not rig.edge.active(), "its end is not seen")
        assert rig.outbox.facts == [RuntimeRead(reachable=True)]


async def test_autopsy(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A straggler's first process is examined by /proc: it ignores its stop signal."""
    kubelet.pod("deaf2", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(d.TakeAutopsy(key="a", uid="uid-deaf2", container="main")) == Ending()
        await rig.do(kill("uid-deaf2"))
    (taken,) = rig.outbox.of(AutopsyTaken)
    assert taken.processes[0].command == "sh"
    assert "SIGTERM" in taken.processes[0].signals_ignored


async def test_sandboxes_after_the_pods(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A pod's sandbox is stopped when all of it has ended; one in the node's network waits for the others."""
    node = kubelet.pod("node", Spec(POLITE), host_network=True)
    net = kubelet.pod("net", Spec(POLITE), Spec(POLITE, "two"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-node"))
        await rig.do(stop("uid-net"))
        await rig.outbox.wait_for(ContainerExited, 2)
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert kubelet.sandbox_state(node.sandbox) == kubelet.sandbox_state(net.sandbox) == 0
        await rig.do(stop("uid-net", "two"))
        await until(lambda: kubelet.sandbox_state(node.sandbox) == NOT_READY, "its sandbox stays")
        assert kubelet.sandbox_state(net.sandbox) == NOT_READY


async def test_a_container_that_is_made_anew(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A kubelet that has made one, and is about to start it, finds its sandbox as it was."""
    web = kubelet.pod("web", Spec(POLITE))
    others = [kubelet.pod(name, Spec(POLITE)) for name in ("one", "two")]
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        new = kubelet.again("web", web, Spec(POLITE), start=False)
        for count, name in enumerate(("web", "one", "two"), 1):
            await rig.do(stop(f"uid-{name}"))
            await rig.outbox.wait_for(ContainerExited, count)
        for other in others:
            await until(lambda at=other.sandbox: kubelet.sandbox_state(at) == NOT_READY, "a sandbox stays")
        assert kubelet.sandbox_state(web.sandbox) == 0
        kubelet.start(new)
        assert kubelet.state(new) == RUNNING


async def test_containerd_goes_and_comes_back(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """While the runtime is away stop signal and SIGKILL do without it, and ends are seen all the same."""
    kubelet.pod("stays", Spec(CODE_3))
    kubelet.pod("deaf3", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-deaf3"))
        bed.stop()
        try:
            assert await rig.do(kill("uid-deaf3")) == Ending()
            await rig.outbox.wait_for(ContainerExited, uid="uid-deaf3")
            assert await rig.do(stop("uid-stays")) == Ending()
            await rig.outbox.wait_for(ContainerExited, uid="uid-stays")
        finally:
            bed.start()
        assert len(await rig.inventory("again")) == 0


async def test_a_restart_in_mid_shutdown(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The next daemon reports what ended meanwhile, and follows what a stop has already been sent to."""
    made = kubelet.pod("first", Spec(CODE_3))
    kubelet.pod("second", Spec("trap 'sleep 1; exit 4' TERM; touch /tmp/up; while :; do sleep 0.05; done"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-second"))
    kubelet.stop_container(made.containers["main"])
    async with rig_on(bed, tmp_path) as rig:
        await rig.outbox.wait_for(ContainerExited, uid="uid-first", exit_code=3)
        await rig.outbox.wait_for(ContainerExited, uid="uid-second", exit_code=4)
        # Whether it was heard is the core's to ask: it orders it once more.
        assert await rig.edge.adopt(stop("uid-second"), rig.outbox) is None
        assert await rig.do(stop("uid-second")) == Ending()


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
            await trio.sleep(0.3)
            bed.start()
            await until(lambda: taken == ["uid-early"], "no inventory")
            away, back, *_ = rig.said
            assert away.startswith("container runtime: ")
            assert back == "container runtime: it answers again"
    finally:
        if bed.process is None:
            bed.start()


# Mode cri on a real node: pods that a real kubelet made, with labels and annotations of its own.


E = TypeVar("E", bound=Event)
ARMED_SECONDS_MAX = 20
POLL_SECONDS = 0.02

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
            while not any(event.sufficient for event in self.events(d.GrantAssessed)):
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
    await make_classes(bed)
    await running(
        bed,
        pod("exec", "node-1", containers=[container(**touch)], terminationGracePeriodSeconds=7),
        pod("get", "node-1", containers=[container(SERVER, ports=ports, **get)]),
        pod("nap", "node-1", containers=[container(**pre_stop(sleep={"seconds": 1}))]),
        annotated(pod("mesh", "node-1", initContainers=[proxy], priorityClassName="low"), sidecars="proxy"),
        pod("host", "node-1", hostNetwork=True, priorityClassName="low"),
    )
    # Its annotation is not asked: the API server says a priority, and what it says counts.
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
    ended = {labels[event.uid]: event.outcome for event in daemon.events(d.PodEnded)}
    assert ended == dict.fromkeys(pods, "graceful")
    results = {labels[event.uid]: event.result for event in daemon.events(d.HookEnded)}
    assert results == {"exec": "done", "get": "done", "nap": "done"}
    assert [event.outcome for event in daemon.events(d.WaveEnded)] == ["complete", "complete"]
    exits = daemon.events(ContainerExited)
    assert [event.container for event in exits if labels[event.uid] == "mesh"] == ["main", "proxy"]
