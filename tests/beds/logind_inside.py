"""The inside of the logind bed, in its own mount namespace.

It mounts fresh file systems for logind, starts a private bus, acts as service manager, and starts the real
logind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.trio import DBusConnection, open_dbus_connection

from tests.beds.inside import die_with_parent, mount, take_commands
from tests.waiting import WATCHDOG_SECONDS

LOGIND = "/lib/systemd/systemd-logind"
RUN_FOLDERS = ("seats", "users", "sessions", "inhibit", "shutdown")
SYSTEMD = DBusAddress("/org/freedesktop/systemd1", None, "org.freedesktop.systemd1.Manager")
JOB = "/org/freedesktop/systemd1/job/1"

BUS_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="method_return"/>
    <allow send_type="error"/>
    <allow send_type="signal"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
</busconfig>
"""


def lay_file_systems(folder: Path) -> None:
    """Fresh ``/run/systemd`` and ``/etc/systemd``, and writable overlays of the vendor's folders."""
    for target in ("/run/systemd", "/etc/systemd"):
        mount("-t", "tmpfs", "-o", "mode=755", "bed", target)
    for name in RUN_FOLDERS:
        Path("/run/systemd", name).mkdir()
    layers = folder / "layers"
    layers.mkdir()
    mount("-t", "tmpfs", "bed", str(layers))
    for lower in ("/usr/lib/systemd", "/usr/local/lib"):
        upper, work = (layers / f"{lower.replace('/', '_')}.{part}" for part in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        mount("-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "bed", lower)


class ServiceManager:
    """org.freedesktop.systemd1, as far as logind and the edge use it."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self.reload = reload
        self.reload_works = True
        self.starts: list[tuple[str, int]] = []
        self.start_unit = "hang"
        self.properties: dict[str, tuple[str, Any]] = {
            "LoadState": ("s", "loaded"),
            "ActiveState": ("s", "inactive"),
            "SystemState": ("s", "running"),
            "UserspaceTimestampMonotonic": ("t", 1_000_000),
        }

    async def serve(self, bus: DBusConnection) -> None:
        while True:
            message = await bus.receive()
            if message.header.message_type is MessageType.method_call:
                for answer in self.answers(message):
                    await bus.send(answer)

    def answers(self, message: Message) -> list[Message]:
        method = getattr(self, "on_" + message.header.fields[HeaderFields.member].lower(), None)
        if method is None:
            return [new_error(message, "org.freedesktop.DBus.Error.UnknownMethod")]
        return method(message)

    def on_get(self, message: Message) -> list[Message]:
        value = self.properties.get(message.body[1])
        if value is None:
            return [new_error(message, "org.freedesktop.DBus.Error.UnknownProperty")]
        return [new_method_return(message, "v", (value,))]

    def on_subscribe(self, message: Message) -> list[Message]:
        return [new_method_return(message)]

    def on_killunit(self, message: Message) -> list[Message]:
        if self.reload_works and message.body == ("systemd-logind.service", "all", 1):
            self.reload()
        return [new_method_return(message)]

    def on_startunit(self, message: Message) -> list[Message]:
        self.starts.append((message.body[0], time.monotonic_ns()))
        if self.start_unit == "error":
            return [new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "s", ("the bed says no",))]
        answers = [new_method_return(message, "o", (JOB,))]
        if self.start_unit == "failed":
            removed = ("uoss", (1, JOB, message.body[0], "failed"))
            answers.append(new_signal(SYSTEMD, "JobRemoved", *removed))
        return answers


class Inside:
    """The processes and their commands: each ``do_`` method."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.nursery = nursery
        self.address = f"unix:path={folder / 'bus'}"
        self.manager = ServiceManager(self.hang_up)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stub: DBusConnection | None = None

    def hang_up(self) -> None:
        self.processes["logind"].send_signal(signal.SIGHUP)

    def start(self, name: str, argv: list[str]) -> None:
        env = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": self.address, "SYSTEMD_LOG_TARGET": "console"}
        env.pop("NOTIFY_SOCKET", None)
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    def end(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    async def do_start_bus(self) -> None:
        config = self.folder / "bus.conf"
        config.write_text(BUS_CONFIG.format(socket=self.folder / "bus"))
        self.start("bus", ["dbus-daemon", "--nofork", "--nopidfile", f"--config-file={config}"])
        self.stub = await self.connect()
        async with self.stub.router() as router:
            await router.send_and_get_reply(message_bus.RequestName("org.freedesktop.systemd1"))
        self.nursery.start_soon(self.serve_stub, self.stub)

    async def serve_stub(self, bus: DBusConnection) -> None:
        with contextlib.suppress(trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.manager.serve(bus)

    async def connect(self) -> DBusConnection:
        with trio.fail_after(WATCHDOG_SECONDS):
            while True:
                with contextlib.suppress(OSError):
                    return await open_dbus_connection(self.address)
                await trio.sleep(0.005)

    async def do_stop_bus(self) -> None:
        self.end("bus")
        if self.stub is not None:
            await self.stub.aclose()
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "bus").unlink()

    async def do_start_logind(self) -> None:
        self.start("logind", [LOGIND])
        bus = await self.connect()
        async with bus, bus.router() as router:
            with trio.fail_after(WATCHDOG_SECONDS):
                while not await self.answers(router):
                    await trio.sleep(0.005)

    async def answers(self, router: Any) -> bool:
        reply = await router.send_and_get_reply(message_bus.NameHasOwner("org.freedesktop.login1"))
        return bool(reply.body[0])

    async def do_stop_logind(self, clean: bool = False) -> None:
        self.end("logind")
        for name in ("inhibit", "shutdown") if clean else ():
            for path in Path("/run/systemd", name).iterdir():
                path.unlink()

    async def do_hang_up(self) -> None:
        self.hang_up()

    async def do_set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self.manager, name, value)

    async def do_property(self, name: str, signature: str, value: Any) -> None:
        self.manager.properties[name] = (signature, value)

    async def do_starts(self) -> list[tuple[str, int]]:
        return self.manager.starts

    async def do_pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.processes.items()}

    def end_all(self) -> None:
        """Remove everything, also after a killed parent."""
        for name in tuple(self.processes):
            self.end(name)
        subprocess.run(["umount", "-l", str(self.folder / "layers")], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


async def main(folder: Path, kind: type[Inside] = Inside) -> None:
    lay_file_systems(folder)
    async with trio.open_nursery() as nursery:
        inside = kind(folder, nursery)
        try:
            await take_commands(inside)
        finally:
            inside.end_all()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
