"""The logind edge alone, in a machine's process namespace, on this side's files: takes orders as JSON lines.

The lock is given to a process that logind must be able to see; so the agent is entered into the machine's
process namespace, and reaches bus and files through the machine's root from outside. Facts and outcomes
go out as JSON lines, with their type.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import trio

from ebbtide.actors.edges.logind.edge import LogindEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import TYPES, Fact, Order


class Printed:
    """An outlet that prints."""

    async def put(self, *facts: Fact) -> None:
        for fact in facts:
            say(type(fact).__name__, json.loads(msgspec.json.encode(fact)))


def say(kind: str, values: object) -> None:
    print(json.dumps([kind, values]), flush=True)


async def main(root: Path) -> None:
    edge = LogindEdge(f"unix:path={root}/run/dbus/system_bus_socket", root=root)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, Printed())
        async for line in trio.wrap_file(sys.stdin):
            kind, values = json.loads(line)
            order = msgspec.convert(values, TYPES[kind])
            assert isinstance(order, Order)
            ending = edge.effects[type(order)](order, Printed())
            say("Ending", (ending if isinstance(ending, Ending) else await ending)._asdict())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
