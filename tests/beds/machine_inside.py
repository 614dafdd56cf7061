"""The inside of the machine bed: a writable layer over the root folder, booted with nspawn.

Each boot is a new nspawn in its own control group, removed afterwards: nspawn leaves groups of unregistered
machines behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import trio

from tests.beds.inside import die_with_parent, mount, take_commands

CGROUPS = Path("/sys/fs/cgroup")
#: Trees for processes: the one of version 2, or systemd's two beside version 1.
HIERARCHIES = (CGROUPS / "unified", CGROUPS / "systemd")
ARGV = ("systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "--link-journal=no")
EMPTY_SECONDS_MAX = 5
LEAVE_SECONDS_MAX = 5


class Inside:
    """One machine with at most one nspawn. Each ``do_`` method is a command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nspawn: subprocess.Popen[bytes] | None = None
        trees = [tree for tree in HIERARCHIES if tree.is_dir()] or [CGROUPS]
        self.groups = [tree / f"ebbtide-{folder.name}" for tree in trees]

    def lay_file_systems(self) -> None:
        """The machine's root, and our own ``/run/systemd`` for nspawn's state."""
        lower = (self.folder / "lower").resolve(strict=True)
        layers = f"lowerdir={lower},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}"
        mount("-t", "overlay", "-o", layers, "bed", str(self.folder / "root"))
        mount("-t", "tmpfs", "-o", "mode=755", "bed", "/run/systemd")

    async def do_boot(self) -> int:
        """nspawn's PID; its child is the machine's PID 1."""
        await self.do_kill()
        for group in self.groups:
            group.mkdir(exist_ok=True)
        argv = [*ARGV, f"--machine=ebbtide-{os.getpid()}", "-D", str(self.folder / "root")]
        with open(self.folder / "console", "ab") as console:
            self.nspawn = subprocess.Popen(
                [*argv, "--boot", "--console=read-only"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                preexec_fn=self.enter_groups,
            )
        return self.nspawn.pid

    def enter_groups(self) -> None:
        """In the child, before exec."""
        die_with_parent()
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    async def do_left(self) -> int | None:
        """nspawn's exit code, or None while it runs."""
        return None if self.nspawn is None else self.nspawn.poll()

    async def do_kill(self) -> None:
        for pid in self.inits():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.nspawn is not None:
            await self.end(self.nspawn)
        await self.remove_groups()

    async def end(self, nspawn: subprocess.Popen[bytes]) -> None:
        """Wait for it: nspawn ends with its child, which only it can reap."""
        with trio.move_on_after(LEAVE_SECONDS_MAX):
            while nspawn.poll() is None:
                await trio.sleep(0.01)
        nspawn.kill()
        nspawn.wait()

    def inits(self) -> list[int]:
        """The machine's PID 1, whose end ends everything; it survives a killed nspawn."""
        if self.nspawn is None:
            return []
        with contextlib.suppress(OSError):
            pid = self.nspawn.pid
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    async def remove_groups(self) -> None:
        """The kernel empties a group a moment after its last process."""
        with trio.move_on_after(EMPTY_SECONDS_MAX):
            while any(not self.removed(group) for group in self.groups):
                await trio.sleep(0.01)

    def removed(self, group: Path) -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not group.exists()


async def main(folder: Path) -> None:
    inside = Inside(folder)
    inside.lay_file_systems()
    try:
        await take_commands(inside)
    finally:
        with trio.CancelScope(shield=True):
            await inside.do_kill()
        subprocess.run(["umount", "-l", str(folder / "root")], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
