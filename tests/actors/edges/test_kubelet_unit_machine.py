"""The kubelet's unit on real service managers: the oldest supported one and a new one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges import kubelet_unit as edge_module
from ebbtide.actors.edges.kubelet_unit import KubeletEdge, KubeletUnit
from ebbtide.actors.interfaces import Ending
from ebbtide.events.bounds import Bounds
from ebbtide.events.decisions import StartKubelet, StopKubelet
from ebbtide.events.facts import KubeletRead
from tests.actors.edges.process.process_bed import Outbox
from tests.beds.machine import Machine, machine_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip

pytestmark = [pytest.mark.root, pytest.mark.machine]

UNITS, BOUNDS = "/etc/systemd/system", Bounds()
#: Ends on SIGTERM; restarts whenever it ended by itself.
POLITE = "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=1\n"
#: Ignores SIGTERM; the service manager would wait 90 seconds.
STUBBORN = """[Service]
ExecStart=/bin/sh -c 'trap "" TERM; touch /run/deaf; while :; do sleep 1; done'
TimeoutStopSec=90
"""
#: Crashes again and again.
CRASHES = "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=1\nStartLimitIntervalSec=0\n"
#: Needs a second to end.
SLOW = """[Service]
ExecStart=/bin/sh -c 'trap "sleep 1; exit 0" TERM; touch /run/slow; while :; do sleep 0.1; done'
"""
#: Ends when it is let.
WAITS = r"""[Service]
ExecStart=/bin/sh -c 'trap "until [ -e /run/let ]; do sleep 0.1; done; exit 0" TERM; touch /run/waits; \
  while :; do sleep 0.1; done'
"""
UNITS_HERE = {"polite": POLITE, "stubborn": STUBBORN, "crashes": CRASHES, "slow": SLOW, "waits": WAITS}


@pytest.fixture(params=SUITES)
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    with or_skip():
        async with machine_bed(request.param) as made:
            for name, text in UNITS_HERE.items():
                made.write(f"{UNITS}/{name}.service", text)
            await made.boot()
            yield made


def bus_of(machine: Machine) -> str:
    return f"unix:path=/proc/{machine.init}/root/run/dbus/system_bus_socket"


def unit_of(machine: Machine, name: str) -> KubeletUnit:
    return KubeletUnit(bus_of(machine), f"{name}.service")


async def shown(machine: Machine, unit: str, *names: str) -> str:
    """A unit's properties, from the service manager."""
    said = [await machine.run("systemctl", "show", "-P", name, unit, check=False) for name in names]
    return " ".join(each.stdout.strip() for each in said)


class Rig:
    """A running edge, its facts and its operator messages."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.outbox, self.said = Outbox(), list[str]()
        tell = lambda level, line: self.said.append(line)  # noqa: E731 - one line of a test
        self.edge = KubeletEdge(f"{name}.service", Path("/nowhere"), tell=tell, address=bus_of(machine))

    async def do(self, order: StopKubelet | StartKubelet) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        assert not isinstance(ending, Ending)
        return await ending

    def states(self) -> list[bool | None]:
        return [fact.active for fact in self.outbox.of(KubeletRead)]


@contextlib.asynccontextmanager
async def running(machine: Machine, name: str) -> AsyncIterator[Rig]:
    rig = Rig(machine, name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        await rig.outbox.wait_for(KubeletRead)
        yield rig
        nursery.cancel_scope.cancel()


async def test_stop_and_start(machine: Machine) -> None:
    """A ``Restart=always`` unit stays stopped. Repeated orders are safe; each change is a fact."""
    await machine.run("systemctl", "start", "polite")
    async with running(machine, "polite") as rig:
        for _ in range(2):
            assert await rig.do(StopKubelet(key="s")) == Ending()
        await trio.sleep(1.5)
        for _ in range(2):
            assert await rig.do(StartKubelet(key="t")) == Ending()
        assert rig.states() == [True, False, True]
        assert rig.said == []


@pytest.mark.parametrize("name", ["slow", "stubborn"])
async def test_a_start_while_it_is_stopped(
    machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running process ends. A process that an operator started meanwhile stays, and is reported."""
    monkeypatch.setattr(edge_module, "AGAIN_SECONDS", 0.1)
    await machine.run("systemctl", "start", name)
    await machine.until("test", "-e", {"slow": "/run/slow", "stubborn": "/run/deaf"}[name])
    before = await shown(machine, name, "InvocationID")
    async with running(machine, name) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(partial(machine.run, "sh", "-c", f"sleep 0.3; systemctl start {name}"))
        assert (await rig.do(StopKubelet(key="s"))).result == "done"
        await machine.until("systemctl", "is-active", name)
        after = await shown(machine, name, "InvocationID")
        assert after != before
        await rig.outbox.wait_for(KubeletRead, 2, active=True)
        await trio.sleep(BOUNDS.kubelet_stop_seconds)
        assert await shown(machine, name, "InvocationID", "ActiveState") == f"{after} active"
        assert rig.said == [f"{name}.service was stopped for a shutdown, and somebody started it"]


async def test_what_counts_as_active(machine: Machine) -> None:
    """A unit between restarts counts as active; a stopping unit does not."""
    await machine.run("systemctl", "start", "crashes", check=False)
    await machine.until("sh", "-c", "systemctl show -P SubState crashes | grep -qx auto-restart")
    await machine.run("systemctl", "start", "waits")
    await machine.until("test", "-e", "/run/waits")
    waits, crashes = unit_of(machine, "waits"), unit_of(machine, "crashes")
    assert await crashes.active() is True
    await machine.run("systemctl", "stop", "crashes", check=False)
    assert await crashes.active() is False
    await machine.run("rm", "/run/waits")
    await machine.run("systemctl", "restart", "--no-block", "waits")
    assert await shown(machine, "waits", "ActiveState") == "deactivating"
    assert await waits.active() is True
    await machine.run("touch", "/run/let")
    await machine.until("test", "-e", "/run/waits")
    await machine.run("rm", "/run/let")
    await machine.run("systemctl", "stop", "--no-block", "waits")
    assert await shown(machine, "waits", "ActiveState") == "deactivating"
    assert await waits.active() is False
    await machine.run("touch", "/run/let")


async def test_units_that_are_not_there(machine: Machine) -> None:
    """The state is unknown; both orders fail with one line."""
    async with running(machine, "kubelet") as rig:
        assert rig.states() == [None]
        assert await rig.do(StopKubelet(key="s")) == Ending("failed", "there is no unit kubelet.service")
        failed = await rig.do(StartKubelet(key="t"))
        assert failed.result == "failed"
        assert "kubelet.service not found" in failed.reason
