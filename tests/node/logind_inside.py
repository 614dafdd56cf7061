"""The node's logind bed: its service manager also has the node's parts as units.

``StopUnit`` and ``StartUnit`` ask PID 1 to stop and start the part, and end with ``JobRemoved``, as in
systemd. Requests and answers are one JSON line each.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import trio
from jeepney import HeaderFields, Message, new_error, new_method_return, new_signal
from jeepney.io.trio import DBusConnection

from tests.beds import logind_inside
from tests.beds.logind_inside import SYSTEMD, ServiceManager

UNITS = "/org/freedesktop/systemd1/unit/"
JOBS = "/org/freedesktop/systemd1/job/"
#: Properties of a service, and their D-Bus types.
MAIN_PROCESS = {"MainPID": "u", "ExecMainStartTimestampMonotonic": "t"}
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


class Unit:
    """The unit name of the node's ``part``. ``stuck``: its jobs do not end."""

    def __init__(self, name: str, part: str) -> None:
        self.name, self.part = name, part
        self.path = UNITS + "".join(each if each.isalnum() else f"_{ord(each):02x}" for each in name)
        self.stuck = False


class Units(ServiceManager):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside.hang_up)
        self.inside = inside
        self.units: dict[str, Unit] = {}
        self.asked: list[tuple[str, str]] = []
        self.jobs = 1

    def on_loadunit(self, message: Message) -> list[Message]:
        unit = self.units.get(message.body[0])
        if unit is None:
            return [new_error(message, NO_SUCH_UNIT, "s", (f"Unit {message.body[0]} not found.",))]
        return [new_method_return(message, "o", (unit.path,))]

    def on_getunit(self, message: Message) -> list[Message]:
        return self.on_loadunit(message)

    def on_stopunit(self, message: Message) -> list[Message]:
        unit = self.units.get(message.body[0])
        if unit is None:
            return self.on_loadunit(message)
        return self.job(message, unit, {"do": "stop", "name": unit.part, "signal_number": signal.SIGTERM})

    def on_startunit(self, message: Message) -> list[Message]:
        unit = self.units.get(message.body[0])
        if unit is None:
            return super().on_startunit(message)
        return self.job(message, unit, {"do": "again", "name": unit.part})

    def on_killunit(self, message: Message) -> list[Message]:
        """Signals the part directly, without a job, even if one is stuck."""
        unit = self.units.get(message.body[0])
        if unit is None:
            return super().on_killunit(message)
        request = {"do": "signal", "name": unit.part, "signal_number": message.body[2]}
        self.inside.nursery.start_soon(self.inside.ask_node, request)
        return [new_method_return(message)]

    def job(self, message: Message, unit: Unit, request: dict[str, Any]) -> list[Message]:
        self.jobs += 1
        self.asked.append((message.header.fields[HeaderFields.member], unit.name))
        self.inside.nursery.start_soon(self.finish, self.jobs, unit, request)
        return [new_method_return(message, "o", (f"{JOBS}{self.jobs}",))]

    async def finish(self, number: int, unit: Unit, request: dict[str, Any]) -> None:
        if unit.stuck:
            return
        answer = await self.inside.ask_node(request)
        result = "failed" if "error" in answer else "done"
        removed = ("uoss", (number, f"{JOBS}{number}", unit.name, result))
        await self.inside.say(new_signal(SYSTEMD, "JobRemoved", *removed))

    def on_get(self, message: Message) -> list[Message]:
        """A unit's ``ActiveState`` and main process are its part's."""
        path, name = message.header.fields[HeaderFields.path], message.body[1]
        unit = next((each for each in self.units.values() if each.path == path), None)
        tell = {"ActiveState": self.tell_state, **dict.fromkeys(MAIN_PROCESS, self.tell_main)}.get(name)
        if unit is None or tell is None:
            return super().on_get(message)
        self.inside.nursery.start_soon(tell, message, unit)
        return []

    async def tell_main(self, message: Message, unit: Unit) -> None:
        said = (await self.inside.ask_node({"do": "main", "name": unit.part}))["ok"]
        name = message.body[1]
        value = said[list(MAIN_PROCESS).index(name)]
        await self.inside.say(new_method_return(message, "v", ((MAIN_PROCESS[name], value),)))

    async def tell_state(self, message: Message, unit: Unit) -> None:
        alive = (await self.inside.ask_node({"do": "alive"}))["ok"]
        state = "active" if unit.part in alive else "inactive"
        await self.inside.say(new_method_return(message, "v", (("s", state),)))


class Inside(logind_inside.Inside):
    manager: Units

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        super().__init__(folder, nursery)
        self.manager = Units(self)
        self.control: Path | None = None

    async def do_units(self, control: str, units: dict[str, str]) -> None:
        """Unit to part, and the socket of PID 1."""
        self.control = Path(control)
        self.manager.units = {name: Unit(name, part) for name, part in units.items()}

    async def do_stuck(self, unit: str, stuck: bool) -> None:
        self.manager.units[unit].stuck = stuck

    async def do_asked(self) -> list[tuple[str, str]]:
        """The requested jobs: method and unit."""
        return self.manager.asked

    async def ask_node(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.control is not None, "units come with their socket"
        async with await trio.open_unix_socket(self.control) as stream:
            await stream.send_all(json.dumps(request).encode() + b"\n")
            said = b"".join([bytes(piece) async for piece in stream])
        answer: dict[str, Any] = json.loads(said)
        return answer

    async def say(self, message: Message) -> None:
        """To the bus, if it is there."""
        stub: DBusConnection | None = self.stub
        if stub is not None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stub.send(message)


if __name__ == "__main__":
    trio.run(logind_inside.main, Path(sys.argv[1]), Inside)
