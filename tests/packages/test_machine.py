"""Packages on whole machines: install, upgrade under protection, remove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
import trio

from deploy.packages.build import FORMATS
from ebbtide.actors.edges.linux.bus import Bus, Incoming, member
from ebbtide.actors.edges.logind_reading import INHIBITORS, LOGIND_PATH, MANAGER
from ebbtide.events import decisions as d
from ebbtide.events.facts import ApiRead, DaemonStarted, RuntimeRead
from tests import waiting
from tests.beds.inside import PROJECT
from tests.beds.machine import Machine
from tests.beds.rootfs import SUITES
from tests.deploy.test_unit import (
    KUBECONFIG,
    KUBELET,
    LIMIT,
    NEIGHBOURS,
    PROPERTY,
    SOCKET,
    UNITS,
    limited,
    until,
)
from tests.machine.node import PROGRAM, TRACES, Node
from tests.packages.conftest import FIRST, GONE, SECOND, Packages

COMMAND_SECONDS_MAX = 180
#: Files of packages, logs and the running machine, and the test's own.
NOT_OURS = ("/var/log", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/systemd", "/var/cache", "/tmp", "/root")


class Packager:
    """``form``: deb by the machine's dpkg; rpm by the host's, in the machine's root and PID namespace."""

    def __init__(self, machine: Machine, form: str) -> None:
        self.machine = machine
        self.form = form

    async def put(self, package: Path) -> str:
        if self.form == "deb":
            self.machine.copy_in(package, "/root/ebbtide.deb")
            return await self._do("dpkg", "-i", "/root/ebbtide.deb")
        return await self._rpm("-U", str(package))

    async def remove(self) -> str:
        return await (self._do("dpkg", "-r", "ebbtide") if self.form == "deb" else self._rpm("-e", "ebbtide"))

    async def purge(self) -> str:
        return await self._do("dpkg", "-P", "ebbtide")

    async def _do(self, *argv: str) -> str:
        done = await self.machine.run(*argv)
        return done.stdout + done.stderr

    async def _rpm(self, *words: str) -> str:
        init = str(self.machine.init)
        # Debian's rpm keeps its database in the caller's home.
        root = ("rpm", "--root", f"/proc/{init}/root", "--dbpath", "/var/lib/rpm", "--nodeps")
        with trio.fail_after(COMMAND_SECONDS_MAX):
            done = await trio.run_process(
                ["nsenter", "-t", init, "--pid", "--ipc", "--uts", "--net", "--", *root, *words],
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
        said = done.stdout.decode()
        if done.returncode:
            raise RuntimeError(f"rpm {' '.join(words)}: {done.returncode}\n{said}")
        return said


async def files(machine: Machine) -> set[str]:
    """All paths on the machine's disk that could be leftovers."""
    pruned = [word for path in NOT_OURS for word in ("-path", path, "-prune", "-o")]
    return set((await machine.run("find", "/", "-xdev", *pruned, "-print")).stdout.splitlines())


class Watch:
    """``without``: looks without our lock. ``said``: logind's signals about delay locks."""

    def __init__(self) -> None:
        self.over = False
        self.looks = 0
        self.without: list[int] = []
        self.said: list[str] = []

    async def look(self, bus: Bus) -> None:
        while not self.over:
            (rows,) = await bus.method(MANAGER, "ListInhibitors", answer=INHIBITORS)
            self.looks += 1
            if not any(
                (what, who, mode) == ("shutdown", "ebbtide", "delay") for what, who, _, mode, *_ in rows
            ):
                self.without.append(self.looks)

    def hear(self, signal: Incoming) -> None:
        if member(signal) != "PropertiesChanged":
            return
        _, changed, _ = signal.body
        if "DelayInhibited" in changed:
            self.said.append(changed["DelayInhibited"][1])


@asynccontextmanager
async def watched(machine: Machine) -> AsyncIterator[Watch]:
    watch = Watch()
    bus = await Bus.open(f"unix:path=/proc/{machine.init}/root/run/dbus/system_bus_socket")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bus.read, watch.hear)
        await bus.subscribe(member="PropertiesChanged", path=LOGIND_PATH)
        async with trio.open_nursery() as looking:
            looking.start_soon(watch.look, bus)
            yield watch
            # Not cancelled: an interrupted call closes the connection.
            watch.over = True
        nursery.cancel_scope.cancel()
    bus.close()


