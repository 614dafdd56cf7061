"""Long messages from a local user, on a real bus, to the edge as a process."""

from __future__ import annotations

import array
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from jeepney import HeaderFields, Message
from jeepney.io.trio import open_dbus_connection

from ebbtide.actors.edges.logind_reading import PREPARE_FOR_SHUTDOWN
from tests.beds.inside import PROJECT
from tests.beds.logind import LogindBed, manager_signal

pytestmark = [pytest.mark.root]

MIB = 1024 * 1024
#: The system bus takes messages of up to 32 MiB.
LONG_BYTES = 29 * MIB
#: The promise for any local user's input.
PEAK_MIB_MAX, STALL_MS_MAX = 128, 50
CHILD_SECONDS_MAX = 60


def long_message(short: Message, signature: str, body: bytes) -> bytes:
    """The bytes of a message with this body, built without a library."""
    short.header.fields[HeaderFields.signature] = signature
    short.header.body_length = len(body)
    head = short.header.serialise(serial=7)
    return head + bytes(-len(head) % 8) + body


def numbers(length: int) -> bytes:
    """An ``au``: one of the slowest bodies to read."""
    return array.array("I", [length]).tobytes() + bytes(length)


def nested(length: int) -> bytes:
    """An ``av``: each element names its own type."""
    element = b"\x01y\x00\x07"
    return array.array("I", [length]).tobytes() + element * (length // len(element))


@asynccontextmanager
async def flooded(bed: LogindBed) -> AsyncIterator[tuple[str, Any]]:
    """The edge's bus name, and its report after the shutdown."""
    argv = [sys.executable, "-m", "tests.actors.edges.logind.flooded", bed.address, str(bed.root)]
    process = await trio.lowlevel.open_process(
        argv, stdout=subprocess.PIPE, cwd=PROJECT, env=os.environ | {"PYTHONPATH": str(PROJECT)}
    )
    output = process.stdout
    assert output is not None
    text = b""

    async def line() -> str:
        nonlocal text
        with trio.fail_after(CHILD_SECONDS_MAX):
            while b"\n" not in text:
                more = await output.receive_some()
                assert more, "the edge's process ended"
                text += more
        first, _, text = text.partition(b"\n")
        return first.decode()

    try:
        assert await line() == "armed"
        (ours,) = await bed.connections_of(process.pid)

        async def report() -> Any:
            await bed.power_off()
            assert await line() == "down"
            return json.loads(await line())

        yield ours, report
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("signature", "body"), [("au", numbers), ("av", nested)])
async def test_long_signals_keep_nobody(bed: LogindBed, signature: str, body: Any) -> None:
    """Three messages of 29 MiB, in logind's name and in another, are neither read nor stored."""
    async with flooded(bed) as (ours, report):
        connection = await open_dbus_connection(bed.address)
        async with connection:
            for member in (PREPARE_FOR_SHUTDOWN, "Anything", PREPARE_FOR_SHUTDOWN):
                message = manager_signal(member, "", to=ours)
                await trio.SocketStream(connection.socket).send_all(
                    long_message(message, signature, body(LONG_BYTES))
                )
            found = await report()
    assert found["stall_ms"] <= STALL_MS_MAX
    assert found["peak_mib"] <= PEAK_MIB_MAX
    assert found["facts"]["SignalRejected"] == 2, "the forged ones are on record"
    assert "BusLost" not in found["facts"]


async def test_short_ones_without_number_keep_nobody(bed: LogindBed) -> None:
    """Five thousand unrelated signals of 4 KiB: the bodies are not read."""
    async with flooded(bed) as (ours, report):
        connection = await open_dbus_connection(bed.address)
        async with connection:
            message = long_message(manager_signal("Anything", "", to=ours), "av", nested(4096 - 4))
            for _ in range(5_000):
                await trio.SocketStream(connection.socket).send_all(message)
            found = await report()
    assert found["stall_ms"] <= STALL_MS_MAX
    assert found["peak_mib"] <= PEAK_MIB_MAX
    assert "BusLost" not in found["facts"]
