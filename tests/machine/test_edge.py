"""The logind edge on whole machines: what only a real service manager, or a newer systemd, can show."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.service_manager import system_is_stopping, userspace_id
from ebbtide.events.base import NS_PER_SECOND
from tests.beds.inside import PROJECT
from tests.beds.machine import WANTS_REBOOT, Machine
from tests.beds.rootfs import SOFT_REBOOTS

pytestmark = [pytest.mark.root, pytest.mark.machine]

WAIT_SECONDS_MAX = 20
SLOW = "slow.service"
#: Ordered as our unit is: stopped before the bus. It holds the machine for a moment while it stops.
SLOW_UNIT = """[Unit]
After=dbus.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sleep 2
"""
LOCKS = ("systemd-inhibit", "--list", "--no-legend", "--no-pager", "--mode=delay")


class Agent:
    """The edge in the machine: orders in, facts and outcomes out."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.said: list[tuple[str, dict[str, Any]]] = []
        self._more = trio.Event()

    async def listen(self) -> None:
        assert self._process.stdout is not None
        buffer = b""
        async for chunk in self._process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            self.said.extend((kind, values) for kind, values in map(json.loads, lines))
            self._more.set()
            self._more = trio.Event()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [values for name, values in self.said if name == kind]

    async def wait(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The ``count``-th fact of a kind, or outcome, now or soon."""
        with trio.move_on_after(WAIT_SECONDS_MAX):
            while len(self.of(kind)) < count:
                await self._more.wait()
            return self.of(kind)[count - 1]
        raise AssertionError(f"no {kind} number {count} in {self.said}")

    async def do(self, kind: str, **values: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        count = len(self.of("Ending"))
        await self._process.stdin.send_all(json.dumps([kind, {"key": "k", **values}]).encode() + b"\n")
        return await self.wait("Ending", count + 1)


@contextlib.asynccontextmanager
async def agent_in(machine: Machine) -> AsyncIterator[Agent]:
    argv = ["nsenter", "-t", str(machine.init), "--pid", "--", sys.executable, "-m", "tests.machine.agent"]
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [*argv, f"/proc/{machine.init}/root"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT
        )
        agent = Agent(process)
        nursery.start_soon(agent.listen)
        try:
            yield agent
        finally:
            process.kill()
            await process.wait()
            nursery.cancel_scope.cancel()


async def boot(machine: Machine) -> None:
    """The last program of a shutdown waits for an entered process that is not its child: not for long."""
    machine.write("/etc/systemd/system.conf.d/test.conf", "[Manager]\nDefaultTimeoutStopSec=5s\n")
    await machine.boot()


def bus_of(machine: Machine) -> str:
    return f"unix:path=/proc/{machine.init}/root/run/dbus/system_bus_socket"


@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt"])
async def test_systemctl_waits_for_the_lock(machine: Machine, kind: str) -> None:
    """`systemctl KIND` comes as one fact with its kind, and the machine leaves when the lock does."""
    await boot(machine)
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        await machine.run("systemctl", kind)
        signal = await agent.wait("PrepareForShutdown")
        assert (signal["active"], signal["kind"], signal["lock_held"]) == (True, kind, True)
        assert "ebbtide" in (await machine.run(*LOCKS)).stdout
        await agent.do("ReleaseLock")
    assert await machine.wait_left() == (WANTS_REBOOT if kind == "reboot" else 0)
    assert len(agent.of("PrepareForShutdown")) == 1


@pytest.mark.parametrize("machine", [SOFT_REBOOTS], indirect=True)
async def test_a_soft_reboot_waits_and_is_another_userspace(machine: Machine) -> None:
    """Where systemd has it: the same boot, the same container, another userspace."""
    await boot(machine)
    before, init = await userspace_id(bus_of(machine)), machine.init
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        await machine.run("systemctl", "soft-reboot")
        assert (await agent.wait("PrepareForShutdown"))["kind"] == "soft-reboot"
        await agent.do("ReleaseLock")
    await machine.until("sh", "-c", "systemctl show -P SoftRebootsCount | grep -qx 1")
    await machine.wait_booted()
    assert (await userspace_id(bus_of(machine)), machine.init) == (f"{before}+1", init)


async def test_the_limit_is_raised_by_the_real_service_manager(machine: Machine) -> None:
    """Rule 4: `KillUnit` of the real systemd is how logind reads our drop-in, and how it is taken back."""
    await boot(machine)
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        assert (await agent.do("WriteDropIn", seconds=42))["result"] == "done"
        assert agent.of("LogindRead")[-1]["grant_ns"] == 42 * NS_PER_SECOND
        assert (await agent.do("RemoveDropIn"))["result"] == "done"
        assert agent.of("LogindRead")[-1]["grant_ns"] == 5 * NS_PER_SECOND


async def test_shutdown_in_an_hour_and_its_cancel(machine: Machine) -> None:
    """Rule 6: `shutdown +60` is on record with who asked and why, `shutdown -c` as its end."""
    await boot(machine)
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        await machine.run("shutdown", "-r", "+60", "new disks")
        scheduled = await agent.wait("ScheduleRead")
        assert (scheduled["kind"], scheduled["uid"], scheduled["wall_message"]) == ("reboot", 0, "new disks")
        await machine.run("shutdown", "-c")
        assert await agent.wait("ScheduleRead", 2) == {}
        assert agent.of("PrepareForShutdown") == []


async def test_a_restarted_logind_keeps_the_lock(machine: Machine) -> None:
    """Rules 2 and 5: with the real unit's state folders the lock outlives logind, and is found good."""
    await boot(machine)
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        await machine.run("systemctl", "restart", "systemd-logind")
        await agent.wait("BusLost")
        assert (await agent.do("Arm", attempt=2))["result"] == "done"
        assert (await machine.run(*LOCKS)).stdout.count("ebbtide") == 1


async def test_a_bypassed_logind_still_says_that_the_system_stops(machine: Machine) -> None:
    """Rule 7: `systemctl start poweroff.target` sends no signal; the service manager's state tells."""
    machine.write(f"/etc/systemd/system/{SLOW}", SLOW_UNIT)
    await boot(machine)
    await machine.run("systemctl", "start", SLOW)
    assert not await system_is_stopping(bus_of(machine))
    address = bus_of(machine)
    async with agent_in(machine) as agent:
        await agent.do("Arm")
        await machine.run(
            "systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", "poweroff.target"
        )
        with trio.fail_after(WAIT_SECONDS_MAX):
            while not await system_is_stopping(address):
                await trio.sleep(0.01)
        assert agent.of("PrepareForShutdown") == []
    await machine.wait_left()
