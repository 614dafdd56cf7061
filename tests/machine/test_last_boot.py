"""Whole machines: the next boot's verdict on the last one, from systemd's logs.

Newer systems have no wtmp (trixie); a container has no crash store, watchdog and boot loader.
"""

from __future__ import annotations

import pytest

from ebbtide.actors.edges.last_boot_reading import JOURNAL_STOP, POWER_KEYS, SHUTDOWN_UNIT, UNIT_STARTED
from ebbtide.events import decisions as d
from ebbtide.events.facts import LastBootRead
from tests.beds.machine import Machine
from tests.machine.node import UNITS, Node
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.machine]

#: A container's boot ID covers the host's, which the shipped sandbox would see. So the daemon runs in mode
#: process's sandbox, and a separate program tests the shipped one.
READER = """
import pathlib, trio
from ebbtide.actors.edges.last_boot_reading import read_last_boot, this_machine
read = trio.run(read_last_boot, this_machine(), pathlib.Path("/var/lib/ebbtide/node"), "{boot}")
print(read.crash, read.wtmp, read.journal)
"""


@pytest.fixture
async def node(machine: Machine) -> Node:
    """Installed, with two pods in two waves; off."""
    made = Node(machine)
    made.install()
    made.configure({0: 6, 1000: 6})
    made.pod("web")
    made.pod("db", priority=1000)
    return made


async def next_boot(node: Node, count: int) -> tuple[LastBootRead, tuple[str, str, int]]:
    """The readings and the verdict after the ``count``th boot."""
    await until(lambda: len(node.events(d.LastBootEnded)) >= count, f"no end of {count} boots")
    read, ended = node.events(LastBootRead), node.events(d.LastBootEnded)
    assert (len(read), len(ended)) == (count, count)
    assert ended[-1].boot_id == read[-1].boot_id
    return read[-1], (ended[-1].ending, ended[-1].why, ended[-1].wave)


async def booted(node: Node) -> None:
    await node.machine.boot()
    await node.armed("web", "db")


async def read_in_sandbox(node: Node, boot_id: str) -> str:
    """In the shipped unit's sandbox, with its rights."""
    machine = node.machine
    machine.write("/opt/reader.py", READER.format(boot=boot_id))
    shipped = machine.read(f"{UNITS}/ebbtide.service")
    first = "CapabilityBoundingSet="
    sandbox = first + shipped.partition(first)[2].partition("[Install]")[0]
    assert "SystemCallFilter=" in sandbox
    machine.write(
        f"{UNITS}/reader.service",
        "[Service]\nType=oneshot\nExecStart=/opt/ebbtide/bin/python3 /opt/reader.py\n"
        f"StandardOutput=truncate:/var/reader.txt\n{sandbox}",
    )
    await machine.run("systemctl", "daemon-reload")
    await machine.run("systemctl", "start", "reader")
    return machine.read("/var/reader.txt").strip()


def keeps_wtmp(node: Node) -> bool:
    return node.machine.suite == "bookworm"


async def test_in_order_by_force_and_not_at_all(node: Node) -> None:
    """A waiting reboot is graceful. A forced one (`reboot -ff`) and a power cut both leave no record.
    `reboot -f` without unit stops is distinct, and so is an orderly shutdown without a daemon or
    periods.
    """
    machine = node.machine
    await booted(node)
    assert node.events(LastBootRead) == []
    await machine.reboot()
    read, said = await next_boot(node, 1)
    assert said == ("graceful", "", -1)
    assert (read.wtmp, read.journal) == ("shutdown" if keeps_wtmp(node) else "absent", "shutdown")
    # The sign of life is this boot's by now; without one wtmp is no proof.
    assert await read_in_sandbox(node, read.boot_id) == "none absent shutdown"

    await node.armed("web", "db")
    await machine.run("systemctl", "reboot", "-ff", check=False)
    await machine.wait_left()
    await booted(node)
    read, said = await next_boot(node, 2)
    assert said == ("abrupt", "unrecorded", -1)
    silent = ("no-shutdown" if keeps_wtmp(node) else "absent", "no-shutdown")
    assert (read.wtmp, read.journal) == silent

    # Any local user may log any message id.
    for message_id in (UNIT_STARTED, *POWER_KEYS, JOURNAL_STOP):
        machine.write("/var/forged", f"MESSAGE_ID={message_id}\nUNIT={SHUTDOWN_UNIT}\nMESSAGE=forged\n")
        await machine.run("setpriv", "--reuid=65534", "--clear-groups", "logger", "--journald=/var/forged")
    await machine.run("journalctl", "--sync")
    await machine.pull_the_plug()
    await booted(node)
    read, said = await next_boot(node, 3)
    assert said == ("abrupt", "unrecorded", -1)
    assert not read.power_key
    assert (read.wtmp, read.journal) == silent
    assert "last boot: without a shutdown: power cut" in await node.log()

    await machine.run("systemctl", "reboot", "-f", check=False)
    await machine.wait_left()
    await booted(node)
    read, said = await next_boot(node, 4)
    assert said == ("graceful", "bypassed", -1)
    assert read.journal == "stopped"

    await machine.run("systemctl", "stop", "ebbtide")
    await machine.reboot()
    assert (await next_boot(node, 5))[1] == ("never-begun", "not-running", -1)

    await node.armed("web", "db")
    node.configure({})
    await machine.run("systemctl", "restart", "ebbtide")
    await machine.reboot()
    assert (await next_boot(node, 6))[1] == ("never-begun", "not-configured", -1)
    assert node.replays() > 0
    await machine.pull_the_plug()