pytestmark = [pytest.mark.root, pytest.mark.machine]

PYTHON = "/usr/lib/ebbtide/bin/python3"
CONFIGURATION = "/etc/ebbtide/config.yaml"
LOOKS_MIN = 200
COMPILED_MIN = 500
WAVE_SECONDS = 90
#: Folders of shells and licences that RPM distributions have and this machine lacks.
OTHERS_FOLDERS = {
    "/usr/share/fish",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/licenses",
    "/usr/share/zsh/site-functions",
}


@pytest.fixture
def node(machine: Machine) -> Node:
    """An off machine that looks like a Kubernetes node, without Ebbtide."""
    machine.copy_in(PROJECT / "tests/deploy/neighbours.py", "/opt/neighbours.py")
    neighbours = NEIGHBOURS.replace("/opt/ebbtide/bin/python3", f"{PYTHON} -IB")
    for name, text in (("kubelet", KUBELET), ("neighbours", neighbours)):
        machine.write(f"{UNITS}/{name}.service", text)
    return Node(machine)


async def unit(machine: Machine) -> tuple[str, str]:
    shown = [
        await machine.run("systemctl", word, "ebbtide", check=False) for word in ("is-enabled", "is-active")
    ]
    return shown[0].stdout.strip(), shown[1].stdout.strip()


async def compiled(machine: Machine) -> int:
    """Files compiled by the machine's Python, where the command loads them."""
    code = "import ebbtide, sys; print(ebbtide.__cached__, sys.implementation.cache_tag)"
    loaded, tag = (await machine.run(PYTHON, "-IB", "-c", code)).stdout.split()
    assert machine.found(loaded).exists()
    names = await machine.run("find", "/usr/lib/ebbtide", "-name", f"*.{tag}.pyc")
    return names.stdout.count("\n")


async def main_pid(machine: Machine) -> str:
    return (await machine.run("systemctl", "show", "-P", "MainPID", "ebbtide")).stdout


@pytest.mark.parametrize("machine, form", list(product(SUITES, FORMATS)), indirect=["machine"])
async def test_the_life_of_a_package(node: Node, packages: Packages, form: str) -> None:
    """An upgrade always keeps the lock; a removal keeps configuration and journal; a purge leaves no file."""
    machine, packager = node.machine, Packager(node.machine, form)
    await machine.boot()
    before = await files(machine)
    await packager.put(packages.first[form])
    assert await compiled(machine) > COMPILED_MIN
    assert (await machine.run("kubectl-ebbtide", "--version")).stdout == f"ebbtide {FIRST}\n"
    assert await unit(machine) == ("disabled", "inactive")
    assert (await machine.run(*LIMIT, *PROPERTY)).stdout == "t 5000000\n"
    await protect(node)

    async with watched(machine) as watch:
        await packager.put(packages.second[form])
        await node.armed()
    assert watch.looks >= LOOKS_MIN
    assert watch.without == []
    # The lock stays the same: logind has no change to report.
    assert watch.said == []
    started = [(each.version, each.lock_inherited) for each in node.events(DaemonStarted)]
    assert started == [(FIRST, False), (SECOND, True)]
    assert "shutdownGracePeriodByPodPriority" in machine.read(CONFIGURATION)
    left = await machine.run("find", "/usr/lib/ebbtide", "-path", f"*/{GONE}*")
    assert left.stdout == ""
    await stays_where_the_new_one_would_not_start(node)

    async with watched(machine) as watch:
        await packager.remove()
        await limited(machine, "t 5000000\n")
    # As it is seen that one goes.
    assert watch.without
    assert watch.said == [""]
    assert (await unit(machine))[1] == "inactive"
    stayed = await files(machine) - before
    saved = ".rpmsave" if form == "rpm" else ""
    stayed -= OTHERS_FOLDERS if form == "rpm" else set()
    assert {path for path in stayed if not path.startswith("/var/lib/ebbtide/")} == {
        "/etc/ebbtide",
        "/etc/ebbtide/kubeconfig",
        f"{CONFIGURATION}{saved}",
        "/var/lib/ebbtide",
    }
    assert node.records()
    if form == "deb":
        await packager.purge()
        assert await files(machine) - before == set()
    known = await machine.run("systemctl", "list-unit-files", "ebbtide.service", check=False)
    assert "ebbtide" not in known.stdout
    for path in ("/run/ebbtide", "/run/systemd/logind.conf.d/zz-ebbtide.conf"):
        assert not machine.place(path).exists()
    await machine.pull_the_plug()


