"""What `test_machine.py` leaves out, because CI has no time for it.

pytest tests/packages/lives.py
"""

from __future__ import annotations

import subprocess
from itertools import product

import pytest
import trio

from deploy.packages.build import FORMATS
from ebbtide.events import decisions as d
from ebbtide.events.facts import DaemonStarted
from tests.beds.inside import PROJECT
from tests.beds.machine import Machine
from tests.beds.rootfs import SUITES
from tests.deploy.test_unit import limited
from tests.machine.node import PROGRAM, TRACES, Node
from tests.packages.life import Packager, watched
from tests.packages.made import FIRST, SECOND, Packages
from tests.packages.test_machine import SAMPLE, life
from tests.packages.test_machine import node as node

LINTIAN_SECONDS_MAX = 300
WAIT_SECONDS_MAX = 20
WAVE_SECONDS = 90
OTHERS = [each for each in product(SUITES, FORMATS) if each not in SAMPLE]


@pytest.mark.parametrize("machine, form", OTHERS, indirect=["machine"])
async def test_the_life_of_a_package(node: Node, packages: Packages, form: str) -> None:
    """The same on the other machines."""
    await life(node, packages, form)


def test_debians_own_judgement(packages: Packages) -> None:
    """No tag of lintian's that is not overridden with its reason, but one: Debian's archive has no zstd, its
    dpkg does.
    """
    argv = ("lintian", "--allow-root", "--suppress-tags", "malformed-deb-archive", str(packages.first["deb"]))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LINTIAN_SECONDS_MAX)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("machine", ["bookworm"], indirect=True)
async def test_a_package_comes_in_the_middle_of_a_shutdown(machine: Machine, packages: Packages) -> None:
    """To remove it is refused; an upgrade is taken up: the pod is waited for by the version after, under the
    lock of the one before.
    """
    node, packager = Node(machine), Packager(machine, "deb")
    machine.copy_in(PROJECT / "tests/daemon/program.py", PROGRAM)
    machine.place(TRACES).mkdir(parents=True)
    await machine.boot()
    await packager.put(packages.first["deb"])
    node.configure({0: WAVE_SECONDS})
    # As long as an upgrade takes on a machine with much else to do.
    node.pod("web", f"after={WAVE_SECONDS - 30}")
    manifest = machine.read("/etc/ebbtide/pods/web.yaml")
    grace = '"terminationGracePeriodSeconds": '
    machine.write("/etc/ebbtide/pods/web.yaml", manifest.replace(f"{grace}30", f"{grace}{WAVE_SECONDS}"))
    drop_in = "/etc/systemd/system/ebbtide.service.d/process.conf"
    await machine.run("install", "-D", "-m", "644", "/usr/share/ebbtide/process.conf", drop_in)
    await machine.run("systemctl", "daemon-reload")
    await machine.run("systemctl", "enable", "--now", "ebbtide")
    await node.armed("web")
    await limited(machine, f"t {WAVE_SECONDS + 5}000000\n")
    await machine.run("systemctl", "poweroff")
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not node.trace("web", "TERM"):
            await trio.sleep(0.02)
    with pytest.raises(RuntimeError, match="this machine is going down"):
        await packager.remove()
    assert len(node.events(DaemonStarted)) == 1
    async with watched(machine) as watch:
        await packager.put(packages.second["deb"])
    assert watch.without == []
    assert not node.trace("web", "gone")
    assert await machine.wait_left(WAVE_SECONDS) == 0
    started = [(each.version, each.lock_inherited) for each in node.events(DaemonStarted)]
    assert started == [(FIRST, False), (SECOND, True)]
    assert [mark.what for mark in node.trace("web")] == ["up", "TERM", "gone"]
    assert [event.outcome for event in node.events(d.PodEnded)] == ["graceful"]
    assert len(node.events(d.ReleaseLock)) == 1
    assert node.replays() > 0
