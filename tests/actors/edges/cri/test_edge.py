"""The CRI edge on a real containerd: inventory, hook, stop, SIGKILL, autopsy, restart.

Hanging, missing and late runtimes are tested on fakes with the mock clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import cri_runtime
from ebbtide.actors.edges.cri.cri_client import CriClient, method_of
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.decisions import TakeAutopsy
from ebbtide.events.facts import AutopsyTaken, ContainerExited
from ebbtide.events.values import Container, Hook
from tests.actors.edges.cri.conftest import hook, kill, rig_on, stop
from tests.actors.edges.cri.pods import CODE_3, DEAF, GOES_ON, POLITE, RUNNING, Kubelet, Spec
from tests.beds.containerd import USR1_IMAGE, Containerd
from tests.waiting import WATCHDOG_SECONDS, until

pytestmark = [pytest.mark.gate, pytest.mark.node, pytest.mark.root]

USR1 = "trap 'exit 7' USR1; trap 'exit 8' TERM; touch /tmp/up; while :; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's bounds, too wide for a slow machine to reach."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(WATCHDOG_SECONDS))


async def test_inventory_from_labels_and_annotations(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Names, grace and hooks come from the kubelet's labels; priority and sidecars from annotations."""
    kubelet.pod(
        "full",
        Spec(POLITE, "proxy", image=USR1_IMAGE),
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
        Container(name="proxy", sidecar=True, stop_signal="SIGUSR1"),
        Container(name="main", hook=Hook(kind="exec", detail="touch")),
        Container(name="naps", hook=Hook(kind="sleep", sleep_seconds=7)),
        Container(name="asks", hook=Hook(kind="httpGet", detail=":web/bye")),
    )
    assert (bare.priority, bare.grace_seconds) == (None, None)
    assert rig.said == [
        "1 of 2 pods have no known priority (nor an annotation ebbtide/priority) and count as priority 0:"
        " test/bare"
    ]


async def test_exec_hooks(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A hook runs in its container. Its exit code is recorded, its output and arguments are not."""
    hooks = {"runs": "echo secret; touch /tmp/ran", "fails": "exit 7"}
    words = {name: ["/bin/sh", "-c", script] for name, script in hooks.items()}
    words["absent"] = ["/bin/nothing-here", "secret"]
    made = {
        name: kubelet.pod(name, Spec(POLITE, pre_stop={"exec": {"command": command}}))
        for name, command in words.items()
    }

    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(hook("uid-runs")) == Ending("done", exit_code=0)
        assert kubelet.exec(made["runs"].containers["main"], "cat", "/tmp/ran") == 0
        assert await rig.do(hook("uid-fails")) == Ending("failed", "exit code 7", 7)
        absent = await rig.do(hook("uid-absent"))
        # An earlier daemon has already run this hook.
        assert await rig.edge.adopt(hook("uid-runs"), rig.outbox) is None
    assert absent.result == "failed"
    assert "no such file or directory" in absent.reason
    assert "nothing-here" not in absent.reason


@pytest.mark.parametrize("by_runtime", [False, True], ids=["signal", "StopContainer"])
async def test_stop_signal_and_exit(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_runtime: bool
) -> None:
    """A stop uses the image's signal. Each end is reported once, and again to a later order, even for an
    unknown container.
    """
    called: list[str] = []
    call = CriClient.call

    async def recorded(self: CriClient, request: Message, *rest: Any, **more: Any) -> Any:
        called.append(method_of(request))
        return await call(self, request, *rest, **more)

    monkeypatch.setattr(CriClient, "call", recorded)
    if by_runtime:
        monkeypatch.setattr(cri_runtime, "first_processes", lambda ids: {})
    made = kubelet.pod("brief", Spec(CODE_3), Spec(USR1, "other", image=USR1_IMAGE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(stop(made.uid)) == Ending()
        await rig.outbox.wait_for(ContainerExited)
        ending = await rig.do(stop(made.uid, "other"))
        assert ending == Ending(reason="" if by_runtime else "SIGUSR1 was sent, as its image asks")
        await rig.outbox.wait_for(ContainerExited, 2)
        assert called.count("StopContainer") == 2 * by_runtime
        assert await rig.do(kill(made.uid)) == Ending()
        assert await rig.do(stop("uid-nobody")) == Ending()
    ends = [(fact.container, fact.exit_code) for fact in rig.outbox.of(ContainerExited)]
    assert ends == [("main", 3), ("other", 7), ("main", 3), ("main", None)]


async def test_kill(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A stop does not wait. An autopsy examines the straggler, then SIGKILL ends it."""
    kubelet.pod("deaf", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(stop("uid-deaf")) == Ending()
        assert not rig.outbox.of(ContainerExited)
        assert await rig.do(TakeAutopsy(key="a", uid="uid-deaf", container="main")) == Ending()
        assert await rig.do(kill("uid-deaf")) == Ending()
        (exited,) = await rig.outbox.wait_for(ContainerExited)
    assert exited.signal == "SIGKILL" or exited.exit_code == 137
    (taken,) = rig.outbox.of(AutopsyTaken)
    assert taken.processes[0].command == "sh"
    assert "SIGTERM" in taken.processes[0].signals_ignored


async def test_a_restart_in_mid_shutdown(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The next daemon reports ends in between and follows the stops already sent. Orders address the
    containers of the first daemon, not their restarts.
    """
    first = kubelet.pod("first", Spec(CODE_3))
    kubelet.pod("second", Spec(GOES_ON))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-second"))
    kubelet.stop_container(first.containers["main"])
    again = kubelet.again("first", first, Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.outbox.wait_for(ContainerExited, uid="uid-first", exit_code=3)
        await rig.outbox.wait_for(ContainerExited, uid="uid-second", exit_code=5)
        # The core must decide whether the stop arrived: it orders it again.
        assert await rig.edge.adopt(stop("uid-second"), rig.outbox) is None
        assert await rig.do(stop("uid-second")) == Ending()
        assert await rig.edge.adopt(kill("uid-first"), rig.outbox) == Ending()
        await until(lambda: len(rig.edge.active()) == 1, "the new one is not found")
    assert kubelet.state(again) == RUNNING
