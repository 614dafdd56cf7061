"""The CRI edge on a real containerd: inventory, stop, SIGKILL, exits, autopsy, sandboxes, restarts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.interfaces import Ending
from events.decisions import KillContainer, SendSignal, TakeAutopsy, TakeInventory
from events.facts import AutopsyTaken, ContainerExited, RuntimeRead
from events.model import Container, Hook
from tests.cri.conftest import PATIENCE_SECONDS, rig_on
from tests.cri.containerd import Containerd
from tests.cri.pods import Kubelet, Spec

pytestmark = [pytest.mark.node, pytest.mark.root, pytest.mark.slow]

POLITE = "trap 'exit 0' TERM; touch /tmp/up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; touch /tmp/up; while :; do sleep 0.05; done"
CODE_3 = "trap 'exit 3' TERM; touch /tmp/up; while :; do sleep 0.05; done"
EXITED, NOT_READY = 2, 1


async def until(condition: object, why: str) -> None:
    assert callable(condition)
    with trio.move_on_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.01)
        return
    raise AssertionError(why)


def stop(uid: str, container: str = "main") -> SendSignal:
    return SendSignal(key=f"stop/{uid}/{container}", uid=uid, container=container, signal="SIGTERM")


def kill(uid: str, container: str = "main") -> KillContainer:
    return KillContainer(key=f"kill/{uid}/{container}", uid=uid, container=container)


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
        assert await rig.do(TakeAutopsy(key="a", uid="uid-deaf2", container="main")) == Ending()
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


async def test_containerd_goes_and_comes_back(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """While the runtime is away a stop waits, SIGKILL does without it, and ends are seen all the same."""
    kubelet.pod("stays", Spec(CODE_3))
    kubelet.pod("deaf3", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-deaf3"))
        bed.stop()
        try:
            assert await rig.do(kill("uid-deaf3")) == Ending()
            await rig.outbox.wait_for(ContainerExited, uid="uid-deaf3")
            answers: list[Ending] = []

            async def stop_it() -> None:
                answers.append(await rig.do(stop("uid-stays")))

            rig.nursery.start_soon(stop_it)
            await trio.sleep(0.3)
            assert answers == []
        finally:
            bed.start()
        await rig.outbox.wait_for(ContainerExited, uid="uid-stays", exit_code=3)
        assert len(await rig.inventory("again")) == 0


async def test_a_restart_in_mid_shutdown(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The next daemon reports what ended meanwhile, and follows what a stop has already been sent to."""
    made = kubelet.pod("first", Spec(CODE_3))
    kubelet.pod("second", Spec("trap 'sleep 1; exit 4' TERM; while :; do sleep 0.05; done"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-second"))
    kubelet.stop_container(made.containers["main"])
    async with rig_on(bed, tmp_path) as rig:
        await rig.outbox.wait_for(ContainerExited, uid="uid-first", exit_code=3)
        await rig.outbox.wait_for(ContainerExited, uid="uid-second", exit_code=4)
        assert await rig.edge.adopt(stop("uid-second"), rig.outbox) == Ending()


async def test_a_runtime_that_is_not_there_yet(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """An inventory without a runtime is not an empty one: it fails, and by call it waits for it."""
    kubelet.pod("early", Spec(POLITE))
    bed.stop()
    try:
        async with rig_on(bed, tmp_path) as rig:
            failed = await rig.do(TakeInventory(key="warm"))
            assert failed.result == "failed"
            (read,) = rig.outbox.facts
            assert read == RuntimeRead(reachable=False, error="the runtime is away for 1.0 s")
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