async def protect(node: Node) -> None:
    """docs/deployment.md: a configuration, an identity, and the unit."""
    machine = node.machine
    machine.write("/etc/ebbtide/kubeconfig", json.dumps(KUBECONFIG), 0o600)
    node.configure({0: 6}, node={"criSocket": SOCKET, "nodeName": "node-1"})
    await machine.run("systemctl", "start", "kubelet", "neighbours")
    await machine.run("systemctl", "enable", "--now", "ebbtide")
    await node.armed()
    await limited(machine, "t 11000000\n")
    # With the libraries that the package left in.
    await until(node, RuntimeRead, lambda read: read.reachable)
    await until(node, ApiRead, lambda read: read.reachable)


async def stays_where_the_new_one_would_not_start(node: Node) -> None:
    """A configuration that the new version refuses does not stop the running daemon."""
    machine, kept = node.machine, node.machine.read(CONFIGURATION)
    machine.write(CONFIGURATION, "kind: Nonsense\n")
    pid = await main_pid(machine)
    async with watched(machine) as watch:
        done = await machine.run("/usr/lib/ebbtide/settle")
        await trio.lowlevel.checkpoint()
    assert "refuses the configuration" in done.stderr
    assert watch.without == []
    assert (await main_pid(machine), await node.status()) == (pid, "armed")
    machine.write(CONFIGURATION, kept)


@pytest.mark.parametrize("machine", ["bookworm"], indirect=True)
async def test_a_package_comes_in_the_middle_of_a_shutdown(machine: Machine, packages: Packages) -> None:
    """A removal is refused. After an upgrade the new version waits for the pod under the old one's lock."""
    node, packager = Node(machine), Packager(machine, "deb")
    machine.copy_in(PROJECT / "tests/daemon/program.py", PROGRAM)
    machine.place(TRACES).mkdir(parents=True)
    await machine.boot()
    await packager.put(packages.first["deb"])
    node.configure({0: WAVE_SECONDS})
    # As long as an upgrade on a busy machine.
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
    await waiting.until(lambda: node.trace("web", "TERM"), "no SIGTERM")
    with pytest.raises(RuntimeError, match="this machine is going down"):
        await packager.remove()
    assert len(node.events(DaemonStarted)) == 1
    async with watched(machine) as watch:
        await packager.put(packages.second["deb"])
    assert watch.without == []
    assert not node.trace("web", "gone")
    assert await machine.wait_left() == 0
    started = [(each.version, each.lock_inherited) for each in node.events(DaemonStarted)]
    assert started == [(FIRST, False), (SECOND, True)]
    assert [mark.what for mark in node.trace("web")] == ["up", "TERM", "gone"]
    assert [event.outcome for event in node.events(d.PodEnded)] == ["graceful"]
    assert len(node.events(d.ReleaseLock)) == 1
    assert node.replays() > 0
