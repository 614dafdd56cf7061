"""A management controller per machine, wired to its power in both directions.

Emulated outside the nodes' network and reached through a relay, so an unreachable controller still runs.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.beds.bmc import LOOPBACK, Power, RedfishEmulator, redfish_emulator
from tests.beds.relay import joined
from tests.node.bed import Bed
from tests.node.machines import Machine


class Bmcs:
    """Clients reach them while ``reachable``."""

    def __init__(self, emulator: RedfishEmulator, machines: dict[str, Machine]) -> None:
        self.emulator, self.reachable = emulator, True
        #: Controllers that report the ordered state instead of the machine's.
        self._lying: set[str] = set()
        for machine in machines.values():
            machine.on_power = partial(self._follow, machine.uuid)

    def _follow(self, uuid: str, power: Power) -> None:
        if uuid not in self._lying:
            self.emulator.set_power(uuid, power)

    def lie(self, machine: Machine, power: Power) -> None:
        self._lying.add(machine.uuid)
        self.emulator.set_power(machine.uuid, power)

    def settings(self) -> dict[str, Any]:
        secrets = {name.replace("_f", "F"): str(path) for name, path in self.emulator.secrets.items()}
        return {"address": self.emulator.url, "certificate": str(self.emulator.ca_file), **secrets}


@contextlib.asynccontextmanager
async def bmcs(bed: Bed, machines: dict[str, Machine]) -> AsyncIterator[Bmcs]:
    """For the time of the block. Raises Unavailable."""
    token = trio.lowlevel.current_trio_token()
    by_uuid = {machine.uuid: machine for machine in machines.values()}

    def ordered(uuid: str, power: Power) -> None:
        """A client ordered a change; the controller reports it when done."""
        machine = by_uuid[uuid]
        trio.from_thread.run(machine.off if power == "Off" else machine.on, trio_token=token)

    names = {uuid: machine.member.name for uuid, machine in by_uuid.items()}
    with (
        tempfile.TemporaryDirectory(prefix="ebbtide-bmc.") as folder,
        # Not in a thread: it ends with its starter.
        redfish_emulator(Path(folder), names, on_change=ordered) as emulator,
    ):
        made = Bmcs(emulator, machines)
        async with relayed(bed, emulator.port, lambda: made.reachable):
            yield made


@contextlib.asynccontextmanager
async def relayed(bed: Bed, port: int, reachable: Callable[[], bool]) -> AsyncIterator[None]:
    """A port of the machine's loopback, in the nodes' network. While not ``reachable``, connections close."""

    async def relay(outer: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError):
            async with outer:
                if reachable():
                    async with await trio.open_tcp_stream(LOOPBACK, port) as inner:
                        await joined(outer, inner)

    with bed.network():
        listening = trio.socket.socket()
    await listening.bind((LOOPBACK, port))
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, relay, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()
