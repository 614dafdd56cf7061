"""The machine bed itself: it boots, it leaves, and nothing of it stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.beds.machine import RUN_SECONDS_MAX, Machine, machine_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip

pytestmark = [pytest.mark.root, pytest.mark.machine]

PROPERTY = ("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1")
MANAGER = "org.freedesktop.login1.Manager"


async def test_it_boots_and_powers_off(machine: Machine) -> None:
    """logind answers in the booted machine, and `systemctl poweroff` ends it."""
    await machine.boot()
    answer = await machine.run(*PROPERTY, MANAGER, "InhibitDelayMaxUSec")
    assert answer.stdout == "t 5000000\n"
    assert await machine.power_off() == 0
    assert machine.init is None
    assert "Reached target poweroff.target" in await machine.system_log("-o", "cat")


@pytest.mark.parametrize("suite", SUITES)
async def test_nothing_of_it_stays(suite: str) -> None:
    """After the bed no process, mount, control group or folder of it is left, though it was running."""
    mounts = Path("/proc/self/mountinfo").read_text()
    with or_skip():
        async with machine_bed(suite) as machine:
            await machine.boot()
            init, folder = machine.init, machine.folder
            assert init is not None
    assert not Path(f"/proc/{init}").exists()
    assert not folder.exists()
    assert Path("/proc/self/mountinfo").read_text() == mounts
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    assert not any(folder.name in name for name in groups)


async def test_files_go_in_and_out(machine: Machine) -> None:
    """What was put in before the boot is there, and what the machine wrote is read after it is down."""
    machine.write("/etc/ebbtide-test", "before")
    await machine.boot()
    machine.write("/root/live", "while it runs")
    await machine.run("sh", "-c", "cat /etc/ebbtide-test /root/live > /var/lib/both")
    await machine.power_off()
    assert machine.read("/var/lib/both") == "beforewhile it runs"
    assert "Debian" in machine.read("/etc/os-release")


async def test_a_second_boot_finds_what_the_first_left(machine: Machine) -> None:
    """The layer stays from boot to boot; the boot id does not."""
    await machine.boot()
    first = (await machine.run("cat", "/proc/sys/kernel/random/boot_id")).stdout
    machine.write("/var/lib/left", "by the first boot")
    await machine.pull_the_plug()
    await machine.boot()
    assert machine.read("/var/lib/left") == "by the first boot"
    assert (await machine.run("cat", "/proc/sys/kernel/random/boot_id")).stdout != first


async def test_a_reboot_from_within(machine: Machine) -> None:
    """`systemctl reboot` ends the machine with the code that asks for another boot, and gets it."""
    await machine.boot()
    before = (await machine.run("cat", "/proc/sys/kernel/random/boot_id")).stdout
    await machine.reboot()
    assert (await machine.run("cat", "/proc/sys/kernel/random/boot_id")).stdout != before
    await machine.power_off()


async def test_a_command_that_is_stopped_is_given_up(machine: Machine) -> None:
    """As a machine stops all there is before it changes its userspace."""
    await machine.boot()
    with trio.fail_after(RUN_SECONDS_MAX), pytest.raises(trio.TooSlowError):
        await machine.run("sh", "-c", "kill -STOP $$", seconds=1)
    await machine.pull_the_plug()
