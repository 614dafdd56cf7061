"""A separate machine per node, with cuttable power and network.

All nodes of a bed share one machine. Here each gets its own system UUID, and a new boot ID per power-on:
files over the machine's, in a mount namespace for each chosen program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import trio

from tests.node import remains
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up, made_bed, need
from tests.node.parts import API_PORT, Member, Part
from tests.waiting import until

#: Mounts below the node's folder propagate: a kubelet mounts for the runtime.
UNSHARE = ("unshare", "--mount", "--propagation", "unchanged", "--", "sh", "-ec")
#: The firmware's UUID file; without one kubelets use a fallback.
LAY = """
boot=$1; firmware=$2; shift 2
mount --bind "$boot" /proc/sys/kernel/random/boot_id
place=/sys/class/dmi/id/product_uuid
[ -e $place ] || place=/etc/machine-id
[ -e $place ] || : > $place
mount --bind "$firmware" $place
exec "$@"
"""
#: A power cut drops mounts and the runtime's memory.
FORGET = """
while read -r _ _ _ _ place _; do
  case $place in "$1"/*) echo "$place";; esac
done < /proc/self/mountinfo | sort -r | while read -r place; do umount -l "$place" || true; done
rm -rf "$1/state"
"""


class Machine:
    """``member``'s machine; its kubelet has these changed settings.

    ``parts``: further programs of the machine, stopped by a cut and started with the power. ``memory``: a
    folder and a pattern of files that represent machine memory.
    """

    def __init__(self, bed: Bed, member: Member, kubelet: Mapping[str, Any]) -> None:
        self.bed, self.member, self.kubelet = bed, member, kubelet
        self.folder = bed.folder / f"machine-{member.number}"
        self.uuid = str(uuid.uuid4())
        self.is_on = True
        self.parts: list[Part] = []
        self.memory: tuple[Path, str] | None = None
        #: Called after each power change.
        self.on_power: Callable[[Literal["On", "Off"]], None] = lambda power: None
        self._cut: list[list[str]] = []
        self.folder.mkdir()
        (self.folder / "uuid").write_text(f"{self.uuid}\n")
        self.new_boot()

    @property
    def boot_id(self) -> str:
        return (self.folder / "boot-id").read_text().strip()

    def new_boot(self) -> None:
        (self.folder / "boot-id").write_text(f"{uuid.uuid4()}\n")

    def inside(self, part: Part) -> Part:
        files = [str(self.folder / "boot-id"), str(self.folder / "uuid")]
        return part._replace(argv=[*UNSHARE, LAY, "machine", *files, *part.argv])

    async def start(self, part: Part) -> None:
        """Start a program that ends with the machine's power."""
        self.parts = [each for each in self.parts if each.name != part.name] + [part]
        await self.bed.start(part)

    async def off(self) -> None:
        """Cut the power: kill the kubelet first, then every process, and drop the memory."""
        self.is_on = False
        names = [f"kubelet-{self.member.name}", *(each.name for each in self.parts)]
        for name in (*names, f"containerd-{self.member.name}"):
            await self.bed.stop(name)

        def killed() -> bool:
            pids = self._processes()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        await until(killed, "processes of the node stay")
        await self.bed.run("sh", "-ec", FORGET, "cut", str(self.member.state))
        if self.memory is not None:
            folder, pattern = self.memory
            for each in self.bed.place(folder).glob(pattern):
                each.unlink()
        self.on_power("Off")

    async def on(self) -> None:
        """Another boot; returns when its kubelet was started."""
        self.new_boot()
        self.is_on = True
        self.on_power("On")
        await self.bed.start_containerd(self.member)
        for part in self.parts:
            await self.bed.start(part)
        await self.start_kubelet()

    async def start_kubelet(self) -> None:
        await self.bed.start_kubelet(self.member, **self.kubelet)

    async def kill_kubelet(self) -> None:
        """Kill the kubelet; pods survive without status reports."""
        await self.bed.stop(f"kubelet-{self.member.name}")

    def _processes(self) -> set[int]:
        """The pods' processes and shims, by the machine's PIDs."""
        found = {
            int(pid)
            for tree in remains.trees()
            for file in (tree / self.bed.group / self.member.name).rglob("cgroup.procs")
            for pid in _read(file).split()
        }
        for process in Path("/proc").glob("[0-9]*"):
            words = _read(process / "cmdline").split("\0")
            if "containerd-shim" in words[0] and str(self.member.socket) in words:
                found.add(int(process.name))
        return found

    async def leave_network(self) -> None:
        """Drop all packets between node and API server; connections stay open."""
        address, kubelet = self.member.address, str(self.member.port)
        self._cut = [
            ["INPUT", "-p", "tcp", "-d", address, "--dport", str(API_PORT), "-j", "DROP"],
            ["INPUT", "-p", "tcp", "-s", address, "--sport", str(API_PORT), "-j", "DROP"],
            ["INPUT", "-p", "tcp", "-d", address, "--dport", kubelet, "-j", "DROP"],
        ]
        for rule in self._cut:
            await self.bed.run("iptables", "-w", "-I", *rule)

    async def join_network(self) -> None:
        for rule in self._cut:
            await self.bed.run("iptables", "-w", "-D", *rule)
        self._cut = []


def _read(file: Path) -> str:
    """Empty when it has gone meanwhile."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@contextlib.asynccontextmanager
async def machine_bed(names: Sequence[str], **kubelet: Any) -> AsyncIterator[tuple[Bed, dict[str, Machine]]]:
    """Ready nodes, each on its own machine. Raises Unavailable, Unready."""
    await trio.to_thread.run_sync(need)
    with made_bed(names) as bed:
        machines = {name: Machine(bed, member, kubelet) for name, member in bed.members.items()}
        bed.around = {name: machine.inside for name, machine in machines.items()}
        await bring_up(bed, **kubelet)
        yield bed, machines
