"""A whole systemd machine in a container: boot, run commands, power off, inspect.

A writable layer over a root folder of `tests.beds.rootfs` survives boots and ends with the bed. The machine
has only its loopback network. Needs root, mmdebstrap and systemd-container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from tests.beds.inside import Inside, lacking
from tests.beds.rootfs import Unavailable, rootfs
from tests.waiting import until

#: nspawn's exit code for a requested reboot.
WANTS_REBOOT = 133
#: One try of a command: early in a boot a call gets no answer, and a soft reboot stops nsenter with its
#: processes.
TRY_SECONDS = 10
NEEDS = ("unshare", "nsenter", "systemd-nspawn")


class Machine:
    """One machine, initially off. Paths are the machine's own, absolute."""

    def __init__(self, suite: str, folder: Path, lower: Path, inside: Inside) -> None:
        self.suite = suite
        self.folder = folder
        self.lower = lower
        self.upper = folder / "upper"
        self.inside = inside
        self._nspawn = 0
        self._state: object = "not asked"

    # --- life

    async def boot(self) -> None:
        """Boot, and wait as `wait_booted` does."""
        self._nspawn = await self.inside.do("boot")
        await self.wait_booted()

    async def wait_booted(self) -> None:
        """Wait until all boot units have started; also after a soft reboot.

        Raises RuntimeError if the machine exits.
        """

        def shown() -> str:
            return f"{self.suite} did not boot: init {self.init}, {self._state}\n{self.console()}"

        async def booted() -> bool:
            if await self.inside.do("left") is not None:
                raise RuntimeError(shown())
            return await self._settled()

        await until(booted, shown)

    async def reboot(self) -> None:
        """`systemctl reboot`: the machine exits with the reboot code and boots again."""
        await self.run("systemctl", "reboot")
        code = await self.wait_left()
        if code != WANTS_REBOOT:
            raise RuntimeError(f"the machine left with {code}\n{self.console()}")
        await self.boot()

    async def _settled(self) -> bool:
        if self.init is None:
            return False
        with trio.move_on_after(TRY_SECONDS):
            self._state = await self.run("systemctl", "is-system-running", check=False)
            return self._state.stdout.strip() in ("running", "degraded")
        return False

    @property
    def init(self) -> int | None:
        """The outside PID of its PID 1; a new one after a reboot.

        None while nspawn prepares: entering then would stay on the host.
        """
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self._nspawn}/task/{self._nspawn}/children").read_text().split()
            return next((int(child) for child in children if _is_init(child)), None)
        return None

    async def wait_left(self) -> int:
        """Wait until the machine is down; nspawn's exit code."""
        left: list[int] = []

        async def gone() -> bool:
            code = await self.inside.do("left")
            left.extend([] if code is None else [int(code)])
            return bool(left)

        await until(gone, lambda: f"the machine does not leave\n{self.console()}")
        await self.inside.do("kill")
        return left[0]

    async def power_off(self) -> int:
        """`systemctl poweroff`, to its end; nspawn's exit code."""
        await self.run("systemctl", "poweroff")
        return await self.wait_left()

    async def pull_the_plug(self) -> None:
        """Cut the power; the disk keeps its writes."""
        await self.inside.do("kill")

    # --- work inside

    @property
    def enter(self) -> list[str]:
        """A command prefix that enters the machine as root."""
        if self.init is None:
            raise RuntimeError(f"the machine is not running\n{self.console()}")
        return ["nsenter", "-t", str(self.init), "--all", "--"]

    async def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command; with ``check`` raises RuntimeError with its output on failure."""
        done = await trio.run_process(
            [*self.enter, *argv],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            stdin=b"",
            deliver_cancel=_kill,
        )
        result = subprocess.CompletedProcess(
            argv, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and result.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    async def until(self, *argv: str) -> str:
        """Retry a command until it succeeds; returns its output."""
        said: list[str] = []

        async def succeeds() -> bool:
            with trio.move_on_after(TRY_SECONDS):
                done = await self.run(*argv, check=False)
                said[:] = [done.stdout]
                return not done.returncode
            return False

        await until(succeeds, f"{' '.join(argv)} does not succeed")
        return said[0]

    # --- files

    def place(self, path: str) -> Path:
        """The outside path of a machine's file: its live root, or its layer when off."""
        inside = path.lstrip("/")
        return Path(f"/proc/{self.init}/root", inside) if self.init else self.upper / inside

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a file or folder. Links are not followed while the machine is off."""
        target = self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def found(self, path: str) -> Path:
        """A readable file or folder, also when off. Raises FileNotFoundError."""
        for place in (self.place(path), self.lower / path.lstrip("/")):
            if place.exists():
                return place
        raise FileNotFoundError(path)

    def read(self, path: str) -> str:
        return self.found(path).read_text(errors="replace")

    def console(self) -> str:
        """The console output of boot and shutdown."""
        return (self.folder / "console").read_text(errors="replace")

    async def system_log(self, *words: str) -> str:
        """`journalctl WORDS` over all boots, also when off."""
        argv = ["journalctl", "--directory", str(self.found("/var/log/journal")), "--no-pager", *words]
        done = await trio.run_process(argv, capture_stdout=True, check=False)
        return done.stdout.decode(errors="replace")


async def _kill(process: trio.Process) -> None:
    """A stopped process would not handle SIGTERM."""
    process.kill()


def _is_init(pid: str) -> bool:
    """Is it systemd in another PID namespace?"""
    process = Path("/proc", pid)
    elsewhere = os.readlink(process / "ns/pid") != os.readlink("/proc/self/ns/pid")
    return elsewhere and (process / "comm").read_text() == "systemd\n"


def missing() -> str:
    """Why no machine is available; empty if one is."""
    return lacking(NEEDS)


@contextlib.asynccontextmanager
async def machine_bed(suite: str) -> AsyncIterator[Machine]:
    """An off machine of that suite. At the end its layer, mounts and groups are removed.

    Raises Unavailable.
    """
    if reason := missing():
        raise Unavailable(reason)
    lower = await trio.to_thread.run_sync(rootfs, suite)
    folder = Path(tempfile.mkdtemp(prefix="machine."))
    for name in ("upper/var/log/journal", "work", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "lower").symlink_to(lower)
    inside = Inside("tests.beds.machine_inside", folder)
    try:
        yield Machine(suite, folder, lower, inside)
    finally:
        inside.close()
        shutil.rmtree(folder, ignore_errors=True)
