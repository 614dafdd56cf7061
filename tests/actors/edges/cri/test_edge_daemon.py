"""Shutdowns of a node by the real daemon: logind's signal, waves over CRI, the release, and the replay."""

from __future__ import annotations

import signal

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import AutopsyTaken, ContainerExited, DaemonStarted, InventoryTaken
from tests.actors.edges.cri.daemon_rig import DaemonRig
from tests.actors.edges.cri.pods import CODE_3, DEAF, GOES_ON, POLITE, SERVER, Kubelet, Spec, priority

pytestmark = [pytest.mark.node, pytest.mark.root]

CRITICAL = 2_000_000_000


def twenty_pods(kubelet: Kubelet) -> None:
    """Three priorities, all hooks, one that is deaf, one with a sidecar, two in the node's network."""
    web = {"httpGet": {"port": "web", "path": "/bye"}}
    port = ({"name": "web", "containerPort": 8080, "protocol": "TCP"},)
    touch = {"exec": {"command": ["/bin/touch", "/tmp/hooked"]}}
    for number in range(12):
        kubelet.pod(f"plain-{number}", Spec(POLITE))
    kubelet.pod("deaf", Spec(DEAF), grace=1)
    kubelet.pod("exec", Spec(CODE_3, pre_stop=touch), annotations=priority(1000))
    kubelet.pod("get", Spec(SERVER, pre_stop=web, ports=port), annotations=priority(1000))
    kubelet.pod("nap", Spec(POLITE, pre_stop={"sleep": {"seconds": 1}}), annotations=priority(1000))
    kubelet.pod("mesh", Spec(POLITE, "proxy"), Spec(GOES_ON), annotations=priority(1000, sidecars="proxy"))
    for name in ("proxy", "cni"):
        kubelet.pod(name, Spec(POLITE), annotations=priority(CRITICAL), host_network=True)
    kubelet.pod("static", Spec(POLITE), annotations=priority(CRITICAL))


async def test_a_shutdown_of_twenty_pods(kubelet: Kubelet, rig: DaemonRig) -> None:
    """Waves in order, hooks before stops, the sidecar last, the deaf one killed, then the release."""
    twenty_pods(kubelet)
    rig.configure({0: 6, 1000: 6, CRITICAL: 4})
    await rig.start()
    await rig.logind.power_off("reboot")
    unit, _ = await rig.logind.started()
    assert unit == "reboot.target"
    await rig.recorded(d.ReleaseLock)
    (inventory,) = [fact for fact in rig.events(InventoryTaken) if "refresh" not in fact.key][:1]
    assert (inventory.source, len(inventory.pods)) == ("cri", 20)
    ended = {event.uid.removeprefix("uid-"): event for event in rig.events(d.PodEnded)}
    assert len(ended) == 20
    assert {name for name, event in ended.items() if event.outcome != "graceful"} == {"deaf"}
    assert ended["deaf"].outcome == "killed"
    assert "ignores SIGTERM" in ended["deaf"].reason
    assert "exit code 3" in ended["exec"].reason
    assert [event.outcome for event in rig.events(d.WaveEnded)] == ["complete"] * 3
    assert [event.priority for event in rig.events(d.WaveStarted)] == [0, 1000, CRITICAL]
    hooks = {event.uid.removeprefix("uid-"): event.result for event in rig.events(d.HookEnded)}
    assert hooks == {"exec": "done", "get": "done", "nap": "done"}
    assert len(rig.events(AutopsyTaken)) == 1
    stops = [(event.uid, event.container) for event in rig.events(d.SendSignal)]
    assert len(stops) == len(dict.fromkeys(stops)) == 21
    ends = [fact.container for fact in rig.events(ContainerExited) if fact.uid == "uid-mesh"]
    assert ends == ["main", "proxy"]


async def test_the_daemon_dies_in_the_middle(kubelet: Kubelet, rig: DaemonRig) -> None:
    """The next one goes on: no hook twice, what ended meanwhile is known, the waves are finished."""
    once = {"exec": {"command": ["/bin/sh", "-c", "echo x >> /tmp/hooked"]}}
    kubelet.pod("gone", Spec(GOES_ON, pre_stop=once))
    kubelet.pod("later", Spec(CODE_3), annotations=priority(1000))
    rig.configure({0: 8, 1000: 8})
    await rig.start()
    await rig.logind.power_off("reboot")
    await rig.recorded(d.SendSignal)
    await rig.kill()
    await trio.sleep(1.2)
    rig.launch()
    await rig.recorded(d.PodEnded, uid="uid-later")
    await rig.recorded(d.ReleaseLock)
    ended = {event.uid: event.reason for event in rig.events(d.PodEnded)}
    assert ended == {"uid-gone": "exit code 5", "uid-later": "exit code 3"}
    assert len(rig.events(DaemonStarted)) == 2
    assert len(rig.events(d.HookEnded)) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_the_runtime_is_restarted_in_the_middle(
    kubelet: Kubelet, rig: DaemonRig, how: signal.Signals
) -> None:
    """containerd goes in the first wave and comes back: the waves go on, and every pod's end is on record."""
    kubelet.pod("busy", Spec(GOES_ON))
    kubelet.pod("later", Spec(CODE_3), annotations=priority(1000))
    rig.configure({0: 8, 1000: 8})
    await rig.start()
    await rig.logind.power_off("reboot")
    await rig.recorded(d.SendSignal)
    await trio.sleep(0.3)
    rig.bed.stop(how)
    rig.bed.start()
    await rig.recorded(d.ReleaseLock)
    ended = {event.uid: event.reason for event in rig.events(d.PodEnded)}
    assert ended == {"uid-busy": "exit code 5", "uid-later": "exit code 3"}
