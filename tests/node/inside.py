"""PID 1 of a node: its own process, network and mount namespaces, with all parts.

When it ends, for any reason, the kernel ends every process, the network and the mounts. Only control groups
remain; it removes them at its exit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import trio

from tests.beds.inside import mount, obey, take_commands
from tests.beds.relay import joined
from tests.node import remains
from tests.proc import each_process
from tests.waiting import WATCHDOG_SECONDS

#: Only the kubelet writes these. It sees the node's own files, so the machine keeps its settings.
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
KEYS = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
#: Machine folders that the node sees and overlays with its own writes.
LAYERED = ("/var", "/etc")
#: A socket in the node's folder.
CONTROL = "control.sock"
REAP_SECONDS = 0.2


def lay_file_systems(folder: Path) -> None:
    """The node writes to memory, and to overlays outside its folder."""
    mount("-t", "proc", "proc", "/proc")
    state = folder / "state"
    mount("-t", "tmpfs", "-o", "mode=755", "bed", str(state))
    systemd = state / "run-systemd"
    systemd.mkdir()
    mount("--bind", "/run/systemd", str(systemd))
    mount("-t", "tmpfs", "-o", "mode=755", "bed", "/run")
    Path("/run/systemd").mkdir()
    mount("--move", str(systemd), "/run/systemd")
    for lower in LAYERED:
        lay_over(lower, state / f"layer{lower.replace('/', '-')}")
    lay_settings(state / "settings")


def lay_over(lower: str, layer: Path) -> None:
    """Keep the logind bed's own file system in ``/etc/systemd`` visible."""
    kept = Path(lower, "systemd")
    for part in ("upper", "work", "kept"):
        (layer / part).mkdir(parents=True)
    if kept.is_dir():
        mount("--bind", str(kept), str(layer / "kept"))
    layers = f"lowerdir={lower},upperdir={layer / 'upper'},workdir={layer / 'work'}"
    mount("-t", "overlay", "-o", layers, "bed", lower)
    if kept.is_dir():
        mount("--move", str(layer / "kept"), str(kept))


def lay_settings(folder: Path) -> None:
    for name in (*SETTINGS, *KEYS):
        real = Path("/proc/sys", name)
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(real.read_text())
        mount("--bind", str(copy), str(real))


class Inside:
    """The node's processes. Each ``do_`` is a command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.running: list[subprocess.Popen[str]] = []
        self.last: dict[str, tuple[list[str], dict[str, str]]] = {}
        #: Last start in monotonic microseconds.
        self.started_us: dict[str, int] = {}

    async def do_start(self, name: str, argv: list[str], environ: dict[str, str]) -> None:
        """Start a long-running program; its output goes to its log."""
        await self.do_stop(name)
        self.last[name] = argv, environ
        self.started_us[name] = time.monotonic_ns() // 1000
        with open(self.folder / "log" / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                argv, env=os.environ | environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def do_again(self, name: str) -> None:
        """As it was started last, unless it runs."""
        if name not in await self.do_alive():
            await self.do_start(name, *self.last[name])

    async def do_stop(self, name: str, signal_number: int = signal.SIGKILL) -> None:
        """Waits until it has gone."""
        process = self.processes.get(name)
        if process is not None:
            process.send_signal(signal_number)
            while process.poll() is None:
                await trio.sleep(0.01)
            # Another waiter may have restarted it meanwhile.
            if self.processes.get(name) is process:
                del self.processes[name]

    async def do_group(self, name: str) -> None:
        remains.make(name)

    async def do_signal(self, name: str, signal_number: int) -> None:
        self.processes[name].send_signal(signal_number)

    async def do_exited(self, name: str) -> int | None:
        """The exit code, or None while it runs."""
        return self.processes[name].poll()

    async def do_alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    async def do_pids(self) -> dict[str, int]:
        """PIDs of running parts, in the node's namespace."""
        return {name: process.pid for name, process in self.processes.items() if process.poll() is None}

    async def do_main(self, name: str) -> tuple[int, int]:
        """Its PID in the node and its start time; 0 if it does not run."""
        return (await self.do_pids()).get(name, 0), self.started_us.get(name, 0)

    async def do_run(self, argv: list[str]) -> str:
        """The output of a short program; a non-zero exit code is an error."""
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.running.append(process)
        try:
            said, _ = await trio.to_thread.run_sync(lambda: process.communicate(timeout=WATCHDOG_SECONDS))
        finally:
            self.running.remove(process)
        if process.returncode:
            raise RuntimeError(f"{argv[0]} said {said.strip()!r}, exit code {process.returncode}")
        return said

    async def reap(self) -> None:
        """PID 1 inherits every orphan. Our own children belong to their waiters."""
        while True:
            await trio.sleep(REAP_SECONDS)
            ours = {each.pid for each in self.processes.values()} | {each.pid for each in self.running}
            for pid in orphans(ours):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def end_all(self) -> None:
        """Every process of the namespace but this one."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()


def orphans(ours: set[int]) -> list[int]:
    """Ended orphans: a container's shim or process."""
    found = []
    for pid, stat in each_process("stat").items():
        state, parent = stat.rpartition(b")")[2].split()[:2]
        if state == b"Z" and parent == b"1" and pid not in ours:
            found.append(pid)
    return found


async def take_orders(inside: Inside, control: Path) -> None:
    """The same commands on a socket: one line per connection, one line back."""
    with trio.socket.socket(trio.socket.AF_UNIX) as made:
        await made.bind(str(control))
        made.listen()

        async def obeyed(stream: trio.SocketStream) -> None:
            async with stream:
                with contextlib.suppress(trio.BrokenResourceError):
                    line = await stream.receive_some()
                    await stream.send_all(json.dumps(await obey(inside, json.loads(line))).encode())

        await trio.serve_listeners(obeyed, [trio.SocketListener(made)])


async def relay(listening: socket.socket, port: int) -> None:
    """Relay an outside socket to ``port`` inside."""

    async def connect(outer: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError):
            async with outer, await trio.open_tcp_stream("127.0.0.1", port) as inner:
                await joined(outer, inner)

    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    await trio.serve_listeners(connect, [listener])


async def main(folder: Path, group: str, listening: socket.socket, port: int) -> None:
    lay_file_systems(folder)
    remains.make(group)
    inside = Inside(folder)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay, listening, port)
            nursery.start_soon(inside.reap)
            nursery.start_soon(take_orders, inside, folder / CONTROL)
            await take_commands(inside)
            nursery.cancel_scope.cancel()
    finally:
        inside.end_all()
        remains.remove(group)
        subprocess.run(["umount", "-l", str(folder / "state")], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    place, name, descriptor, inner = sys.argv[1:]
    trio.run(main, Path(place), name, socket.socket(fileno=int(descriptor)), int(inner))
