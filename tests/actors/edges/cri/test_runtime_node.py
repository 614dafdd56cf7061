"""A node whose kubelet lives and whose API server answers: who a pod is, and what is taken back."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import ApiRead, ContainerExited, InventoryTaken, KubeletRead, PodJoined, RuntimeRead
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.client import Object
from tests.node.contenders import OFF
from tests.node.ebbtide import COMMAND, Daemon
from tests.node.pods import PODS, container, pod, remove_all, running, static
from tests.node.serving import served
from tests.node.shutdowns import CLASSES
from tests.node.weather import Weather

pytestmark = [pytest.mark.node, pytest.mark.root]

KUBELET = "kubelet-node-1"
WAVES = [{"priority": each, "shutdownGracePeriodSeconds": 8} for each in (0, 1000, 2_000_000_000)]
SLOW = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"
SECONDS_MAX = 30
POLL_SECONDS = 0.02


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
    with trio.fail_after(SECONDS_MAX):
        while len(await bed.logind.starts()) == before:
            await trio.sleep(POLL_SECONDS)


async def alive(bed: Bed) -> bool:
    return KUBELET in await bed.inside.do("alive")


async def test_a_node_goes_down(opened: Bed, daemon: Daemon) -> None:
    """Priorities come from the API, the kubelet is stopped beside the first wave, nothing comes back."""
    mesh = [container(SLOW, name="proxy", restartPolicy="Always")]
    await running(
        opened,
        pod("plain", "node-1", SLOW),
        pod("high", "node-1", priorityClassName="high"),
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


@pytest.fixture
async def weather(opened: Bed) -> AsyncIterator[Weather]:
    """Before the API server, clear at first."""
    made = Weather(opened)
    await made.start()
    yield made
    await made.stop()


AGENT = pod("agent", priorityClassName="system-node-critical", priority=2_000_001_000)
NOBODY_HAS_SAID = "mode api wants api, but nobody has said yet whether the API server answers"


@pytest.mark.parametrize("mode, reason", [("cri", "mode cri"), ("api", NOBODY_HAS_SAID)])
async def test_a_signal_at_the_very_first_start(
    opened: Bed, daemon: Daemon, weather: Weather, mode: str, reason: str
) -> None:
    """Nothing is kept from before, and the API server's first answer comes after the signal: the plan is made
    with it, and the reason of the means is what was known at the signal.
    """
    daemon.mode, daemon.server = mode, weather.server
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    await running(opened, pod("plain", "node-1"), pod("high", "node-1", priorityClassName="high"))
    async with static(opened, daemon.member, AGENT):
        weather.becomes(delay_seconds=0.4)
        await daemon.start()
        await go_down(opened, "reboot")
        weather.becomes()
    first = daemon.events(InventoryTaken)[0]
    assert {each.name: each.priority for each in first.pods} == {
        "plain": 0,
        "high": 1000,
        "agent-node-1": 2_000_001_000,
    }
    assert first.untold == ""
    assert [event.wave for event in daemon.events(d.WaveStarted)] == [0, 1, 2]
    assert [(event.means, event.reason) for event in daemon.events(d.MeansChosen)] == [("cri", reason)]
    assert {event.outcome for event in daemon.events(d.PodEnded)} == {"graceful"}
    await daemon.verify()


async def test_a_first_start_beside_a_silent_api_server(
    opened: Bed, daemon: Daemon, weather: Weather
) -> None:
    """The wait is bounded, manifests tell the priorities of static pods, and why others have none is on
    record.
    """
    daemon.server = weather.server
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    await running(opened, pod("high", "node-1", priorityClassName="high"))
    async with static(opened, daemon.member, AGENT):
        weather.becomes(delay_seconds=SECONDS_MAX)
        await daemon.start()
        await daemon.until(lambda: daemon.events(RuntimeRead), "the runtime is not found")
        await go_down(opened, "reboot")
        weather.becomes()
    at = {type(each.event): each.mono_ns for each in reversed(daemon.records())}
    waited_seconds = (at[InventoryTaken] - at[d.ShutdownBegan]) / NS_PER_SECOND
    assert 1.4 < waited_seconds < 4
    first = daemon.events(InventoryTaken)[0]
    assert {each.name: each.priority for each in first.pods} == {"high": None, "agent-node-1": 2_000_001_000}
    assert first.untold == "the API server has not listed this node's pods yet"
    assert [event.wave for event in daemon.events(d.WaveStarted)] == [0, 2]
    await daemon.verify()


async def test_ready_once_the_pods_are_known(
    opened: Bed, daemon: Daemon, weather: Weather, tmp_path: Path
) -> None:
    """Armed is not yet READY: who answers has to be known, by the service manager and by a probe."""
    address = daemon.folder / "notify"
    daemon.server, daemon.environ = weather.server, {"NOTIFY_SOCKET": str(address)}
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    await running(opened, pod("high", "node-1", priorityClassName="high"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as heard:
        heard.bind(str(address))
        said: list[str] = []

        def ready() -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    said.append(heard.recv(65536).decode())
            return any("READY=1" in each for each in said)

        weather.becomes(delay_seconds=2)
        await daemon.start()
        await daemon.until(lambda: daemon.events(d.Armed), "it is not armed")
        probe = await probed(daemon)
        assert not ready()
        assert not daemon.events(ApiRead)
        assert (probe.returncode, "not heard of yet" in probe.stderr) == (1, True)
        weather.becomes()
        await daemon.until(ready, "it does not get ready")
        assert [fact.reachable for fact in daemon.events(ApiRead)] == [True]
        assert (await probed(daemon)).returncode == 0
    address.unlink()


async def probed(daemon: Daemon) -> subprocess.CompletedProcess[str]:
    """What the probe of its pod would see."""
    folder = daemon.folder / "run"
    argv = [*daemon.bed.enter, *COMMAND, "status", "--ready", "--runtime", str(folder)]
    return await trio.to_thread.run_sync(lambda: subprocess.run(argv, capture_output=True, text=True))


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


async def test_deletes_without_the_runtime(opened: Bed, daemon: Daemon) -> None:
    """Mode api needs no runtime's socket: the pods, and their ends, are those that the API server knows."""
    daemon.mode = "api"
    settings = {"criSocket": str(daemon.folder / "nobody.sock")}
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s", node=settings)
    await running(opened, pod("plain", "node-1", SLOW), pod("high", "node-1", SLOW, priorityClassName="high"))
    await daemon.start()
    await daemon.until(
        lambda: daemon.events(RuntimeRead) and any(fact.reachable for fact in daemon.events(ApiRead)),
        "nobody says who answers",
    )
    await go_down(opened, "poweroff")
    (taken,) = {fact.source for fact in daemon.events(InventoryTaken)}
    assert taken == "cache"
    assert [fact.reachable for fact in daemon.events(RuntimeRead)] == [False]
    assert [event.means for event in daemon.events(d.MeansChosen)] == ["api"]
    # The object goes as soon as its last status is there, and has it with it.
    assert [event.outcome for event in daemon.events(d.PodEnded)] == ["graceful", "graceful"]
    # What an earlier daemon of this boot was given, and has ended since, is told as well.
    ours = {event.pod.uid for event in daemon.events(d.PodPlanned)}
    ends = [event.exit_code for event in daemon.events(ContainerExited) if event.uid in ours]
    assert ends == [0, 0]
    assert [event.outcome for event in daemon.events(d.WaveEnded)][:2] == ["complete", "complete"]
    await opened.api.until(PODS, lambda made: not made["items"])
    await daemon.verify()


def restarts(made: Object) -> int:
    """Of a container that runs; -1 for one that does not."""
    (status,) = made["status"].get("containerStatuses") or [{}]
    return int(status["restartCount"]) if "running" in status.get("state", {}) else -1
