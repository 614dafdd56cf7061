"""Packages on a whole machine, with dpkg or rpm, and a watch on the lock's holders."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from ebbtide.actors.edges.linux.bus import Bus, Incoming, member
from ebbtide.actors.edges.logind.manager import INHIBITORS, LOGIND_PATH, MANAGER
from tests.beds.machine import Machine

COMMAND_SECONDS_MAX = 180
#: Files of packages, logs and the running machine, and the test's own.
NOT_OURS = ("/var/log", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/systemd", "/var/cache", "/tmp", "/root")


class Packager:
    """``form``: deb with the machine's dpkg; rpm with the host's, on the machine's root and PID namespace,
    so that scripts reach its service manager.
    """

    def __init__(self, machine: Machine, form: str) -> None:
        self.machine = machine
        self.form = form

    async def put(self, package: Path) -> str:
        """Install or upgrade; returns the output."""
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
    """``looks`` at logind's list; ``without``: looks without our lock. ``said``: logind's signals about
    delay locks.
    """

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
