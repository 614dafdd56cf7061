"""The host unit in its sandbox, on whole machines that look like Kubernetes nodes."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import Event
from ebbtide.events.facts import ApiRead, KubeletRead, OrderEnded, RuntimeRead
from tests import waiting
from tests.beds.inside import PROJECT
from tests.beds.machine import Machine, machine_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip
from tests.machine.node import Node

pytestmark = [pytest.mark.root, pytest.mark.machine]

PORT = 8001
SOCKET = "/run/stand-in.sock"
UNITS = "/etc/systemd/system"
KUBELET = "[Service]\nExecStart=/bin/sleep infinity\n"
NEIGHBOURS = f"""[Unit]
Before=ebbtide.service
[Service]
ExecStart=/opt/ebbtide/bin/python3 /opt/neighbours.py {SOCKET} {PORT}
"""
KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{PORT}"}}],
    "users": [{"name": "u", "user": {"token": "of-nobody"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}
LIMIT = ("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1")
PROPERTY = ("org.freedesktop.login1.Manager", "InhibitDelayMaxUSec")

E = TypeVar("E", bound=Event)


@pytest.fixture(params=SUITES)
async def node(request: pytest.FixtureRequest) -> Any:
    """An off machine that looks like a Kubernetes node to the unit."""
    with or_skip():
        async with machine_bed(request.param) as machine:
            yield install(machine)


def install(machine: Machine) -> Node:
    made = Node(machine)
    made.install((PROJECT / "deploy/systemd/node.conf").read_text(), "requirements-node.lock")
    machine.copy_in(PROJECT / "tests/deploy/neighbours.py", "/opt/neighbours.py")
    for name, text in (("kubelet", KUBELET), ("neighbours", NEIGHBOURS)):
        machine.write(f"{UNITS}/{name}.service", text)
        machine.place(f"{UNITS}/multi-user.target.wants/{name}.service").symlink_to(f"{UNITS}/{name}.service")
    machine.write("/etc/ebbtide/kubeconfig", json.dumps(KUBECONFIG), 0o600)
    made.configure({0: 6}, node={"criSocket": SOCKET, "nodeName": "node-1"})
    return made


async def until(node: Node, kind: type[E], holds: Any) -> None:
    await waiting.until(
        lambda: any(holds(event) for event in node.events(kind)), f"there is no such {kind.__name__}"
    )


async def test_a_node_in_its_sandbox(node: Node) -> None:
    """Both clients work, and a reboot stops the kubelet's unit."""
    machine = node.machine
    await machine.boot()
    await until(node, d.Armed, bool)
    await until(node, RuntimeRead, lambda read: read.reachable)
    await until(node, ApiRead, lambda read: read.reachable and read.taint)
    await until(node, KubeletRead, lambda read: read.active)
    await machine.reboot()
    await until(node, d.EpisodeClosed, lambda closed: closed.outcome == "complete")
    assert [began.kind for began in node.events(d.ShutdownBegan)] == ["reboot"]
    assert [chosen.means for chosen in node.events(d.MeansChosen)] == ["cri"]
    (stop,) = node.events(d.StopKubelet)
    assert [ended.result for ended in node.events(OrderEnded) if ended.key == stop.key] == ["done"]
    assert len(node.events(d.ReleaseLock)) == 1
    assert node.replays() > 0


async def limited(machine: Machine, limit: str) -> None:
    """logind applies a drop-in a moment after its reload."""

    async def so() -> bool:
        return (await machine.run(*LIMIT, *PROPERTY)).stdout == limit

    await waiting.until(so, f"logind's limit is not {limit}")
