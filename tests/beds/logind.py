"""A real systemd-logind for shutdowns that stop no machine.

The bed has a mount namespace with a private bus, a fake service manager and the real logind. Clients outside
reach the bus socket and lock descriptors; `LogindBed.root` reaches its files. Needs root and Debian's
``systemd`` and ``dbus``.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import trio
from jeepney import DBusAddress, HeaderFields, Message, Properties, new_method_call, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.trio import DBusConnection, DBusRouter, open_dbus_connection
from jeepney.wrappers import unwrap_msg

from tests.beds.inside import Inside, lacking
from tests.waiting import until

LOGIN1 = DBusAddress("/org/freedesktop/login1", "org.freedesktop.login1", "org.freedesktop.login1.Manager")
MONITORING = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus.Monitoring")
#: A property that no other program reads.
LAST_WORD = "KillUserProcesses"
#: On a disk under load a journal waits for seconds. Tests of the disk mount their own.
MEMORY = Path("/dev/shm")
METHODS = {"poweroff": "PowerOff", "reboot": "Reboot", "halt": "Halt"}
NEEDS = ("unshare", "nsenter", "dbus-daemon", "/lib/systemd/systemd-logind")


class Inhibitor(NamedTuple):
    """One row of ``ListInhibitors``."""

    what: str
    who: str
    why: str
    mode: str
    uid: int
    pid: int


def missing() -> str:
    """Why the bed is unavailable; empty if available."""
    return lacking(NEEDS)


class LogindBed:
    """A started bed with its own bus client, running as root."""

    def __init__(self, folder: Path, inside: Inside) -> None:
        self.folder = folder
        self.inside = inside
        self.address = f"unix:path={folder / 'bus'}"
        self.root = Path(f"/proc/{inside.pid}/root")
        self.drop_ins = self.root / "run/systemd/logind.conf.d"

    @property
    def enter(self) -> list[str]:
        """A command prefix that enters the bed's namespace."""
        return ["nsenter", "-t", str(self.inside.pid), "-m", "--"]

    def log(self, name: str = "logind") -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    async def do(self, command: str, **arguments: Any) -> Any:
        """Run a command inside; raises RuntimeError with its output."""
        return await self.inside.do(command, **arguments)

    async def start_logind(self) -> None:
        await self.do("start_logind")

    async def stop_logind(self, clean: bool = False) -> None:
        """``clean``: forget schedules and locks, as after an unfinished power-off."""
        await self.do("stop_logind", clean=clean)

    async def restart_logind(self, clean: bool = False) -> None:
        await self.stop_logind(clean)
        await self.start_logind()

    async def restart_bus(self) -> None:
        await self.do("stop_bus")
        await self.do("stop_logind")
        await self.do("start_bus")
        await self.start_logind()

    async def reset(self) -> None:
        await self.restart_logind(clean=True)

    async def start_unit(self, behaviour: str) -> None:
        """``StartUnit``'s result: ``hang`` (never finishes), ``error``, or ``failed`` (the job fails)."""
        await self.do("set", start_unit=behaviour)

    async def starts(self) -> list[tuple[str, int]]:
        """The units that logind started, with the monotonic times."""
        return [(unit, at_ns) for unit, at_ns in await self.do("starts")]

    async def started(self) -> tuple[str, int]:
        """Wait until logind lets the machine go."""
        starts: list[tuple[str, int]] = await until(self.starts, "logind does not let the machine go")
        return starts[-1]

    async def config(self, path: str, value: str | None) -> None:
        """A logind file with this limit; None: a link to /dev/null."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if value is None:
            place.symlink_to("/dev/null")
        else:
            place.write_text(f"[Login]\nInhibitDelayMaxSec={value}\n")

    async def drop_in(self, name: str, value: str, prefix: str = "/run") -> None:
        await self.config(f"{prefix}/systemd/logind.conf.d/{name}", value)

    async def hang_up(self) -> None:
        """SIGHUP: logind reads its files again."""
        await self.do("hang_up")

    async def until(self, name: str, value: Any) -> None:
        """Wait until a property has this value."""

        async def holds() -> bool:
            return bool(await self.get(name) == value)

        await until(holds, f"{name} does not become {value}")

    async def pid(self, name: str = "logind") -> int:
        return int((await self.do("pids"))[name])

    async def call(self, method: str, signature: str = "", *body: Any) -> tuple[Any, ...]:
        return unwrap_msg(await self.ask(new_method_call(LOGIN1, method, signature or None, body)))

    async def ask(self, message: Message) -> Message:
        async with self.client() as router:
            return await router.send_and_get_reply(message)

    async def get(self, name: str) -> Any:
        return unwrap_msg(await self.ask(Properties(LOGIN1).get(name)))[0][1]

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[DBusRouter]:
        """A bus client that is neither logind nor the daemon."""
        connection = await open_dbus_connection(self.address, enable_fds=True)
        async with connection, connection.router() as router:
            yield router

    async def connections_of(self, pid: int) -> list[str]:
        """The unique names of a process's connections, without the caller's."""
        async with self.client() as router:
            (names,) = unwrap_msg(await router.send_and_get_reply(message_bus.ListNames()))
            unique = [name for name in names if name[0] == ":" and name != router.unique_name]
            asked = [message_bus.GetConnectionUnixProcessID(name) for name in unique]
            pids = [(await router.send_and_get_reply(ask)).body[0] for ask in asked]
        return [name for name, found in zip(unique, pids, strict=True) if found == pid]

    @contextlib.asynccontextmanager
    async def inhibitor(self, who: str, what: str = "shutdown", why: str = "a test") -> AsyncIterator[None]:
        """Another program that holds a delay lock."""
        async with self.client() as router:
            ask = new_method_call(LOGIN1, "Inhibit", "ssss", (what, who, why, "delay"))
            (lock,) = unwrap_msg(await router.send_and_get_reply(ask))
            with lock:
                yield

    @contextlib.asynccontextmanager
    async def monitor(self) -> AsyncIterator[list[Message]]:
        """The bus traffic of the block, complete at its end."""
        overheard: list[Message] = []
        connection = await open_dbus_connection(self.address)
        async with connection:
            async with connection.router() as router:
                ask = new_method_call(MONITORING, "BecomeMonitor", "asu", ([], 0))
                unwrap_msg(await router.send_and_get_reply(ask))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_overhear, connection, overheard)
                yield overheard
                await self._until_overheard(overheard)
                nursery.cancel_scope.cancel()

    async def _until_overheard(self, overheard: list[Message]) -> None:
        """Bus order: earlier messages are recorded before this last one."""
        await self.get(LAST_WORD)
        await until(
            lambda: any(message.body[1:] == (LAST_WORD,) for message in overheard), "the bus is not overheard"
        )

    async def power_off(self, kind: str = "poweroff") -> int:
        """``systemctl KIND`` through logind; returns the monotonic time."""
        asked_ns = time.monotonic_ns()
        await self.call(METHODS[kind], "b", False)
        return asked_ns

    async def schedule(self, kind: str, in_seconds: float) -> int:
        """``shutdown +N``; returns the due wall-clock time."""
        at_us = time.time_ns() // 1000 + int(in_seconds * 1_000_000)
        await self.call("ScheduleShutdown", "st", kind, at_us)
        return at_us * 1000

    async def set_wall_message(self, text: str) -> None:
        await self.call("SetWallMessage", "sb", text, True)

    async def cancel(self) -> bool:
        """``shutdown -c``; returns whether logind had a shutdown to cancel."""
        return bool((await self.call("CancelScheduledShutdown"))[0])

    async def list_inhibitors(self) -> list[Inhibitor]:
        return [Inhibitor(*row) for row in (await self.call("ListInhibitors"))[0]]

    async def ours(self) -> list[Inhibitor]:
        return [row for row in await self.list_inhibitors() if row.who == "ebbtide"]

    async def none_of_ours(self) -> bool:
        """None of our locks remains: logind notices a closed lock with delay."""

        async def gone() -> bool:
            return not await self.ours()

        return bool(await until(gone, "our lock is listed"))


async def _overhear(connection: DBusConnection, overheard: list[Message]) -> None:
    while True:
        overheard.append(await connection.receive())


def manager_signal(member: str, signature: str, *body: Any, to: str | None = None) -> Message:
    """A signal as logind's manager, broadcast or to one connection."""
    path = DBusAddress(LOGIN1.object_path, None, LOGIN1.interface)
    message = new_signal(path, member, signature or None, body)
    if to is not None:
        message.header.fields[HeaderFields.destination] = to
    return message


@contextlib.asynccontextmanager
async def logind_bed() -> AsyncIterator[LogindBed]:
    """A fresh bed; its processes, mounts and folder are removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="bed.", dir=MEMORY if MEMORY.is_dir() else None))
    inside = Inside("tests.beds.logind_inside", folder)
    bed = LogindBed(folder, inside)
    try:
        await bed.do("start_bus")
        await bed.start_logind()
        yield bed
    finally:
        inside.close()
        shutil.rmtree(folder, ignore_errors=True)
